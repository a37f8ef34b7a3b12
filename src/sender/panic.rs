#[cfg(feature = "std")]
mod with_std {
    use core::error::Error;
    use core::fmt;
    use std::any::Any;
    use std::borrow::ToOwned;
    use std::boxed::Box;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::string::String;

    /// The payload of a panic in user code, on its way to where the work is joined.
    ///
    /// A panic is the fourth way to complete, beside a value, an error and a stop. It passes every algorithm untouched
    /// (`upon_error` and `upon_stopped` never see it) and comes out of [`sync_wait`](crate::sync_wait) by unwinding,
    /// after everything beside it was stopped and has ended. Without the `std` feature the type is uninhabited.
    ///
    /// # What is caught, and what aborts
    ///
    /// A completion runs where nothing can catch a panic: in a job that a thread took from a queue, while other threads go
    /// on with the rest of the operation. Whatever panics there and is not a closure or a future of yours ends the process,
    /// with a message that follows the panic's own. Mostly that is a destructor.
    ///
    /// | what panics | what becomes of it |
    /// |---|---|
    /// | a closure, and what it owns or is given, while it runs | caught: the completion is the panic |
    /// | a future while it is polled, and its locals | caught: the completion is the panic |
    /// | the future of `from_future` when it is dropped | caught: the completion is the panic |
    /// | `connect` of what is in a box, in `split`, `ensure_started`, `submit` or `start_detached` | caught: the completion is the panic |
    /// | the closure of a stop callback | caught, and reported by the panic hook |
    /// | the destructor of a sender, or of an operation, that was never started; that of the whole operation that `sync_wait` has waited for | unwinds from there, as anywhere |
    /// | the destructor of a value or an error that nothing takes: the first value of a `sequence`, what a loser of `when_any` gives, the value of a detached sender, an error that `into_option` or `retry` drops | the process aborts |
    /// | the destructor of a closure that is not called, since the work completes otherwise, and of what that closure owns | the process aborts |
    /// | the destructor of any other operation that has completed | the process aborts |
    /// | the destructor of a panic's payload that nothing takes | the process aborts |
    /// | a completion or the destructor of a receiver of your own, and its environment once the work has started; the `start` of an operation of your own | the process aborts |
    pub struct Panic(Box<dyn Any + Send>);

    // SAFETY: of a shared payload nothing can be seen but its message, and text may be shared.
    unsafe impl Sync for Panic {}

    impl Panic {
        /// Wraps a payload, as [`std::panic::catch_unwind`] returns it.
        pub fn new(payload: Box<dyn Any + Send>) -> Self {
            Panic(payload)
        }

        /// Runs `f` and catches its panic.
        ///
        /// This is how an algorithm calls user code: without `std` it is a plain call.
        #[inline]
        pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Panic> {
            // Whatever `f` left half-done is either owned by it or reached again only by the code that gets the panic.
            catch_unwind(AssertUnwindSafe(f)).map_err(Panic)
        }

        /// Goes on unwinding with the payload.
        pub fn resume(self) -> ! {
            resume_unwind(self.0)
        }

        /// The message, where the payload is one.
        pub fn message(&self) -> Option<&str> {
            if let Some(message) = self.0.downcast_ref::<&'static str>() {
                Some(message)
            } else {
                self.0.downcast_ref::<String>().map(String::as_str)
            }
        }

        /// Whether the payload is of this type.
        pub(crate) fn is<T: Any>(&self) -> bool {
            self.0.is::<T>()
        }

        /// The payload.
        pub fn into_payload(self) -> Box<dyn Any + Send> {
            self.0
        }

        /// Drops the payload where a panic in its destructor could not be reported either: that one is forgotten.
        pub(crate) fn discard(self) {
            if let Err(second) = Panic::catch(|| drop(self)) {
                core::mem::forget(second);
            }
        }

        /// A second payload for a second receiver: the same message, since a payload cannot be cloned.
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

    /// The payload of a panic in user code. Without the `std` feature nothing is caught, so there is none.
    #[derive(Debug)]
    pub enum Panic {}

    impl Panic {
        /// Runs `f`. Without `std` there is nothing to catch.
        #[inline]
        pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Panic> {
            Ok(f())
        }

        /// Goes on unwinding with the payload, which cannot exist.
        pub fn resume(self) -> ! {
            match self {}
        }

        /// Drops a payload that cannot exist.
        pub(crate) fn discard(self) {
            match self {}
        }

        /// The message of a payload that cannot exist.
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
