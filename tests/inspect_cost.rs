//! What inspection allocates: a record for each task, and nothing for its events. Alone in its process, which has one instrument.
#![cfg(feature = "inspect")]

mod common;

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::{self, Instrument, TaskRef};
use common::CrewAllocations;

const CHILDREN: usize = 1000;

/// Looks at the tasks, which costs nothing but time.
struct Looks;

impl Instrument for Looks {
    fn spawned(&self, task: &TaskRef) {
        assert!(!task.is_finished());
    }

    fn polled(&self, task: &TaskRef) {
        assert!(!task.is_cancelled());
    }
}

#[test]
fn an_instrument_that_is_not_set_allocates_nothing() {
    let allocations = CrewAllocations::new();
    let pool = ThreadPool::builder()
        .threads(1)
        .on_start(move |_| allocations.join())
        .build()
        .unwrap();
    let place = pool.scheduler();
    // The allocations of a task that is resumed a thousand times, after the first ones of its thread.
    let resumed = || {
        let work = Task::new(async move {
            let mut before = 0;
            for round in 0..CHILDREN + 2 {
                if round == 2 {
                    before = allocations.so_far();
                }
                place.schedule().await;
            }
            allocations.so_far() - before
        });
        sync_wait(starts_on(place, work)).unwrap()
    };
    // The allocations for each child that is spawned, suspended and resumed.
    let spawned = || {
        let work = Task::new(async move {
            let mut made = [0; 2];
            for made in &mut made {
                let before = allocations.so_far();
                task::group(async move |group| {
                    for _ in 0..CHILDREN {
                        group.spawn(async move { place.schedule().await });
                    }
                })
                .await;
                *made = allocations.so_far() - before;
            }
            made[1] as f64 / CHILDREN as f64
        });
        sync_wait(starts_on(place, work)).unwrap()
    };
    assert_eq!(resumed(), 0);
    let each = spawned();
    assert!((1.0..1.1).contains(&each), "a record, and no more: {each}");

    task::set_instrument(Looks).unwrap();
    assert_eq!(resumed(), 0);
    let each = spawned();
    assert!((1.0..1.1).contains(&each), "the same with an instrument: {each}");
}
