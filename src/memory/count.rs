use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// How many handles there are to something shared, of which the last destroys it.
///
/// A handle is made of another, so adding needs no order. Giving one back releases what was done through it, and
/// whoever gives back the last acquires all of that before it destroys.
pub(crate) struct Count(AtomicUsize);

impl Count {
    pub(crate) fn one() -> Self {
        Count(AtomicUsize::new(1))
    }

    pub(crate) fn add(&self) {
        // Handles can be forgotten, so the number is not limited by memory.
        assert!(self.0.fetch_add(1, Relaxed) < usize::MAX / 2, "too many handles");
    }

    /// Whether it was the last.
    pub(crate) fn give_back(&self) -> bool {
        if self.0.fetch_sub(1, Release) != 1 {
            return false;
        }
        self.0.load(Acquire);
        true
    }
}
