//! Measures bowline against its peers, in one process and in turns. `docs/performance.md` says what is measured.

mod arguments;
mod clock;
mod compile;
mod counted;
mod harness;
mod json;
mod machine;
mod pools;
mod report;
mod svg;
mod targets;
mod workloads;

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use arguments::{Output, Request, Selection};
use counted::Counts;
use harness::{Bench, Config, Measured};
use machine::Machine;
use report::Report;
use workloads::WORKLOADS;

fn main() -> ExitCode {
    if env::args().nth(1).as_deref() == Some("compile") {
        return exit(compile::run(env::args().nth(2).as_deref()));
    }
    let request = match arguments::parse(env::args().skip(1)) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("bowline-bench: {error}\ntry --help");
            return ExitCode::from(2);
        }
    };
    exit(carry_out(request))
}

fn exit(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bowline-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(request: Request) -> Result<(), String> {
    match request {
        Request::Help => print!("{}", arguments::help()),
        Request::List => print!("{}", arguments::list()),
        Request::Count { row, size } => {
            let (units, unit) = workloads::counts::run(&row, size)?;
            println!("{units} {unit}");
        }
        Request::Recount { page } => counted::recount_page(&page)?,
        Request::Sleepers(sleepers) => println!("{}", sleepers.measure()),
        Request::Plots { directory, config } => {
            workloads::plots::run(Path::new(&directory), config, &Machine::look())?;
        }
        Request::Run {
            selections,
            config,
            json,
            markdown,
        } => {
            let all = selections.len() == WORKLOADS.len();
            let report = Report {
                machine: Machine::look(),
                config,
                cases: measure(selections, config)?,
            };
            let mut tables = true;
            match json {
                Some(Output::Stdout) => {
                    tables = false;
                    println!("{}", report.json());
                }
                Some(Output::File(path)) => {
                    fs::write(&path, format!("{}\n", report.json())).map_err(|error| format!("{path}: {error}"))?;
                }
                None => {}
            }
            match markdown {
                Some(Output::Stdout) => {
                    tables = false;
                    print!("{}", report.markdown(&Counts::default()));
                }
                Some(Output::File(path)) => {
                    report::update_page(&path, &report)?;
                    if all {
                        let plots = Path::new(&path).with_file_name("plots");
                        workloads::plots::run(&plots, config, &report.machine)?;
                    }
                }
                None => {}
            }
            if tables {
                print!("{}", report.text());
            }
        }
    }
    Ok(())
}

fn measure(selections: Vec<Selection>, config: Config) -> Result<Vec<Measured>, String> {
    let mut cases = Vec::new();
    for Selection { workload, case } in selections {
        let mut bench = Bench::new(config, case.clone());
        (workload.run)(&mut bench)?;
        if let Some(case) = case.filter(|case| !bench.offered.contains(&case.as_str())) {
            return Err(format!(
                "there is no case {case}; there are: {}",
                bench.offered.join(", ")
            ));
        }
        for target in targets::TARGETS {
            if target.case.split('/').next() == Some(workload.name) {
                assert!(
                    bench.offered.contains(&target.case),
                    "there is a target for {}",
                    target.case
                );
            }
        }
        cases.extend(bench.measured);
    }
    Ok(cases)
}
