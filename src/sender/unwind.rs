/// A guard that aborts the process when it is dropped by unwinding.
///
/// It is held where an unwind would free memory that other threads still use, or lose a completion: around the function
/// of a [`Job`](super::Job), the [`start`](super::start) of an operation by a driver, and the callback of a stop. Those
/// three are all that a driver calls. User code inside the library's own algorithms is called through
/// [`Panic::catch`](super::Panic::catch), and its panic travels to the receiver. A destructor of a user's value, a receiver
/// of the user's own and an operation of the user's own are not, and end here.
pub(crate) struct AbortOnUnwind(());

impl AbortOnUnwind {
    #[inline]
    pub(crate) fn new() -> Self {
        AbortOnUnwind(())
    }

    /// Ends the guard: nothing has unwound.
    #[inline]
    pub(crate) fn defuse(self) {
        core::mem::forget(self);
    }
}

/// Says what happened, and what to do about it.
macro_rules! unwound {
    () => {
        "a destructor, a completion or a start panicked inside a job, which nothing can catch; \
         keep panics out of them, or catch them there with `Panic::catch`"
    };
}

impl Drop for AbortOnUnwind {
    #[cold]
    fn drop(&mut self) {
        #[cfg(feature = "std")]
        {
            std::eprintln!(concat!("bowline: aborting: ", unwound!()));
            std::process::abort();
        }
        // Without `std` a panic while unwinding is the only way to stop, and it aborts.
        #[cfg(not(feature = "std"))]
        panic!(unwound!());
    }
}
