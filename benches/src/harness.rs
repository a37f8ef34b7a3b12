//! The comparison of contenders: in turns, round by round, in one process.

use std::thread;
use std::time::Duration;

use crate::clock::Neighbours;

/// The size of a measurement, and its number of threads.
#[derive(Clone, Copy)]
pub struct Config {
    /// The number of workers of every pool.
    pub threads: usize,
    /// The number of measured rounds. One more precedes them, to warm up.
    pub rounds: usize,
    /// Whether sizes are small: a test that everything runs, without meaningful times.
    pub quick: bool,
}

impl Config {
    /// Returns one of the two sizes.
    pub fn size(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}

/// The results so far, and the selection of what is measured.
pub struct Bench {
    pub config: Config,
    /// The selected case, or all of them if `None`.
    only: Option<String>,
    /// The names of all cases seen, selected or not.
    pub offered: Vec<&'static str>,
    pub measured: Vec<Measured>,
}

impl Bench {
    pub fn new(config: Config, only: Option<String>) -> Self {
        Bench {
            config,
            only,
            offered: Vec::new(),
            measured: Vec::new(),
        }
    }
}

/// A quantity that is measured for each contender.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
}

impl Metric {
    pub const fn new(name: &'static str, unit: &'static str) -> Self {
        Metric { name, unit }
    }
}

/// The role of a contender in the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The library.
    Bowline,
    /// The peer: the ratios of the targets are relative to it.
    Peer,
    /// Shown for orientation.
    Shown,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Bowline => "bowline",
            Role::Peer => "peer",
            Role::Shown => "shown",
        }
    }
}

/// The result of one turn of one contender.
pub struct Sample {
    /// One value for each metric of the case, or `None` if it is not measured.
    pub values: Vec<Option<f64>>,
    /// A digest of the result, which must be equal for all contenders.
    pub check: u64,
}

impl Sample {
    /// Replaces the digest, for contenders whose results differ by design.
    pub fn checked(self, check: u64) -> Self {
        Sample { check, ..self }
    }
}

/// A piece of work that several contenders do.
pub struct Case<'a> {
    /// The workload and the case: `hop/inside`.
    pub name: &'static str,
    /// A description of the work, in one sentence.
    pub about: &'static str,
    /// The metrics. The table shows the ratios of the first.
    pub metrics: &'static [Metric],
    /// The largest useful number of rounds.
    pub most_rounds: usize,
    contenders: Vec<Contender<'a>>,
}

struct Contender<'a> {
    name: &'static str,
    role: Role,
    turn: Box<dyn FnMut() -> Sample + 'a>,
}

impl<'a> Case<'a> {
    pub fn new(name: &'static str, about: &'static str, metrics: &'static [Metric]) -> Self {
        Case {
            name,
            about,
            metrics,
            most_rounds: usize::MAX,
            contenders: Vec::new(),
        }
    }

    pub fn most_rounds(mut self, rounds: usize) -> Self {
        self.most_rounds = rounds;
        self
    }

    pub fn bowline(self, turn: impl FnMut() -> Sample + 'a) -> Self {
        self.contender("bowline", Role::Bowline, turn)
    }

    pub fn peer(self, name: &'static str, turn: impl FnMut() -> Sample + 'a) -> Self {
        self.contender(name, Role::Peer, turn)
    }

    pub fn shown(self, name: &'static str, turn: impl FnMut() -> Sample + 'a) -> Self {
        self.contender(name, Role::Shown, turn)
    }

    fn contender(mut self, name: &'static str, role: Role, turn: impl FnMut() -> Sample + 'a) -> Self {
        self.contenders.push(Contender {
            name,
            role,
            turn: Box::new(turn),
        });
        self
    }

    /// Measures the case, if it is selected.
    pub fn run(self, bench: &mut Bench) -> Result<(), String> {
        bench.offered.push(self.name);
        if bench.only.as_ref().is_none_or(|only| only == self.name) {
            let measured = self.measure(&bench.config)?;
            bench.measured.push(measured);
        }
        Ok(())
    }

    /// Runs every contender in every round. The order is reversed from round to round, so that no contender always
    /// follows the same one.
    pub fn measure(mut self, config: &Config) -> Result<Measured, String> {
        let rounds = config.rounds.min(self.most_rounds);
        eprintln!("{}: {rounds} rounds of {}", self.name, self.names());
        let mut samples: Vec<Vec<Sample>> = self.contenders.iter().map(|_| Vec::new()).collect();
        let mut agreed = None;
        let neighbours = Neighbours::watch();
        for round in 0..=rounds {
            let mut order: Vec<usize> = (0..self.contenders.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let contender = &mut self.contenders[index];
                let sample = (contender.turn)();
                assert_eq!(sample.values.len(), self.metrics.len(), "one value for each metric");
                if *agreed.get_or_insert(sample.check) != sample.check {
                    return Err(format!(
                        "{}: {} came to another result than the rest",
                        self.name, contender.name
                    ));
                }
                if round > 0 {
                    samples[index].push(sample);
                }
                // Waits until the workers of this contender sleep, so that they do not disturb the next one.
                thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(self.summarise(&samples, neighbours.cores()))
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.contenders.iter().map(|contender| contender.name).collect();
        names.join(", ")
    }

    fn summarise(&self, samples: &[Vec<Sample>], neighbours: Option<f64>) -> Measured {
        let series = |index: usize, metric: usize| -> Option<Vec<f64>> {
            samples[index].iter().map(|sample| sample.values[metric]).collect()
        };
        let bowline = self
            .contenders
            .iter()
            .position(|contender| contender.role == Role::Bowline);
        let contenders = self.contenders.iter().enumerate().map(|(index, contender)| {
            let values = (0..self.metrics.len()).map(|metric| series(index, metric).and_then(Summary::of));
            let ratios = (0..self.metrics.len()).map(|metric| {
                let ours = series(bowline?, metric)?;
                let theirs = series(index, metric)?;
                let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs);
                Summary::of(ratios.filter(|ratio| ratio.is_finite()).collect())
            });
            Entry {
                name: contender.name,
                role: contender.role,
                values: values.collect(),
                ratios: ratios.collect(),
            }
        });
        Measured {
            name: self.name,
            about: self.about,
            metrics: self.metrics,
            entries: contenders.collect(),
            neighbours,
        }
    }
}

/// The measured rounds of one value.
#[derive(Clone)]
pub struct Summary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// The values, in the order of measurement.
    pub rounds: Vec<f64>,
}

impl Summary {
    /// Returns the summary, or `None` without values.
    fn of(rounds: Vec<f64>) -> Option<Self> {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => return None,
            even if even % 2 == 0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Some(Summary {
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            rounds,
        })
    }
}

/// A measured case.
pub struct Measured {
    pub name: &'static str,
    pub about: &'static str,
    pub metrics: &'static [Metric],
    pub entries: Vec<Entry>,
    /// The number of cores that other processes used meanwhile, or `None` if it is not measured.
    pub neighbours: Option<f64>,
}

/// The results of one contender.
pub struct Entry {
    pub name: &'static str,
    pub role: Role,
    /// One for each metric.
    pub values: Vec<Option<Summary>>,
    /// For each metric, the library's value over this one's, round by round.
    pub ratios: Vec<Option<Summary>>,
}

impl Measured {
    pub fn entry(&self, role: Role) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.role == role)
    }
}

/// Returns the quantile `part` of the values, and sorts them.
pub fn percentile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * part).round() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case<'a>() -> Case<'a> {
        const METRICS: &[Metric] = &[Metric::new("time", "ns")];
        Case::new("test/case", "Nothing.", METRICS)
    }

    fn sample(value: f64, check: u64) -> Sample {
        Sample {
            values: vec![Some(value)],
            check,
        }
    }

    const CONFIG: Config = Config {
        threads: 1,
        rounds: 3,
        quick: true,
    };

    #[test]
    fn the_ratio_is_taken_round_by_round_without_the_warm_up() {
        let mut ours = [1000.0, 1.0, 2.0, 30.0].into_iter();
        let mut theirs = [1.0, 10.0, 10.0, 10.0].into_iter();
        let measured = case()
            .bowline(|| sample(ours.next().unwrap(), 7))
            .peer("peer", || sample(theirs.next().unwrap(), 7))
            .measure(&CONFIG)
            .ok()
            .unwrap();
        let ratio = measured.entry(Role::Peer).unwrap().ratios[0].clone().unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (0.2, 0.1, 3.0));
    }

    #[test]
    fn only_the_case_that_was_asked_for_is_measured() {
        let mut bench = Bench::new(CONFIG, Some("test/other".to_owned()));
        case().bowline(|| panic!("not asked for")).run(&mut bench).unwrap();
        assert_eq!((bench.offered.len(), bench.measured.len()), (1, 0));
        let mut bench = Bench::new(CONFIG, Some("test/case".to_owned()));
        case().bowline(|| sample(1.0, 1)).run(&mut bench).unwrap();
        assert_eq!(bench.measured.len(), 1);
    }

    #[test]
    fn the_order_is_turned_around_every_round() {
        let order = std::cell::RefCell::new(String::new());
        let turn = |name: char| {
            let order = &order;
            move || {
                order.borrow_mut().push(name);
                sample(1.0, 0)
            }
        };
        assert!(case().bowline(turn('a')).peer("b", turn('b')).measure(&CONFIG).is_ok());
        assert_eq!(order.into_inner(), "abbaabba");
    }

    #[test]
    fn contenders_that_disagree_are_an_error() {
        let run = case()
            .bowline(|| sample(1.0, 1))
            .peer("b", || sample(1.0, 2))
            .measure(&CONFIG);
        assert!(run.err().unwrap().contains("b came to another result"));
    }

    #[test]
    fn a_value_that_is_missing_makes_no_summary() {
        let missing = || Sample {
            values: vec![None],
            check: 1,
        };
        let measured = case()
            .bowline(|| sample(1.0, 1))
            .peer("b", missing)
            .measure(&CONFIG)
            .ok()
            .unwrap();
        assert!(measured.entries[1].values[0].is_none());
        assert!(measured.entries[1].ratios[0].is_none());
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        let summary = Summary::of(vec![4.0, 1.0, 2.0, 100.0]).unwrap();
        assert_eq!((summary.median, summary.min, summary.max), (3.0, 1.0, 100.0));
        assert!(Summary::of(Vec::new()).is_none());
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let mut values: Vec<f64> = (0..101).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut values, 0.99), 99.0);
        assert_eq!(percentile(&mut values, 1.0), 100.0);
    }
}
