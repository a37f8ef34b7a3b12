//! The library's side of one case, alone and at a given size: for a program that counts instructions.
//!
//! `scripts/counts` runs each row at two sizes. The difference leaves out the start of the process and of the pool.

use std::hint::black_box;
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;

use super::sleepers::{Contender, Sleepers};
use super::timers::Timers;
use super::{boxes, groups, hop, join, tasks};
use crate::pools;

/// A row of the table of counts.
pub struct Count {
    /// The name of the case, or of the part of it that is counted.
    pub row: &'static str,
    /// The thing whose cost is the result.
    pub unit: &'static str,
    /// Runs the work at a size, on a pool of one worker. Returns the number of units.
    run: fn(&ThreadPool, usize) -> usize,
}

const fn count(row: &'static str, unit: &'static str, run: fn(&ThreadPool, usize) -> usize) -> Count {
    Count { row, unit, run }
}

/// All rows.
pub const COUNTS: &[Count] = &[
    count("groups/spawn", "child", |pool, size| {
        groups::spawn_in_bowline(pool, size as u64);
        size
    }),
    count("groups/skynet", "leaf", |pool, size| {
        groups::skynet_in_bowline(pool, size as u64);
        size
    }),
    count("groups/cancel", "child, spawned and cancelled", |pool, size| {
        groups::cancel_in_bowline(pool, size as u64);
        size
    }),
    count("groups/local", "read", |_, size| {
        groups::local_in_bowline(size);
        size
    }),
    count("groups/handler", "handler", |_, size| {
        groups::handlers_in_bowline(size);
        size
    }),
    count("tasks/ready", "await", |_, size| {
        tasks::ready_in_bowline(size);
        size
    }),
    count("tasks/child", "await", |_, size| {
        tasks::children_of_bowline(size);
        size
    }),
    count("tasks/fib", "node", |pool, size| {
        tasks::fib_in_bowline(pool, size as u32);
        tasks::calls(size as u32)
    }),
    count("tasks/hop", "await", |pool, size| {
        tasks::hops_of_bowline(pool, size);
        size
    }),
    count("tasks/depth", "await, 1 000 deep", |pool, size| {
        tasks::wakes_at(pool, 1_000, size);
        size
    }),
    count("tasks/recursion", "level", |_, size| {
        black_box(sync_wait(tasks::countdown(size)).unwrap());
        size
    }),
    count("tasks/ping-pong", "round trip", |pool, size| {
        tasks::ping_pong_in_bowline(pool, size);
        size
    }),
    count("hop/inside", "hop", |pool, size| {
        hop::loops_of_bowline(pool, 1, size);
        size
    }),
    count("hop/inside-many", "hop, of four loops", |pool, size| {
        hop::loops_of_bowline(pool, 4, size);
        4 * size
    }),
    count("hop/outside", "job", |pool, size| {
        hop::batches_of_bowline(pool, 1, size);
        size
    }),
    count("boxes/deep", "hop, 1 000 deep", |pool, size| {
        boxes::hops_inside(pool, 1_000, size);
        size
    }),
    count("join/fib", "node", |pool, size| {
        black_box(pool.install(|| join::fib_bowline(black_box(size as u64))));
        join::nodes(size as u64)
    }),
    // All are set before the first is due, and due before the loop has woken up.
    count("timers/run-loop", "timer", |_, size| {
        let timers = Timers {
            count: size,
            lead: Duration::from_secs(2),
            window: Duration::from_micros(100),
        };
        timers.bowline_on_a_run_loop();
        size
    }),
    count("groups/sleep", "child, spawned, asleep and joined", |pool, size| {
        let sleepers = Sleepers {
            contender: Contender::Bowline,
            count: size,
            threads: 1,
            lead: 2_000,
        };
        sleepers.bowline(pool);
        size
    }),
    count("inspect/hop", "await of `tasks/hop`, inspected", |pool, size| {
        tasks::hops_of_bowline(pool, size);
        size
    }),
    count("inspect/spawn", "child of `groups/spawn`, inspected", |pool, size| {
        groups::spawn_in_bowline(pool, size as u64);
        size
    }),
    count(
        "inspect/instrument",
        "await of `tasks/hop`, with an instrument",
        |pool, size| {
            observe();
            tasks::hops_of_bowline(pool, size);
            size
        },
    ),
];

/// The beginning of the names of rows that count the cost of inspection, so they need the feature `inspect`.
const INSPECTED: &str = "inspect/";

/// Sets an instrument that does nothing.
fn observe() {
    #[cfg(feature = "inspect")]
    {
        struct Deaf;
        impl bowline::task::Instrument for Deaf {}
        // A test may have set it.
        _ = bowline::task::set_instrument(Deaf);
    }
}

/// Runs one row once. Returns the number of units and the name of one.
pub fn run(row: &str, size: usize) -> Result<(usize, &'static str), String> {
    let found = COUNTS.iter().find(|count| count.row == row).ok_or_else(|| {
        let rows: Vec<&str> = COUNTS.iter().map(|count| count.row).collect();
        format!("nothing is counted for {row}; there are: {}", rows.join(", "))
    })?;
    // The tests only ask whether the rows run.
    if row.starts_with(INSPECTED) && !cfg!(any(feature = "inspect", test)) {
        return Err(format!(
            "{row} counts the cost of inspection: build with `--features inspect`"
        ));
    }
    let pool = pools::bowline(1);
    Ok(((found.run)(&pool, size), found.unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_runs_and_says_how_many_units_it_ran() {
        for count in COUNTS {
            let (few, _) = run(count.row, 10).unwrap();
            assert!(few >= 10, "{}: {few} units", count.row);
        }
    }

    #[test]
    fn a_row_that_does_not_exist_is_named() {
        assert!(
            run("groups/none", 1)
                .err()
                .unwrap()
                .contains("nothing is counted for groups/none")
        );
    }

    #[test]
    fn every_row_has_a_limit_and_every_limit_a_row() {
        let limits = include_str!("../../../scripts/counts.limits");
        let lines = limits.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let limited: Vec<&str> = lines.filter_map(|line| line.split_whitespace().next()).collect();
        let rows: Vec<&str> = COUNTS.iter().map(|count| count.row).collect();
        assert_eq!(limited, rows);
    }
}
