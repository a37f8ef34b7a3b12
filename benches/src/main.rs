//! Measures bowline against its peers, in one process and in turns. `docs/performance.md` says what is measured.

mod arguments;
mod clock;
mod harness;
mod json;
mod machine;
mod pools;
mod report;
mod targets;
mod workloads;

use std::process::ExitCode;
use std::{env, fs};

use arguments::{Output, Request};
use harness::{Config, Measured};
use machine::Machine;
use report::Report;
use workloads::Workload;

fn main() -> ExitCode {
    let request = match arguments::parse(env::args().skip(1)) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("bowline-bench: {error}\ntry --help");
            return ExitCode::from(2);
        }
    };
    match carry_out(request) {
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
        Request::Run {
            workloads,
            config,
            json,
            markdown,
        } => {
            let report = Report {
                machine: Machine::look(),
                config,
                cases: measure(&workloads, &config)?,
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
                    print!("{}", report.markdown());
                }
                Some(Output::File(path)) => report::update_page(&path, &report.markdown())?,
                None => {}
            }
            if tables {
                print!("{}", report.text());
            }
        }
    }
    Ok(())
}

fn measure(workloads: &[&Workload], config: &Config) -> Result<Vec<Measured>, String> {
    let mut cases = Vec::new();
    for workload in workloads {
        let measured = (workload.run)(config)?;
        let about_it = |target: &&targets::Target| target.case.split('/').next() == Some(workload.name);
        for target in targets::TARGETS.iter().filter(about_it) {
            let case = measured.iter().find(|case| case.name == target.case);
            let metric = case.and_then(|case| case.metrics.iter().find(|metric| metric.name == target.metric));
            assert!(
                metric.is_some(),
                "{} has no {}, for which there is a target",
                target.case,
                target.metric
            );
        }
        cases.extend(measured);
    }
    Ok(cases)
}
