use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// A reference count. The owner of the last reference destroys the counted value.
///
/// Every hand-written reference count of the crate uses this type, except a frame's, which is part of its state word.
/// References can be forgotten without dropping them, so their number is not limited by memory. An overflow would free
/// a value in use, so it aborts the process.
pub(crate) struct Count {
    /// - Incremented by an owner of a reference, whose own reference keeps the count above zero. So relaxed ordering
    ///   suffices.
    /// - Decremented with release. Pairs with the acquire load of the thread that decrements it to zero, which then
    ///   destroys the value.
    references: AtomicUsize,
}

/// The count at which the process aborts. Other threads may increment between the check of one thread and its abort, so
/// half of the range is left for them.
const LIMIT: usize = usize::MAX / 2;

impl Count {
    /// Creates a count of one reference.
    pub(crate) fn one() -> Self {
        Count {
            references: AtomicUsize::new(1),
        }
    }

    /// Adds a reference. The caller owns one.
    #[inline]
    pub(crate) fn add(&self) {
        if self.references.fetch_add(1, Relaxed) >= LIMIT {
            overflow();
        }
    }

    /// Adds references to a value that is not shared yet.
    #[inline]
    #[cfg(feature = "std")]
    pub(crate) fn add_unshared(&mut self, many: usize) {
        self.references.store(self.references.load(Relaxed) + many, Relaxed);
    }

    /// Adds a reference, unless the count is zero. The caller keeps the memory of the count valid by other means.
    pub(crate) fn add_unless_zero(&self) -> bool {
        let added = self.references.fetch_update(Relaxed, Relaxed, |references| {
            (references != 0).then_some(references + 1)
        });
        if added.is_ok_and(|before| before >= LIMIT) {
            overflow();
        }
        added.is_ok()
    }

    /// Releases a reference. Returns whether it was the last: the caller then destroys the counted value.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        if self.references.fetch_sub(1, Release) != 1 {
            return false;
        }
        // Pairs with the release of every other reference. A load has the effect of a fence here, and sanitizers
        // understand it.
        self.references.load(Acquire);
        true
    }

    /// Returns whether the caller owns the only reference. Pairs with the release of every other one.
    pub(crate) fn is_one(&self) -> bool {
        self.references.load(Acquire) == 1
    }

    /// Returns whether the count is zero, as a hint: the load is relaxed.
    pub(crate) fn is_zero(&self) -> bool {
        self.references.load(Relaxed) == 0
    }
}

/// Aborts the process, with a message.
#[cold]
#[inline(never)]
fn overflow() -> ! {
    #[cfg(feature = "std")]
    {
        std::eprintln!("bowline: a reference count has overflowed; aborting");
        std::process::abort();
    }
    // A panic cannot unwind out of an `extern "C"` function, so it aborts.
    #[cfg(not(feature = "std"))]
    {
        extern "C" fn abort() -> ! {
            panic!("a reference count has overflowed");
        }
        abort()
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_last_reference_is_told() {
        let count = Count::one();
        count.add();
        assert!(count.add_unless_zero());
        assert!(!count.release() && !count.release() && !count.is_zero());
        assert!(count.release() && count.is_zero());
        assert!(!count.add_unless_zero(), "it is not brought back");
    }

    /// Runs the overflow in a child process, which aborts.
    #[test]
    fn an_overflow_aborts_and_does_not_unwind() {
        const CHILD: &str = "BOWLINE_COUNT_OVERFLOWS";
        let full = || Count {
            references: AtomicUsize::new(LIMIT),
        };
        match std::env::var(CHILD).as_deref() {
            Ok("add") => drop(std::panic::catch_unwind(|| full().add())),
            Ok(_) => drop(std::panic::catch_unwind(|| full().add_unless_zero())),
            Err(_) => {
                for how in ["add", "unless zero"] {
                    let child = Command::new(std::env::current_exe().unwrap())
                        .args([
                            "--exact",
                            "memory::count::tests::an_overflow_aborts_and_does_not_unwind",
                        ])
                        .arg("--nocapture")
                        .env(CHILD, how)
                        .output()
                        .unwrap();
                    let said = std::string::String::from_utf8_lossy(&child.stderr).into_owned();
                    assert!(!child.status.success(), "{how}");
                    assert!(said.contains("a reference count has overflowed"), "{how}: {said}");
                }
            }
        }
    }
}
