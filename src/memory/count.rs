use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// The reference count of something shared, whose last reference destroys it.
///
/// Every hand-written reference count of the crate is one of these, but that of a frame, which is part of its state word.
/// A count that overflows would free what is still used, so that aborts the process. Handles can be forgotten, so their
/// number is not limited by memory.
pub(crate) struct Count {
    /// - Incremented by the owner of a reference, which keeps it above zero, so that is relaxed.
    /// - Decremented with release, so that all that was done through a reference happens before it is given back. The
    ///   thread that takes it to zero acquires that, before it destroys.
    references: AtomicUsize,
}

/// The count at which the process is aborted. The other half of the numbers is for the threads that increment between one
/// thread's excess and its abort.
const LIMIT: usize = usize::MAX / 2;

impl Count {
    pub(crate) fn one() -> Self {
        Count {
            references: AtomicUsize::new(1),
        }
    }

    /// Adds a reference. The caller has one.
    #[inline]
    pub(crate) fn add(&self) {
        if self.references.fetch_add(1, Relaxed) >= LIMIT {
            overflow();
        }
    }

    /// Adds a reference, unless the last one was given back. The memory of the count is kept by something else.
    pub(crate) fn add_unless_zero(&self) -> bool {
        let added = self.references.fetch_update(Relaxed, Relaxed, |references| {
            (references != 0).then_some(references + 1)
        });
        if added.is_ok_and(|before| before >= LIMIT) {
            overflow();
        }
        added.is_ok()
    }

    /// Gives a reference back. Returns whether it was the last: the caller destroys what is counted.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        if self.references.fetch_sub(1, Release) != 1 {
            return false;
        }
        // Pairs with the release of every reference that was given back before. A load, since it does what a fence would and
        // the sanitizers understand it.
        self.references.load(Acquire);
        true
    }

    /// Returns whether the caller has the only reference. Pairs with the release of every other one that was given back.
    pub(crate) fn is_one(&self) -> bool {
        self.references.load(Acquire) == 1
    }

    /// Returns whether the last reference was given back, as a hint: nothing is ordered by it.
    pub(crate) fn is_zero(&self) -> bool {
        self.references.load(Relaxed) == 0
    }
}

/// Aborts the process.
#[cold]
#[inline(never)]
fn overflow() -> ! {
    #[cfg(feature = "std")]
    {
        std::eprintln!("bowline: a reference count has overflowed; aborting");
        std::process::abort();
    }
    // A panic inside a function of this kind does not unwind out of it, but aborts.
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

    /// Aborts in a process of its own.
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
