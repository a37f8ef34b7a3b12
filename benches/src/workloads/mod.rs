//! The workloads, one file each.

mod boxes;
mod bulk;
pub mod counts;
mod fanout;
mod groups;
mod hop;
mod idle;
mod join;
pub mod plots;
pub mod sleepers;
mod tasks;
mod timers;
mod wake;
mod work;

use crate::harness::Bench;

/// A workload, which is a subcommand.
pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    /// Offers its cases to the bench, one after the other.
    pub run: fn(&mut Bench) -> Result<(), String>,
}

const fn workload(name: &'static str, about: &'static str, run: fn(&mut Bench) -> Result<(), String>) -> Workload {
    Workload { name, about, run }
}

/// All workloads, in the order of `all`.
pub const WORKLOADS: &[Workload] = &[
    workload(
        "hop",
        "getting onto the pool, from one of its workers and from outside",
        hop::run,
    ),
    workload("wake", "waking a pool that sleeps", wake::run),
    workload("join", "fork and join without a cut-off", join::run),
    workload("fanout", "many jobs pushed from one worker", fanout::run),
    workload("bulk", "a loop over many indices, even and uneven", bulk::run),
    workload("timers", "a hundred thousand and a million timers", timers::run),
    workload(
        "tasks",
        "coroutines: awaiting senders and tasks, hops, depth",
        tasks::run,
    ),
    workload(
        "groups",
        "task groups: children, trees, cancelling, size, sleeping, task-local values, handlers, escalation",
        groups::run,
    ),
    workload("boxes", "a hop inside many boxed senders", boxes::run),
    workload("idle", "what a pool with nothing to do uses", idle::run),
];
