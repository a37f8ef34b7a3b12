//! The targets of the library, on the machine of the measurement.

use crate::harness::{Config, Entry, Measured, Role};

/// The kind of a limit.
#[derive(Clone, Copy)]
pub enum Bound {
    /// The largest ratio of the library's value to the peer's.
    Ratio(f64),
    /// The largest ratio of the library's value to that of another contender, by its name.
    RatioTo(&'static str, f64),
    /// The largest ratio of the library's value to that of each other contender.
    RatioToEach(f64),
    /// The largest value of the library.
    AtMost(f64),
    /// The smallest value of the library for each worker that has a core of its own.
    PerCore(f64),
}

/// A target.
pub struct Target {
    pub case: &'static str,
    pub metric: &'static str,
    pub bound: Bound,
}

const fn target(case: &'static str, metric: &'static str, bound: Bound) -> Target {
    Target { case, metric, bound }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("hop/inside", "time", Bound::Ratio(0.2)),
    target("hop/inside-many", "time", Bound::Ratio(0.8)),
    target("hop/outside", "time", Bound::Ratio(0.5)),
    target("hop/outside-loaded", "time", Bound::RatioTo("async-executor", 1.0)),
    target("join/fib", "time", Bound::Ratio(0.9)),
    target("join/fib", "cores", Bound::PerCore(0.9)),
    target("fanout/coarse", "cores", Bound::PerCore(0.9)),
    target("fanout/fine", "cores", Bound::PerCore(0.9)),
    target("bulk/saxpy", "time", Bound::Ratio(1.05)),
    target("bulk/irregular", "time", Bound::Ratio(1.1)),
    target("timers/100k", "cpu", Bound::Ratio(0.5)),
    target("timers/100k", "late p99", Bound::AtMost(1000.0)),
    target("timers/1M", "late p99", Bound::Ratio(0.03)),
    target("tasks/ready", "time", Bound::Ratio(1.25)),
    target("tasks/child", "time", Bound::Ratio(1.05)),
    target("tasks/fib", "time", Bound::Ratio(0.15)),
    target("tasks/hop", "time", Bound::Ratio(0.25)),
    target("tasks/depth", "time", Bound::Ratio(1.5)),
    target("tasks/ping-pong", "time", Bound::Ratio(0.45)),
    target("groups/spawn", "time", Bound::Ratio(0.1)),
    target("groups/spawn-static", "time", Bound::Ratio(0.45)),
    target("groups/workers", "time", Bound::Ratio(1.1)),
    target("groups/skynet", "time", Bound::Ratio(0.08)),
    target("groups/skynet", "time", Bound::RatioTo("rayon's scope", 1.1)),
    target("groups/cancel", "time", Bound::Ratio(0.15)),
    target("groups/size", "time", Bound::RatioToEach(1.5)),
    target("groups/sleep", "memory", Bound::Ratio(0.65)),
    // Ten million children in 8 GiB.
    target("groups/sleep", "memory", Bound::AtMost(858.0)),
    target("groups/local", "time", Bound::Ratio(1.5)),
    target("boxes/deep", "time", Bound::Ratio(1.1)),
    target("idle/pool", "cpu", Bound::AtMost(0.0)),
];

/// A target and its result.
pub struct Verdict {
    pub target: &'static Target,
    pub limit: f64,
    /// The measured value, or `None` if there is none.
    pub value: Option<f64>,
    /// Whether the target was met, or `None` if it was not measured or the sizes were small.
    pub met: Option<bool>,
}

impl Verdict {
    /// Returns a description of the target.
    pub fn text(&self, measured: &Measured) -> String {
        let metric = self.target.metric;
        let unit = measured
            .metrics
            .iter()
            .find(|known| known.name == metric)
            .map_or("", |known| known.unit);
        match self.target.bound {
            Bound::Ratio(_) => {
                let peer = measured.entry(Role::Peer).map_or("the peer", |peer| peer.name);
                format!("{metric} at most {} of {peer}'s", self.limit)
            }
            Bound::RatioTo(name, _) => format!("{metric} at most {} of {name}'s", self.limit),
            Bound::RatioToEach(_) => format!("{metric} at most {} of each other contender's", self.limit),
            Bound::AtMost(_) => format!("{metric} at most {} {unit}", self.limit),
            Bound::PerCore(_) => format!("{metric} at least {:.1}", self.limit),
        }
    }

    pub fn word(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not judged",
        }
    }
}

/// Compares the results with every target that concerns them. `cores` is the number of cores of the machine.
pub fn judge(measured: &Measured, config: &Config, cores: usize) -> Vec<Verdict> {
    let targets = TARGETS.iter().filter(|target| target.case == measured.name);
    targets
        .map(|target| {
            let metric = measured.metrics.iter().position(|metric| metric.name == target.metric);
            let metric = metric.expect("a target is for something that is measured");
            let ours = || Some(measured.entry(Role::Bowline)?.values[metric].as_ref()?.median);
            let ratio = |entry: Option<&Entry>| Some(entry?.ratios[metric].as_ref()?.median);
            let named = |name| {
                let entry = measured.entries.iter().find(|entry| entry.name == name);
                Some(entry.expect("a target names a contender of its case"))
            };
            let (limit, value) = match target.bound {
                Bound::Ratio(limit) => (limit, ratio(measured.entry(Role::Peer))),
                Bound::RatioTo(name, limit) => (limit, ratio(named(name))),
                Bound::RatioToEach(limit) => {
                    let others = measured.entries.iter().filter(|entry| entry.role != Role::Bowline);
                    let ratios: Option<Vec<f64>> = others.map(|entry| ratio(Some(entry))).collect();
                    (limit, ratios.and_then(|all| all.into_iter().max_by(f64::total_cmp)))
                }
                Bound::AtMost(limit) => (limit, ours()),
                Bound::PerCore(limit) => (limit * config.threads.min(cores) as f64, ours()),
            };
            let met = value.filter(|_| !config.quick).map(|value| match target.bound {
                Bound::PerCore(_) => value >= limit,
                _ => value <= limit,
            });
            Verdict {
                target,
                limit,
                value,
                met,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, Metric, Sample};

    const METRICS: &[Metric] = &[Metric::new("time", "ns"), Metric::new("cores", "CPU/wall")];
    const FULL: Config = Config {
        threads: 4,
        rounds: 1,
        quick: false,
    };

    fn join(time: f64, cores: Option<f64>) -> Measured {
        let sample = move |time, cores| Sample {
            values: vec![Some(time), cores],
            check: 0,
        };
        let case = Case::new("join/fib", "", METRICS);
        let case = case
            .bowline(move || sample(time, cores))
            .peer("rayon", move || sample(10.0, None));
        case.measure(&FULL).ok().unwrap()
    }

    #[test]
    fn ratios_and_cores_are_judged_each_in_its_direction() {
        let met = |time, cores| -> Vec<Option<bool>> {
            judge(&join(time, cores), &FULL, 2)
                .iter()
                .map(|verdict| verdict.met)
                .collect()
        };
        assert_eq!(met(9.0, Some(1.9)), [Some(true), Some(true)]);
        assert_eq!(met(9.1, Some(1.7)), [Some(false), Some(false)]);
        assert_eq!(met(5.0, None), [Some(true), None]);
    }

    #[test]
    fn a_target_can_name_a_contender_that_is_not_the_peer() {
        let sample = |time| Sample {
            values: vec![Some(time), None],
            check: 0,
        };
        let case = Case::new("groups/skynet", "", METRICS)
            .bowline(move || sample(10.0))
            .peer("tokio", move || sample(100.0))
            .shown("rayon's scope", move || sample(10.0));
        let measured = case.measure(&FULL).ok().unwrap();
        let verdicts = judge(&measured, &FULL, 2);
        let found: Vec<_> = verdicts
            .iter()
            .map(|verdict| (verdict.text(&measured), verdict.value, verdict.word()))
            .collect();
        let expected = [
            ("time at most 0.08 of tokio's".to_owned(), Some(0.1), "missed"),
            ("time at most 1.1 of rayon's scope's".to_owned(), Some(1.0), "met"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_target_can_be_for_the_ratio_to_each_contender() {
        let sample = |time| Sample {
            values: vec![Some(time), None],
            check: 0,
        };
        let verdict = |cheapest| {
            let case = Case::new("groups/size", "", METRICS)
                .bowline(move || sample(30.0))
                .peer("groups of ten", move || sample(40.0))
                .shown("of a hundred", move || sample(cheapest));
            let measured = case.measure(&FULL).ok().unwrap();
            let verdicts = judge(&measured, &FULL, 2);
            assert_eq!(
                verdicts[0].text(&measured),
                "time at most 1.5 of each other contender's"
            );
            (verdicts[0].value, verdicts[0].word())
        };
        assert_eq!(verdict(20.0), (Some(1.5), "met"));
        assert_eq!(verdict(10.0), (Some(3.0), "missed"));
    }

    #[test]
    fn ten_million_children_that_sleep_fit_into_the_memory_of_their_target() {
        let bytes = TARGETS.iter().find_map(|target| match target.bound {
            Bound::AtMost(bytes) if target.case == "groups/sleep" => Some(bytes),
            _ => None,
        });
        assert!(bytes.unwrap() * 1e7 <= 8.0 * 1024_f64.powi(3));
    }

    #[test]
    fn nothing_is_judged_at_small_sizes() {
        let quick = Config { quick: true, ..FULL };
        assert!(
            judge(&join(1.0, Some(2.0)), &quick, 2)
                .iter()
                .all(|verdict| verdict.met.is_none())
        );
    }

    #[test]
    fn the_limit_for_cores_counts_those_that_a_worker_can_have() {
        assert_eq!(judge(&join(1.0, Some(2.0)), &FULL, 8)[1].limit, 3.6);
    }
}
