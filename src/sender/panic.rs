#[cfg(feature = "std")]
mod with_std {
    use core::error::Error;
    use core::fmt;
    use std::any::Any;
    use std::borrow::ToOwned;
    use std::boxed::Box;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::string::String;

    /// The payload of a panic in user code, on its way to the consumer.
    ///
    /// A panic is the fourth completion, beside a value, an error and a stop. It passes every algorithm unchanged
    /// (`upon_error` and `upon_stopped` never see it). [`sync_wait`](crate::sync_wait) resumes it, after its siblings
    /// were stopped and have ended. Without the `std` feature the type is uninhabited.
    ///
    /// # What is caught, and what aborts
    ///
    /// A completion runs where no code can catch a panic: in a job that a thread took from a queue, while other threads
    /// use the operation. A panic there that is not of a closure or a future of yours aborts the process, with a
    /// message after the panic's own. Mostly it is a destructor's.
    ///
    /// | what panics | result |
    /// |---|---|
    /// | a closure, and the values that it owns or is given, while it runs | caught: the completion is the panic |
    /// | a future while it is polled, and its locals | caught: the completion is the panic |
    /// | the future of `from_future` when it is dropped | caught: the completion is the panic |
    /// | `connect` of a sender in a box, in `split`, `ensure_started`, `submit` or `start_detached` | caught: the completion is the panic |
    /// | the closure of a stop callback | caught, and reported by the panic hook |
    /// | the destructor of a sender, or of an operation, that was never started; that of the whole operation that `sync_wait` has waited for | unwinds from there |
    /// | the destructor of a value or an error that is dropped on the way: the first value of a `sequence`, the value of a loser of `when_any`, the value of a detached sender, an error that `into_option` or `retry` drops | the process aborts |
    /// | the destructor of a closure that is not called, and of the values that it owns | the process aborts |
    /// | the destructor of any other operation that has completed | the process aborts |
    /// | the destructor of a panic's payload that is dropped on the way | the process aborts |
    /// | a completion or the destructor of a receiver of your own, and its environment once the work has started; the `start` of an operation of your own | the process aborts |
    pub struct Panic(Box<dyn Any + Send>);

    // SAFETY: a shared reference gives access to the message only, which is text.
    unsafe impl Sync for Panic {}

    impl Panic {
        /// Wraps a payload, as [`std::panic::catch_unwind`] returns it.
        pub fn new(payload: Box<dyn Any + Send>) -> Self {
            Panic(payload)
        }

        /// Runs `f` and catches its panic.
        ///
        /// Algorithms call user code through this function. Without `std` it is a plain call.
        #[inline]
        pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Panic> {
            // State that `f` left half-done is owned by it, or used again only by the code that gets the panic.
            catch_unwind(AssertUnwindSafe(f)).map_err(Panic)
        }

        /// Resumes the panic.
        pub fn resume(self) -> ! {
            resume_unwind(self.0)
        }

        /// Returns the message, if the payload is text.
        pub fn message(&self) -> Option<&str> {
            if let Some(message) = self.0.downcast_ref::<&'static str>() {
                Some(message)
            } else {
                self.0.downcast_ref::<String>().map(String::as_str)
            }
        }

        /// Returns whether the payload is of this type.
        pub(crate) fn is<T: Any>(&self) -> bool {
            self.0.is::<T>()
        }

        /// Returns the payload.
        pub fn into_payload(self) -> Box<dyn Any + Send> {
            self.0
        }

        /// Drops the payload where a panic of its destructor could not be reported: that second payload is leaked.
        pub(crate) fn discard(self) {
            if let Err(second) = Panic::catch(|| drop(self)) {
                core::mem::forget(second);
            }
        }

        /// Makes a payload with the same message for another receiver, since a payload cannot be cloned.
        pub(crate) fn echo(&self) -> Panic {
            let message = self
                .message()
                .unwrap_or("a shared sender panicked with a payload that is not text");
            Panic(Box::new(message.to_owned()))
        }
    }

    /// Writes the message, if the payload is text.
    impl fmt::Display for Panic {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.message() {
                Some(message) => write!(f, "panicked: {message}"),
                None => f.write_str("panicked"),
            }
        }
    }

    impl Error for Panic {}

    impl fmt::Debug for Panic {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_tuple("Panic").field(&self.message().unwrap_or("..")).finish()
        }
    }
}

#[cfg(feature = "std")]
pub use with_std::Panic;

#[cfg(not(feature = "std"))]
mod without_std {
    use core::error::Error;
    use core::fmt;

    /// The payload of a panic in user code. Without the `std` feature no panic is caught, so the type is uninhabited.
    #[derive(Debug)]
    pub enum Panic {}

    impl Panic {
        /// Runs `f`. Without `std` no panic is caught.
        #[inline]
        pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Panic> {
            Ok(f())
        }

        /// Resumes a panic that cannot exist.
        pub fn resume(self) -> ! {
            match self {}
        }

        /// Drops a payload that cannot exist.
        pub(crate) fn discard(self) {
            match self {}
        }

        /// Returns the message of a payload that cannot exist.
        pub fn message(&self) -> Option<&str> {
            match *self {}
        }
    }

    impl fmt::Display for Panic {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            match *self {}
        }
    }

    impl Error for Panic {}
}

#[cfg(not(feature = "std"))]
pub use without_std::Panic;
