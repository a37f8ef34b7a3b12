//! The report of a measurement: as text, as Markdown and as JSON.

use std::fmt::Write;
use std::fs;

use crate::counted::{COLUMN, Counts};
use crate::harness::{Config, Entry, Measured, Role, Summary};
use crate::json::Json;
use crate::machine::Machine;
use crate::targets::{Bound, Verdict, judge};

/// All results.
pub struct Report {
    pub machine: Machine,
    pub config: Config,
    pub cases: Vec<Measured>,
}

impl Report {
    fn verdicts(&self, case: &Measured) -> Vec<Verdict> {
        judge(case, &self.config, self.machine.cores)
    }

    fn conditions(&self) -> String {
        let sizes = if self.config.quick { ", small sizes" } else { "" };
        format!("{}; {} threads{sizes}", self.machine.line(), self.config.threads)
    }

    /// Returns a table for each case, as text.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.conditions());
        for case in &self.cases {
            let _ = write!(text, "\n{}: {}\n", case.name, case.about);
            text.push_str(&table(case));
            if let Some(cores) = case.neighbours.filter(|&cores| cores >= UNSTEADY) {
                let _ = writeln!(text, "  unsteady: other processes used {cores:.1} cores meanwhile");
            }
            for verdict in self.verdicts(case) {
                let value = verdict.value.map_or("not measured here".to_owned(), number);
                let _ = writeln!(text, "  target: {}: {value}, {}", verdict.text(case), verdict.word());
            }
        }
        text
    }

    /// Returns one table with a row for each value, in Markdown. The first row of a case has its counts, if there are any.
    pub fn markdown(&self, counts: &Counts) -> String {
        let mut text = format!("{}.\n\n", self.conditions());
        let (title, line) = if counts.is_empty() {
            (String::new(), "")
        } else {
            (format!(" {COLUMN} |"), "---|")
        };
        let _ = writeln!(
            text,
            "| case | measured | bowline | peer | ratio | target | |{title} others (ratio to them) |"
        );
        let _ = writeln!(text, "|---|---|---|---|---|---|---|{line}---|");
        for case in &self.cases {
            let verdicts = self.verdicts(case);
            for (metric, known) in case.metrics.iter().enumerate() {
                let judged = |column: fn(&Verdict) -> String| {
                    let verdicts = verdicts.iter().filter(|verdict| verdict.target.metric == known.name);
                    verdicts.map(column).collect::<Vec<_>>().join("; ")
                };
                let value = |entry: &Entry| {
                    entry.values[metric]
                        .as_ref()
                        .map_or("–".to_owned(), |it| number(it.median))
                };
                let bowline = case.entry(Role::Bowline).map_or(String::new(), value);
                let peer = case.entry(Role::Peer);
                let ratio = peer
                    .and_then(|peer| peer.ratios[metric].as_ref())
                    .map_or("–".to_owned(), spread);
                let others = case.entries.iter().filter(|entry| entry.role == Role::Shown);
                let others: Vec<String> = others
                    .map(|entry| match &entry.ratios[metric] {
                        Some(ratio) => format!("{} {} ({:.2})", entry.name, value(entry), ratio.median),
                        None => format!("{} {}", entry.name, value(entry)),
                    })
                    .collect();
                let (name, counted) = match metric {
                    0 => (format!("`{}`", case.name), counts.of(case.name)),
                    _ => (String::new(), ""),
                };
                let counted = if counts.is_empty() {
                    String::new()
                } else {
                    format!(" {counted} |")
                };
                let _ = writeln!(
                    text,
                    "| {name} | {}, {} | {bowline} | {} | {ratio} | {} | {} |{counted} {} |",
                    known.name,
                    known.unit,
                    peer.map_or(String::new(), |peer| format!("{} {}", peer.name, value(peer))),
                    judged(limit),
                    judged(|verdict| verdict.word().to_owned()),
                    others.join(", "),
                );
            }
        }
        let cores = self
            .cases
            .iter()
            .filter_map(|case| case.neighbours)
            .max_by(f64::total_cmp);
        if let Some(cores) = cores.filter(|&cores| cores >= UNSTEADY) {
            let _ = writeln!(
                text,
                "\nThe machine was not quiet: other processes used up to {cores:.1} of its cores meanwhile."
            );
        }
        text
    }

    /// Returns all results with every round, as JSON.
    pub fn json(&self) -> Json {
        let peers = self
            .machine
            .peers
            .iter()
            .map(|(name, version)| (*name, version.as_str().into()));
        Json::Object(vec![
            (
                "machine",
                Json::Object(vec![
                    ("cpu", self.machine.cpu.as_str().into()),
                    ("cores", self.machine.cores.into()),
                    ("system", self.machine.system.as_str().into()),
                    ("peers", Json::Object(peers.collect())),
                ]),
            ),
            ("threads", self.config.threads.into()),
            ("rounds", self.config.rounds.into()),
            ("quick", self.config.quick.into()),
            ("cases", self.cases.iter().map(|case| self.case_json(case)).collect()),
        ])
    }

    fn case_json(&self, case: &Measured) -> Json {
        let summaries = |summaries: &[Option<Summary>]| {
            let fields = case.metrics.iter().zip(summaries);
            Json::Object(
                fields
                    .map(|(metric, summary)| (metric.name, summary.as_ref().map(summary_json).into()))
                    .collect(),
            )
        };
        let contenders = case.entries.iter().map(|entry| {
            let mut fields = vec![
                ("name", entry.name.into()),
                ("role", entry.role.name().into()),
                ("values", summaries(&entry.values)),
            ];
            if entry.role != Role::Bowline {
                fields.push(("ratios", summaries(&entry.ratios)));
            }
            Json::Object(fields)
        });
        let targets = self.verdicts(case).into_iter().map(|verdict| {
            Json::Object(vec![
                ("metric", verdict.target.metric.into()),
                ("target", verdict.text(case).into()),
                ("limit", verdict.limit.into()),
                ("value", verdict.value.into()),
                ("met", verdict.met.into()),
            ])
        });
        let units = case.metrics.iter().map(|metric| (metric.name, metric.unit.into()));
        Json::Object(vec![
            ("name", case.name.into()),
            ("about", case.about.into()),
            ("units", Json::Object(units.collect())),
            ("contenders", contenders.collect()),
            ("targets", targets.collect()),
            ("neighbours", case.neighbours.into()),
        ])
    }
}

fn summary_json(summary: &Summary) -> Json {
    Json::Object(vec![
        ("median", summary.median.into()),
        ("min", summary.min.into()),
        ("max", summary.max.into()),
        ("rounds", summary.rounds.iter().copied().collect()),
    ])
}

/// Returns the limit of a target, short enough for a column.
fn limit(verdict: &Verdict) -> String {
    match verdict.target.bound {
        Bound::Ratio(limit) => format!("ratio ≤ {limit}"),
        Bound::RatioTo(name, limit) => format!("≤ {limit} of {name}"),
        Bound::RatioToEach(limit) => format!("≤ {limit} of each"),
        Bound::AtMost(limit) => format!("≤ {limit}"),
        Bound::PerCore(_) => format!("≥ {:.1}", verdict.limit),
    }
}

/// Returns a table with a row per contender, a column per metric, and the ratio of the first metric at the end.
fn table(case: &Measured) -> String {
    let mut rows = vec![vec![String::new()]];
    rows[0].extend(
        case.metrics
            .iter()
            .map(|metric| format!("{}, {}", metric.name, metric.unit)),
    );
    rows[0].push("bowline's ratio to it".to_owned());
    for entry in &case.entries {
        let mut row = vec![entry.name.to_owned()];
        let values = entry.values.iter();
        row.extend(values.map(|value| value.as_ref().map_or("not measured here".to_owned(), spread)));
        let ratio = entry.ratios[0].as_ref().filter(|_| entry.role != Role::Bowline);
        row.push(ratio.map_or(String::new(), spread));
        rows.push(row);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "  {cell:<width$}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the median and the range of the rounds.
fn spread(summary: &Summary) -> String {
    let Summary { median, min, max, .. } = summary;
    format!("{} ({}–{})", number(*median), number(*min), number(*max))
}

/// Formats a number with three significant digits, or all before the point.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 100.0 || value == 0.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// The number of cores used by other processes above which the report warns.
pub const UNSTEADY: f64 = 0.1;

const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// Replaces the text between the two marks of the page at `path` with the table of the report, beside the counts on that page.
pub fn update_page(path: &str, report: &Report) -> Result<(), String> {
    let page = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let table = report.markdown(&Counts::of_page(&page));
    let page = replace_between_marks(&page, &table).ok_or(format!("{path}: no lines {BEGIN} and {END}"))?;
    fs::write(path, page).map_err(|error| format!("{path}: {error}"))
}

fn replace_between_marks(page: &str, table: &str) -> Option<String> {
    let (before, _, after) = measured(page)?;
    Some(format!("{before}\n\n{table}\n{after}"))
}

/// Splits a page into what precedes the table of results, with the mark, the table, and the rest from the second mark on.
pub fn measured(page: &str) -> Option<(&str, &str, &str)> {
    let begin = page.find(BEGIN)? + BEGIN.len();
    let end = begin + page[begin..].find(END)?;
    Some((&page[..begin], &page[begin..end], &page[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, Metric, Sample};

    fn report() -> Report {
        const METRICS: &[Metric] = &[Metric::new("time", "ns each"), Metric::new("cores", "CPU/wall")];
        let config = Config {
            threads: 2,
            rounds: 1,
            quick: false,
        };
        let sample = |time| Sample {
            values: vec![Some(time), None],
            check: 0,
        };
        let case = Case::new("hop/inside", "Hops.", METRICS);
        let case = case
            .bowline(move || sample(25.0))
            .peer("tokio", move || sample(100.0))
            .shown("other", move || sample(50.0));
        Report {
            machine: Machine {
                cpu: "A CPU".to_owned(),
                cores: 2,
                system: "an OS".to_owned(),
                peers: vec![("tokio", "1.0".to_owned())],
            },
            config,
            cases: vec![case.measure(&config).ok().unwrap()],
        }
    }

    #[test]
    fn the_table_shows_values_ratios_and_targets() {
        let text = report().text();
        assert!(
            text.contains("  tokio    100 (100–100)     not measured here  0.25 (0.25–0.25)\n"),
            "{text}"
        );
        assert!(
            text.contains("target: time at most 0.2 of tokio's: 0.25, missed"),
            "{text}"
        );
    }

    #[test]
    fn the_page_shows_a_row_for_each_metric() {
        let text = report().markdown(&Counts::default());
        let row = "| `hop/inside` | time, ns each | 25.0 | tokio 100 | 0.25 (0.25–0.25) | ratio ≤ 0.2 | missed | other 50.0 (0.50) |";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("|  | cores, CPU/wall | – | tokio – | – |  |  | other – |"),
            "{text}"
        );
    }

    #[test]
    fn the_page_shows_counts_beside_the_times() {
        let page = "<!-- counted: begin -->\n| `hop/inside` | hop | 280 | 0.00 | 0.00 |\n<!-- counted: end -->\n";
        let text = report().markdown(&Counts::of_page(page));
        assert!(
            text.contains("| ratio ≤ 0.2 | missed | 280; 0.00 | other 50.0 (0.50) |"),
            "{text}"
        );
        assert!(
            text.contains("|  | cores, CPU/wall | – | tokio – | – |  |  |  | other – |"),
            "{text}"
        );
    }

    #[test]
    fn the_json_says_whether_a_target_is_met() {
        let text = report().json().to_string();
        assert!(
            text.contains("\"limit\": 0.2,\n          \"value\": 0.25,\n          \"met\": false"),
            "{text}"
        );
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let replaced = replace_between_marks(&page, "new\n").unwrap();
        assert_eq!(replaced, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert!(replace_between_marks("no marks", "new").is_none());
    }
}
