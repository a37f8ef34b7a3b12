//! The parser of the command line.

use std::fmt::Write;

use crate::harness::Config;
use crate::machine::cores;
use crate::workloads::sleepers::Sleepers;
use crate::workloads::{WORKLOADS, Workload};

/// The destination of a report.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    Stdout,
    File(String),
}

/// A workload, or one case of it.
pub struct Selection {
    pub workload: &'static Workload,
    /// One case, by its full name: `hop/inside`.
    pub case: Option<String>,
}

/// The parsed command.
pub enum Request {
    Help,
    List,
    /// The library's side of one row of `counts`, once.
    Count {
        row: String,
        size: usize,
    },
    /// The column of counts in the table of results of a page, from the table of counts there.
    Recount {
        page: String,
    },
    /// One contender's children that sleep, in a process of its own.
    Sleepers(Sleepers),
    /// The plots, into a directory.
    Plots {
        directory: String,
        config: Config,
    },
    Run {
        selections: Vec<Selection>,
        config: Config,
        json: Option<Output>,
        markdown: Option<Output>,
    },
}

/// Parses the arguments, without the program's name.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Request, String> {
    let mut selections = Vec::new();
    let mut rounds = None;
    let mut threads = cores();
    let mut quick = false;
    let mut json = None;
    let mut markdown = None;
    let mut plots = None;
    let mut arguments = arguments.into_iter().peekable();
    if arguments.next_if(|first| first == "count").is_some() {
        let row = arguments.next().ok_or("count needs a row and a size")?;
        let size = positive("count", arguments.next())?;
        return Ok(Request::Count { row, size });
    }
    if arguments.next_if(|first| first == "recount").is_some() {
        let page = arguments.next().ok_or("recount needs a page")?;
        return Ok(Request::Recount { page });
    }
    if arguments.next_if(|first| first == "sleepers").is_some() {
        let contender = arguments.next().ok_or("sleepers needs a contender")?.parse()?;
        let mut number = || positive("sleepers", arguments.next());
        return Ok(Request::Sleepers(Sleepers {
            contender,
            count: number()?,
            threads: number()?,
            lead: number()? as u64,
        }));
    }
    while let Some(argument) = arguments.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        // The next argument, which must be a value.
        let mut next = || arguments.next_if(|next| !next.starts_with('-') && find(next).is_none());
        match name {
            "plots" => plots = Some(next().ok_or("plots needs a directory")?),
            "--help" | "-h" | "help" => return Ok(Request::Help),
            "--list" => return Ok(Request::List),
            "--quick" => quick = true,
            "--rounds" => rounds = Some(positive(name, value.or_else(next))?),
            "--threads" => threads = positive(name, value.or_else(next))?,
            "--json" => json = Some(value.or_else(&mut next).map_or(Output::Stdout, Output::File)),
            "--markdown" => markdown = Some(value.or_else(&mut next).map_or(Output::Stdout, Output::File)),
            option if option.starts_with('-') => return Err(format!("there is no option {option}")),
            name => {
                let found =
                    find(name).ok_or_else(|| format!("there is no workload {name}; there are: all, {}", names()))?;
                selections.extend(found.iter().map(|workload| Selection {
                    workload,
                    case: name.contains('/').then(|| name.to_owned()),
                }));
            }
        }
    }
    let config = Config {
        threads,
        rounds: rounds.unwrap_or(if quick { 1 } else { 7 }),
        quick,
    };
    if let Some(directory) = plots {
        return match (selections.is_empty(), &json, &markdown) {
            (true, None, None) => Ok(Request::Plots { directory, config }),
            _ => Err("plots are made alone, or by --markdown".to_owned()),
        };
    }
    if selections.is_empty() {
        return Err(format!("name a workload: all, {}", names()));
    }
    if json == Some(Output::Stdout) && markdown == Some(Output::Stdout) {
        return Err("only one of --json and --markdown can go to standard output".to_owned());
    }
    Ok(Request::Run {
        selections,
        config,
        json,
        markdown,
    })
}

/// Returns the workloads of a name: a workload, one of its cases, or `all`.
fn find(name: &str) -> Option<&'static [Workload]> {
    if name == "all" {
        return Some(WORKLOADS);
    }
    let name = name.split_once('/').map_or(name, |(workload, _)| workload);
    let index = WORKLOADS.iter().position(|workload| workload.name == name)?;
    Some(&WORKLOADS[index..=index])
}

fn names() -> String {
    let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
    names.join(", ")
}

fn positive(option: &str, value: Option<String>) -> Result<usize, String> {
    let value = value.ok_or_else(|| format!("{option} needs a number"))?;
    let number = value.parse().ok().filter(|&number| number > 0);
    number.ok_or_else(|| format!("{option} needs a number above zero, not {value}"))
}

/// Returns the names of the workloads, one per line.
pub fn list() -> String {
    let mut text = String::new();
    for workload in WORKLOADS {
        let _ = writeln!(text, "  {:<8} {}", workload.name, workload.about);
    }
    text
}

pub fn help() -> String {
    format!(
        "\
Measures bowline against its peers, in one process and in turns.

usage: bowline-bench WORKLOAD[/CASE]... [OPTION]...
       bowline-bench plots DIRECTORY [OPTION]...
       bowline-bench count CASE SIZE
       bowline-bench recount PAGE
       bowline-bench compile [ROUNDS]   the seconds to compile chains of senders, some with a limit
       bowline-bench sleepers bowline|tokio COUNT THREADS LEAD

workloads:
{}  all      all of them

options:
  --rounds N         rounds that count, after one to warm up (7; with --quick, 1)
  --threads N        workers of every pool (the machine's cores)
  --quick            small sizes: shows that everything runs, judges nothing
  --json [FILE]      everything as JSON, to FILE or instead of the tables
  --markdown [FILE]  one table, between the marks of the page FILE or instead of the tables;
                     with FILE and `all`, also the plots, into plots/ beside it
  --list             the workloads
  --help             this

`count` runs only the library's side of a case, once, on one worker, and prints the number of units: see scripts/counts.
`recount` copies the counts from the table of counts of PAGE into its table of results; scripts/counts --page calls it.
`sleepers` runs COUNT children that sleep for LEAD milliseconds or a little longer, and prints the resident bytes and the
nanoseconds of CPU time of each; `-` if they did not all sleep in time.
",
        list()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    fn error(line: &str) -> String {
        parsed(line).err().unwrap()
    }

    #[test]
    fn workloads_and_options_come_in_any_order() {
        let Ok(Request::Run {
            selections,
            config,
            json,
            markdown,
        }) = parsed("hop --rounds 3 --json join/fib --threads=5 --markdown page/hop.md")
        else {
            panic!("not understood");
        };
        let names = |selection: &Selection| (selection.workload.name, selection.case.clone());
        let names: Vec<_> = selections.iter().map(names).collect();
        assert_eq!(names, [("hop", None), ("join", Some("join/fib".to_owned()))]);
        assert_eq!((config.rounds, config.threads, config.quick), (3, 5, false));
        assert_eq!(json, Some(Output::Stdout));
        assert_eq!(markdown, Some(Output::File("page/hop.md".to_owned())));
    }

    #[test]
    fn all_means_every_workload() {
        let Ok(Request::Run { selections, config, .. }) = parsed("all --quick") else {
            panic!("not understood");
        };
        assert_eq!(selections.len(), WORKLOADS.len());
        assert!(config.quick);
    }

    #[test]
    fn a_count_has_a_row_and_a_size() {
        let Ok(Request::Count { row, size }) = parsed("count join/fib 20") else {
            panic!("not understood");
        };
        assert_eq!((row.as_str(), size), ("join/fib", 20));
        assert!(error("count").contains("a row and a size"));
        assert!(error("count join/fib").contains("count needs a number"));
    }

    #[test]
    fn a_recount_has_a_page() {
        let Ok(Request::Recount { page }) = parsed("recount docs/performance.md") else {
            panic!("not understood");
        };
        assert_eq!(page, "docs/performance.md");
        assert!(error("recount").contains("needs a page"));
    }

    #[test]
    fn plots_have_a_directory_and_nothing_beside_them() {
        let Ok(Request::Plots { directory, config }) = parsed("plots docs/plots --quick") else {
            panic!("not understood");
        };
        assert_eq!((directory.as_str(), config.quick), ("docs/plots", true));
        assert!(error("plots").contains("needs a directory"));
        assert!(error("hop plots there").contains("alone"));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert!(error("hup").contains("no workload hup; there are: all, hop"));
        assert!(error("hop --fast").contains("no option --fast"));
        assert!(error("").contains("name a workload"));
        assert!(error("hop --rounds").contains("--rounds needs a number"));
        assert!(error("hop --rounds 0").contains("above zero, not 0"));
        assert!(error("hop --threads many").contains("not many"));
        assert!(error("hop --json --markdown").contains("only one"));
    }
}
