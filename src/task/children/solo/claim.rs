//! The claim on the result of a single child.

use core::marker::PhantomData;

use super::join::{ChildJoin, Deliver};
use super::word::DONE;
use super::{Solo, SoloRef};
use crate::stop::Why;
use crate::sync::atomic::Ordering::Acquire;
use crate::task::frame::Polling;

/// The right to the result of a child. After its drop a detached child continues; any other child is stopped, and its parent waits
/// for it.
pub(in crate::task) struct ChildClaim<T> {
    task: SoloRef,
    _value: PhantomData<fn() -> T>,
}

impl<T> ChildClaim<T> {
    /// Creates the one claim of a child.
    pub(super) fn new(task: SoloRef) -> Self {
        ChildClaim {
            task,
            _value: PhantomData,
        }
    }

    pub(in crate::task) fn task(&self) -> &SoloRef {
        &self.task
    }

    /// Returns a sender of the result.
    pub(in crate::task) fn join<D: Deliver<T>>(&self) -> ChildJoin<T, D> {
        ChildJoin::new(self.task.clone())
    }
}

impl<T> Drop for ChildClaim<T> {
    fn drop(&mut self) {
        let solo = self.task.solo();
        let is_disclaimed = match solo.branch.frame {
            None => solo.disclaim(false),
            Some(parent) => {
                if !self.task.is_finished() {
                    self.task.cancel(Why::SCOPE_LEFT);
                }
                Polling::with_frame(parent, |polling| {
                    let Some(polling) = polling else {
                        // Another thread: the child stays tied, and the frame waits for it when the frame's future is dropped.
                        return solo.disclaim(false);
                    };
                    // SAFETY: this thread polls the parent. The await is counted before the end can release it.
                    unsafe {
                        solo.untie();
                        polling.count_wait();
                        let counted = solo.disclaim(true);
                        if counted {
                            // The child was stopped, so no later stop matters. Its scope need not wait for it.
                            solo.unlink().run();
                        } else {
                            polling.uncount_wait();
                        }
                        counted
                    }
                })
            }
        };
        if !is_disclaimed && solo.joiner.load(Acquire) == DONE {
            // SAFETY: `DONE` says that the child has ended, and that the claim owns the result.
            unsafe { Solo::drop_result(self.task.0) };
        }
    }
}
