/// A guard that aborts the process when it is dropped by unwinding.
///
/// It is held where an unwind would free memory that other threads still use, or lose a completion: around the function
/// of a [`Job`](super::Job), the [`start`](super::start) of an operation by a driver, and the callback of a stop. A
/// driver calls nothing else. User code inside the library's own algorithms is called through
/// [`Panic::catch`](super::Panic::catch), and its panic travels to the receiver. Destructors of user values, and
/// receivers and operations of the user's own, are not: their panics end here.
pub(crate) struct AbortOnUnwind(());

impl AbortOnUnwind {
    #[inline]
    pub(crate) fn new() -> Self {
        AbortOnUnwind(())
    }

    /// Ends the guard without an abort.
    #[inline]
    pub(crate) fn defuse(self) {
        core::mem::forget(self);
    }
}

/// Writes what happened, and what to do about it.
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

/// A guard that calls a function when it is dropped, also by unwinding.
#[cfg(feature = "std")]
pub(crate) struct OnDrop<F: FnMut()>(pub(crate) F);

#[cfg(feature = "std")]
impl<F: FnMut()> Drop for OnDrop<F> {
    #[inline]
    fn drop(&mut self) {
        (self.0)();
    }
}
