/// Aborts the process when it is dropped by unwinding: for the stretches where an unwind would lose a completion.
///
/// User code never unwinds into one of these from the library's own algorithms, which catch and send the payload down
/// the panic channel. What gets here is a hand-written operation or receiver that broke its promise.
pub(crate) struct AbortOnUnwind(());

impl AbortOnUnwind {
    pub(crate) fn new() -> Self {
        AbortOnUnwind(())
    }

    /// The stretch is over.
    pub(crate) fn defuse(self) {
        core::mem::forget(self);
    }
}

impl Drop for AbortOnUnwind {
    #[cold]
    fn drop(&mut self) {
        #[cfg(feature = "std")]
        {
            std::eprintln!("bowline: an operation, a receiver or a destructor unwound out of a completion; aborting");
            std::process::abort();
        }
        // Without `std` a panic while unwinding is the only way to stop, and it aborts.
        #[cfg(not(feature = "std"))]
        panic!("an operation, a receiver or a destructor unwound out of a completion");
    }
}

/// Runs a driver's stretch: the start of an operation, and what comes of it. An unwind out of it would free memory that
/// other threads still use, so it aborts.
#[cfg(feature = "alloc")]
#[inline]
pub(crate) fn abort_on_unwind<T>(f: impl FnOnce() -> T) -> T {
    let guard = AbortOnUnwind::new();
    let result = f();
    guard.defuse();
    result
}
