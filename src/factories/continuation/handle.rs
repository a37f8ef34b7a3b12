//! The handle of a continuation: how a callback resumes the operation that waits.

use core::convert::Infallible;
use core::fmt;
use core::mem::{self, ManuallyDrop};
use std::boxed::Box;

use super::block::{Completer, ContinuationBlock, Handler, Resumed, Resumption, call, discard};
use crate::sender::current;
use crate::sender::unwind::AbortOnUnwind;
use crate::sync::Arc;

/// A handle that resumes the operation of [`continuation()`], at most once: resuming takes it by value.
///
/// It may be kept, sent to other threads, and passed through C as a [pointer](Continuation::into_raw). Dropping it stops the
/// operation, and is [reported](crate::task::Report::ContinuationDropped).
///
/// [`continuation()`]: super::continuation
#[must_use = "dropping a continuation stops the operation that waits for it"]
pub struct Continuation<T, E = Infallible> {
    /// Taken when the continuation ends: its reference is released before the operation completes.
    block: ManuallyDrop<Arc<ContinuationBlock<T, E>>>,
}

impl<T, E> Continuation<T, E> {
    pub(super) fn new(block: Arc<ContinuationBlock<T, E>>) -> Self {
        Continuation {
            block: ManuallyDrop::new(block),
        }
    }

    /// Resumes with a value.
    ///
    /// # Errors
    ///
    /// Returns the value if the continuation is abandoned.
    pub fn resume(self, value: T) -> Result<(), T> {
        match self.end(Resumption::Value(value)) {
            Err(Resumption::Value(value)) => Err(value),
            _ => Ok(()),
        }
    }

    /// Resumes with an error.
    ///
    /// # Errors
    ///
    /// Returns the error if the continuation is abandoned.
    pub fn fail(self, error: E) -> Result<(), E> {
        match self.end(Resumption::Error(error)) {
            Err(Resumption::Error(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Resumes with a value or an error.
    ///
    /// # Errors
    ///
    /// Returns `result` if the continuation is abandoned.
    pub fn resume_with(self, result: Result<T, E>) -> Result<(), Result<T, E>> {
        match result {
            Ok(value) => self.resume(value).map_err(Ok),
            Err(error) => self.fail(error).map_err(Err),
        }
    }

    /// Stops the operation that waits, and reports nothing.
    pub fn stop(self) {
        // A stop that is refused carries nothing to return.
        let _ = self.end(Resumption::Stopped);
    }

    /// Returns whether the operation has completed without this continuation. It never becomes `false` again.
    pub fn is_abandoned(&self) -> bool {
        self.block.is_abandoned()
    }

    /// Sets a handler that is called when the operation is stopped, to end the work that was to call back.
    ///
    /// The handler is called at most once, on the thread that requests the stop, before the operation completes. No lock of this
    /// crate is held meanwhile. Where the continuation is abandoned already, `on_stop` calls the handler. A panic of the handler
    /// is caught. A new handler replaces the one before. Resuming the continuation drops the handler uncalled.
    ///
    /// A handler that owns the continuation itself keeps it from being dropped.
    pub fn on_stop(&self, handler: impl FnOnce() + Send + 'static) {
        let mut handler: Option<Handler> = Some(Box::new(handler));
        {
            let mut set = self.block.lock_handler();
            // Asked under the lock, which the thread that abandons the continuation takes after it has changed the state.
            if !self.is_abandoned() {
                mem::swap(&mut *set, &mut handler);
            } else {
                drop(set);
                call(handler.take());
            }
        }
        // The handler that was replaced is dropped outside of the lock.
        drop(handler);
    }

    /// Converts to a pointer, for interfaces that pass one on.
    ///
    /// [`from_raw`](Continuation::from_raw) converts back. Until then the operation is neither resumed nor stopped.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::{self, Continuation};
    /// use std::ffi::c_void;
    ///
    /// // A function of a library in C.
    /// extern "C" fn ask(answer: extern "C" fn(*mut c_void, i32), context: *mut c_void) {
    ///     answer(context, 42);
    /// }
    ///
    /// extern "C" fn answered(context: *mut c_void, answer: i32) {
    ///     // SAFETY: it was made below, and this is called once.
    ///     let continuation = unsafe { Continuation::<i32>::from_raw(context.cast()) };
    ///     let _ = continuation.resume(answer);
    /// }
    ///
    /// let answer = task::continuation(|continuation: Continuation<i32>| ask(answered, continuation.into_raw().cast()));
    /// assert_eq!(sync_wait(answer).unwrap(), 42);
    /// ```
    #[must_use = "the operation is not resumed before the pointer is converted back"]
    pub fn into_raw(self) -> *mut () {
        Arc::into_raw(self.into_block()).cast_mut().cast()
    }

    /// Converts a pointer back to the continuation.
    ///
    /// # Safety
    ///
    /// The pointer is from [`into_raw`](Continuation::into_raw) of a continuation of the same type, and is used once.
    pub unsafe fn from_raw(pointer: *mut ()) -> Self {
        // SAFETY: the pointer is that of an `Arc` of this block type, by the contract, and its reference is taken once.
        Continuation::new(unsafe { Arc::from_raw(pointer.cast_const().cast()) })
    }

    fn into_block(self) -> Arc<ContinuationBlock<T, E>> {
        // SAFETY: the block is taken once: the continuation is not dropped.
        unsafe { ManuallyDrop::take(&mut ManuallyDrop::new(self).block) }
    }

    /// Ends the continuation, and runs what that resumes. Returns the resumption if the continuation is abandoned.
    fn end(self, resumption: Resumption<T, E>) -> Result<(), Resumption<T, E>> {
        end(self.into_block(), resumption)
    }
}

impl<T, E> Drop for Continuation<T, E> {
    fn drop(&mut self) {
        // SAFETY: the block is taken once: `into_block` forgets the continuation.
        let block = unsafe { ManuallyDrop::take(&mut self.block) };
        // An abandoned continuation has nothing to report.
        let _ = end(block, Resumption::Dropped);
    }
}

fn end<T, E>(block: Arc<ContinuationBlock<T, E>>, resumption: Resumption<T, E>) -> Result<(), Resumption<T, E>> {
    let (resumption, Completer { operation, complete }) = match block.resume(resumption)? {
        Resumed::ByStart => return Ok(()),
        Resumed::Here(resumption, completer) => (resumption, completer),
    };
    discard(block.take_handler());
    let completion = resumption.conclude(block.location());
    drop(block);
    // The caller may hold a lock, so a task that is resumed here is queued, even on a thread where it could run.
    let _hidden = current::Hidden::aside();
    // The caller cannot complete the operation again, if a destructor inside of the completion unwinds.
    let guard = AbortOnUnwind::new();
    // SAFETY: the operation waits, and `resume` gave the right to complete it to this call.
    let resumed = unsafe { complete(operation, completion) };
    guard.defuse();
    resumed.run();
    Ok(())
}

impl<T, E> fmt::Debug for Continuation<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Continuation")
            .field("is_abandoned", &self.is_abandoned())
            .finish()
    }
}
