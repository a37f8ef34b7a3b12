//! The claim on the result of a single child.

use core::marker::PhantomData;

use super::join::{ChildJoin, Deliver};
use super::word::DONE;
use super::{Solo, SoloRef};
use crate::stop::Why;
use crate::sync::atomic::Ordering::Acquire;
use crate::task::frame::Polling;

/// The right to the result of a child. Dropped, nobody asks for it: one that is detached runs on, and any other is stopped,
/// and its parent waits for it.
pub(in crate::task) struct ChildClaim<T> {
    task: SoloRef,
    _value: PhantomData<fn() -> T>,
}

impl<T> ChildClaim<T> {
    /// The caller gives the claim a reference of the child, and there is no other claim.
    pub(super) fn new(task: SoloRef) -> Self {
        ChildClaim {
            task,
            _value: PhantomData,
        }
    }

    pub(in crate::task) fn task(&self) -> &SoloRef {
        &self.task
    }

    /// A sender of the result.
    pub(in crate::task) fn join<D: Deliver<T>>(&self) -> ChildJoin<T, D> {
        ChildJoin::new(self.task.clone())
    }
}

impl<T> Drop for ChildClaim<T> {
    fn drop(&mut self) {
        let solo = self.task.solo();
        let let_go = match solo.parent {
            None => solo.let_go(false),
            Some(parent) => {
                if !self.task.is_finished() {
                    self.task.cancel(Why::SCOPE_LEFT);
                }
                Polling::with_frame(parent, |polling| {
                    let Some(polling) = polling else {
                        // It stays tied, and the frame waits for it when its future is gone.
                        return solo.let_go(false);
                    };
                    // SAFETY: this is what the frame's poll is running. The await is counted here.
                    unsafe {
                        solo.untie();
                        polling.count_wait();
                        let counted = solo.let_go(true);
                        if counted {
                            // It was stopped, so there is nothing to be passed on. A scope that it was started in need not wait.
                            solo.unlink().run();
                        } else {
                            polling.uncount_wait();
                        }
                        counted
                    }
                })
            }
        };
        if !let_go && solo.joiner.load(Acquire) == DONE {
            // SAFETY: it has ended, and the result is ours. If it was taken, there is none.
            unsafe { Solo::drop_result(self.task.0) };
        }
    }
}
