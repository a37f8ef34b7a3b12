//! Cost over size: the same work at several sizes, for the plots of `docs/performance.md`.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use bowline::scheduler::Timer;

use super::timers::Timers;
use super::{boxes, groups, tasks, timers};
use crate::clock::Neighbours;
use crate::harness::{Case, Config, Metric};
use crate::machine::Machine;
use crate::pools;
use crate::report::UNSTEADY;
use crate::svg::{Line, Plot};

const TIME: &[Metric] = &[Metric::new("time", "ns")];

/// Measures all plots, and writes each to a file of the directory.
pub fn run(directory: &Path, config: Config, machine: &Machine) -> Result<(), String> {
    let config = Config {
        rounds: config.rounds.min(3),
        ..config
    };
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let plots = [children, depth, many_timers, workers];
    for plot in plots {
        let neighbours = Neighbours::watch();
        let mut plot = plot(&config)?;
        let sizes = if config.quick { ", small sizes" } else { "" };
        plot.note = format!("{} ({} cores), {}{sizes}", machine.cpu, machine.cores, plot.note);
        if let Some(cores) = neighbours.cores().filter(|cores| *cores >= UNSTEADY) {
            let _ = write!(plot.note, "; other processes used {cores:.1} cores meanwhile");
        }
        let path = directory.join(plot.name).with_extension("svg");
        fs::write(&path, plot.svg()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Measures a case at each size. The value is the median of the case's first metric.
fn lines<'a>(config: &Config, sizes: &[usize], case: impl Fn(usize) -> Case<'a>) -> Result<Vec<Line>, String> {
    let mut lines: Vec<Line> = Vec::new();
    for &size in sizes {
        eprint!("{size}: ");
        let measured = case(size).measure(config)?;
        for entry in measured.entries {
            let Some(summary) = &entry.values[0] else { continue };
            let point = (size as f64, summary.median);
            match lines.iter_mut().find(|line| line.name == entry.name) {
                Some(line) => line.points.push(point),
                None => lines.push(Line {
                    name: entry.name,
                    points: vec![point],
                }),
            }
        }
    }
    Ok(lines)
}

/// Returns the powers of ten from `first` on: up to `last`, or two of them at small sizes.
fn powers(config: &Config, first: usize, last: usize) -> Vec<usize> {
    let last = config.size(last, first * 10);
    let next = |size: &usize| Some(size * 10);
    std::iter::successors(Some(first), next)
        .take_while(|size| *size <= last)
        .collect()
}

fn children(config: &Config) -> Result<Plot, String> {
    let threads = config.threads;
    let bowline = pools::bowline(threads);
    let tokio = pools::tokio(threads);
    let least = config.size(200_000, 1_000) as u64;
    let lines = lines(config, &powers(config, 10, 1_000_000), |size| {
        let size = size as u64;
        let many = size.max(least);
        let (bowline, tokio) = (&bowline, &tokio);
        Case::new("plots/children", "Groups of several sizes.", groups::CHILDREN)
            .bowline(move || groups::in_groups_of(bowline, size, many))
            .peer("tokio's JoinSet", move || groups::in_sets_of(tokio, size, many))
            .shown("smol's static executor", move || {
                groups::in_batches_of(threads, size, many)
            })
    })?;
    Ok(Plot {
        name: "children",
        title: "A child of a task group: spawned, run and joined",
        across: "children in the group",
        upward: "ns per child",
        note: format!("{threads} workers"),
        lines,
    })
}

fn depth(config: &Config) -> Result<Plot, String> {
    let bowline = pools::bowline(config.threads);
    let lines = lines(config, &powers(config, 1, 10_000), |depth| {
        let bowline = &bowline;
        let hops = config.size(20_000, 500);
        let few = hops / 20;
        Case::new("plots/depth", "Wake-ups at several depths.", TIME)
            .bowline(move || tasks::wakes_at(bowline, depth, hops).checked(0))
            .shown("bowline, boxed", move || {
                boxes::hops_inside(bowline, depth, few).checked(0)
            })
            .shown("boxed futures", move || {
                tasks::wakes_of_boxes(bowline, depth, few).checked(0)
            })
    })?;
    Ok(Plot {
        name: "depth",
        title: "Waking the innermost of nested tasks, senders or futures",
        across: "depth",
        upward: "ns per wake-up",
        note: format!("{} workers", config.threads),
        lines,
    })
}

fn many_timers(config: &Config) -> Result<Plot, String> {
    let timer = Timer::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("tokio starts");
    let lines = lines(config, &powers(config, 100, 1_000_000), |count| {
        let (timer, runtime) = (&timer, &runtime);
        let timers = Timers {
            count,
            // Enough to set all of them before the first is due.
            lead: Duration::from_millis(20) + count as u32 * Duration::from_micros(2),
            window: Duration::from_millis(20) + count as u32 * Duration::from_micros(1),
        };
        Case::new("plots/timers", "Timers in several numbers.", timers::METRICS)
            .bowline(move || timers.bowline(timer))
            .peer("tokio", move || timers.tokio(runtime))
    })?;
    Ok(Plot {
        name: "timers",
        title: "A timer: set, and fired when it is due",
        across: "timers at once",
        upward: "CPU ns per timer",
        note: "one thread for the timers".to_owned(),
        lines,
    })
}

fn workers(config: &Config) -> Result<Plot, String> {
    let leaves = config.size(100_000, 1_000) as u64;
    let sizes: &[usize] = if config.quick { &[1, 2] } else { &[1, 2, 4, 8] };
    let lines = lines(config, sizes, |workers| {
        let bowline = pools::bowline(workers);
        let tokio = pools::tokio(workers);
        let rayon = pools::rayon(workers);
        Case::new("plots/workers", "A tree on several workers.", groups::LEAVES)
            .bowline(move || groups::skynet_in_bowline(&bowline, leaves))
            .peer("tokio", move || groups::skynet_in_tokio(&tokio, leaves))
            .shown("rayon's scope", move || groups::skynet_in_rayon(&rayon, leaves))
    })?;
    Ok(Plot {
        name: "workers",
        title: "A tree of tasks, ten to a node, 100 000 leaves",
        across: "workers",
        upward: "ns per leaf",
        note: "more workers than cores take turns".to_owned(),
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plot_is_written() {
        let config = Config {
            threads: 2,
            rounds: 1,
            quick: true,
        };
        let directory = std::env::temp_dir().join(format!("bowline-bench-plots-{}", std::process::id()));
        run(&directory, config, &Machine::look()).unwrap();
        for name in ["children", "depth", "timers", "workers"] {
            let svg = fs::read_to_string(directory.join(name).with_extension("svg")).unwrap();
            assert!(svg.contains("bowline"), "{name}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
