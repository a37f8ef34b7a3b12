//! `TaskScheduler`: the last handle of a shared scheduler destroys it.

use bowline::Identity;
use bowline::prelude::*;
use bowline::scheduler::{InlineSchedule, InlineScheduler, TaskScheduler};

use crate::support::{Watched, World, explore};

/// A scheduler that does not fit into words, with a member whose reads and drop are watched.
struct Large(Watched, [usize; 3]);

impl Clone for Large {
    fn clone(&self) -> Self {
        Large(self.0.clone(), self.1)
    }
}

impl PartialEq for Large {
    fn eq(&self, other: &Self) -> bool {
        self.0.read() == other.0.read()
    }
}

impl Scheduler for Large {
    type Schedule = InlineSchedule;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> InlineSchedule {
        InlineScheduler.schedule()
    }

    fn identity(&self) -> Identity {
        Identity::of_number(self.0.read() as u64)
    }
}

/// Covers either of two threads dropping the last handle. Uses by the other one happen before the destruction.
#[test]
fn the_last_handle_destroys_what_is_shared() {
    explore(3, &["here", "there"], |seen| {
        let world = World::default();
        let erased = TaskScheduler::new(Large(world.census.value(7), [0; 3]));
        let last_there = loom::sync::Arc::new(loom::sync::atomic::AtomicBool::new(false));
        world.threads.spawn({
            let (erased, census, last_there) = (erased.clone(), world.census.clone(), last_there.clone());
            move || {
                let copy = erased.clone();
                drop(erased);
                assert!(copy == copy.clone());
                drop(copy);
                last_there.store(census.alive() == 0, std::sync::atomic::Ordering::Relaxed);
            }
        });
        assert!(erased == erased.clone());
        drop(erased);
        let last_here = world.census.alive() == 0;
        world.end();
        if last_there.load(std::sync::atomic::Ordering::Relaxed) && !last_here {
            seen.note("there");
        } else if last_here && !last_there.load(std::sync::atomic::Ordering::Relaxed) {
            seen.note("here");
        }
    });
}
