//! Measures the compiler: the seconds that chains of senders add to the build of an empty program.
//!
//! The programs are made in a scratch package under the target directory, which depends on the library by its path. They
//! are built in the dev profile of cargo's defaults, without incremental compilation, after the dependencies. So a build
//! is one run of the compiler and one of the linker.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

/// The chains: a name, the steps in turn, and the lengths that are built, some with a limit.
const CHAINS: [Chain; 3] = [
    Chain {
        name: "then",
        steps: &[THEN],
        lengths: &[(16, None), (32, None), (64, None)],
    },
    Chain {
        name: "let_value",
        steps: &[LET_VALUE],
        lengths: &[(16, None), (24, None), (32, None), (48, Some(2.0))],
    },
    Chain {
        name: "mixed",
        steps: &[
            THEN,
            LET_VALUE,
            ".continues_on(pool.scheduler())",
            ".finally(just(()))",
            THEN,
            LET_VALUE,
            ".continues_on(InlineScheduler)",
            ".finally(just(()))",
        ],
        lengths: &[(10, None), (20, None), (30, Some(1.0)), (40, None), (64, Some(2.0))],
    },
];

/// The factor by which a limit may be missed without an error, since other load makes compilers slower, too.
const TOLERANCE: f64 = 1.5;

const EMPTY: &str = "fn main() {}\n";
const THEN: &str = ".then(|x| x + 1)";
const LET_VALUE: &str = ".let_value(|x| just(x + 1))";

struct Chain {
    name: &'static str,
    steps: &'static [&'static str],
    /// The numbers of steps, each with the limit in seconds, if it has one.
    lengths: &'static [(usize, Option<f64>)],
}

impl Chain {
    fn program(&self, length: usize) -> String {
        let mut chain = String::from("just(0_u64)");
        for step in self.steps.iter().cycle().take(length) {
            let _ = write!(chain, "\n        {step}");
        }
        format!(
            "\
#![allow(unused)]
use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;

fn main() {{
    let pool = ThreadPool::new(1);
    let chain = {chain};
    println!(\"{{}}\", sync_wait(chain).unwrap());
}}
"
        )
    }
}

/// Builds every chain a few times, and prints the smallest time of each, less that of an empty program. Fails if a chain does not compile,
/// or takes [`TOLERANCE`] times as long as its limit.
pub fn run(rounds: Option<&str>) -> Result<(), String> {
    let rounds = match rounds.map(str::parse) {
        None => 3,
        Some(Ok(rounds)) if rounds > 0 => rounds,
        Some(_) => return Err("usage: bowline-bench compile [ROUNDS]".to_owned()),
    };
    let scratch = Scratch::new()?;
    // The first build has the dependencies in it.
    scratch.build(EMPTY, 1)?;
    let empty = scratch
        .build(EMPTY, rounds)?
        .ok_or("an empty program does not compile")?;
    println!("an empty program: {:.2} s", empty.as_secs_f64());
    println!(
        "{:<10} {:>6} {:>10} {:>12}  limit",
        "chain", "steps", "s over it", "ms per step"
    );
    let mut failed = Vec::new();
    for chain in &CHAINS {
        for &(length, limit) in chain.lengths {
            let Some(time) = scratch.build(&chain.program(length), rounds)? else {
                println!("{:<10} {length:>6} does not compile", chain.name);
                failed.push(format!("{length} steps of {} do not compile", chain.name));
                continue;
            };
            let seconds = time.saturating_sub(empty).as_secs_f64();
            let per_step = seconds * 1e3 / length as f64;
            let verdict = limit.map_or(String::new(), |limit| {
                format!("  ≤ {limit} s, {}", word(seconds, limit))
            });
            println!(
                "{:<10} {length:>6} {seconds:>10.2} {per_step:>12.1}{verdict}",
                chain.name
            );
            if let Some(limit) = limit.filter(|limit| seconds > TOLERANCE * limit) {
                failed.push(format!(
                    "{length} steps of {} take more than {TOLERANCE} times the limit of {limit} s",
                    chain.name
                ));
            }
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("; ")),
    }
}

fn word(seconds: f64, limit: f64) -> &'static str {
    if seconds <= limit { "met" } else { "missed" }
}

/// A package of one program, under the target directory.
struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    fn new() -> Result<Self, String> {
        let library = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .ok_or("the library is not beside its benchmarks")?;
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| library.join("target"), PathBuf::from);
        let scratch = Scratch {
            folder: target.join("compile"),
        };
        scratch.write(
            "Cargo.toml",
            &format!(
                "\
[package]
name = \"chains\"
version = \"0.0.0\"
edition = \"2024\"

[dependencies]
bowline = {{ path = {library:?} }}

[workspace]

[profile.dev]
incremental = false
"
            ),
        )?;
        // The versions of the dependencies that this program was built with, so that none is looked for.
        let lock = fs::read_to_string(library.join("Cargo.lock")).map_err(|error| format!("Cargo.lock: {error}"))?;
        scratch.write("Cargo.lock", &lock)?;
        Ok(scratch)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join(name);
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Builds a program, and returns the smallest time, or `None` where it does not compile.
    fn build(&self, program: &str, rounds: usize) -> Result<Option<Duration>, String> {
        let mut least = None;
        for _ in 0..rounds {
            // Written anew, so that cargo builds it again.
            self.write("src/main.rs", program)?;
            let begin = Instant::now();
            let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
                .args(["build", "--quiet", "--target-dir", "target"])
                .env_remove("CARGO_TARGET_DIR")
                .env_remove("RUSTFLAGS")
                .current_dir(&self.folder)
                .output()
                .map_err(|error| format!("cargo: {error}"))?;
            let time = begin.elapsed();
            if !built.status.success() {
                let message = String::from_utf8_lossy(&built.stderr);
                let line = message
                    .lines()
                    .find(|line| line.starts_with("error"))
                    .unwrap_or_default();
                eprintln!("{line}");
                return Ok(None);
            }
            least = Some(least.map_or(time, |least: Duration| least.min(time)));
        }
        Ok(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_names_the_limits() {
        let book = include_str!("../../docs/algorithms.md");
        for chain in &CHAINS {
            for (length, limit) in chain.lengths {
                if let Some(limit) = limit {
                    let steps = match chain.name {
                        "mixed" => "mixed steps".to_owned(),
                        name => format!("`{name}`"),
                    };
                    let row = format!("| {length} {steps} | ≤ {limit} s |");
                    assert!(book.contains(&row), "not in docs/algorithms.md: {row}");
                }
            }
        }
    }
}
