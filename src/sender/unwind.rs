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
