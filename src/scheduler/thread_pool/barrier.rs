//! Two memory barriers of which one is almost free.
//!
//! A protocol in which two threads each store and then load, so that one of them sees the other, needs a full barrier
//! on both sides. Here the frequent side has a *light* barrier, which only stops the compiler. The rare side has a
//! *heavy* one: a system call, after which every other thread of the process has passed a full barrier. So of a light
//! and a heavy barrier one precedes the other, as of two full ones.
//!
//! Linux has the system call `membarrier`. Without it [`is_available`] returns `false`, and the callers use full
//! barriers on both sides. So they do with `--cfg no_membarrier`, which makes a test on Linux use what other systems use.
//! In a model both are full barriers.

/// Whether the system has the heavy barrier, once a pool has asked.
#[cfg(not(loom))]
static AVAILABLE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();

#[cfg(loom)]
std::thread_local! {
    /// Whether a pool has prepared the process, in the models of this system thread.
    static PREPARED: core::cell::Cell<bool> = const { core::cell::Cell::new(true) };
}

/// Returns whether the two barriers work together on this system.
pub(super) fn is_available() -> bool {
    #[cfg(loom)]
    return true;
    #[cfg(not(loom))]
    *AVAILABLE.get_or_init(system::register)
}

/// Returns whether the two barriers work together, and a pool has prepared the process for them.
#[inline]
pub(crate) fn is_prepared() -> bool {
    #[cfg(loom)]
    return PREPARED.get();
    #[cfg(not(loom))]
    AVAILABLE.get().is_some_and(|available| *available)
}

/// Runs models as if a pool had prepared the process, or none had. All threads of a model share one system thread.
#[cfg(loom)]
pub(super) fn with_prepared<T>(prepared: bool, models: impl FnOnce() -> T) -> T {
    let before = PREPARED.replace(prepared);
    let result = models();
    PREPARED.set(before);
    result
}

/// The barrier of the frequent side.
#[inline(always)]
pub(super) fn light() {
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
}

/// The barrier of the rare side. Called only if [`is_available`].
#[cold]
pub(super) fn heavy() {
    full();
    #[cfg(not(loom))]
    system::everywhere();
}

/// A barrier for both sides.
#[inline(always)]
pub(super) fn full() {
    crate::sync::atomic::fence(crate::sync::atomic::Ordering::SeqCst);
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    not(any(loom, miri, no_membarrier))
))]
mod system {
    use core::ffi::{c_int, c_long};
    use core::time::Duration;

    /// The number of the system call `membarrier`.
    const MEMBARRIER: c_long = if cfg!(target_arch = "x86_64") { 324 } else { 283 };
    const PRIVATE_EXPEDITED: c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;

    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }

    fn membarrier(command: c_int) -> bool {
        // SAFETY: the system call has two more arguments, flags and a processor. Both are unused, and it accesses no
        // memory.
        unsafe { syscall(MEMBARRIER, command, 0 as c_int, 0 as c_int) == 0 }
    }

    /// Prepares the process for [`everywhere`]. Returns whether the system has it.
    pub(super) fn register() -> bool {
        membarrier(REGISTER_PRIVATE_EXPEDITED)
    }

    /// Makes every other thread of the process pass a full barrier.
    pub(super) fn everywhere() {
        if !membarrier(PRIVATE_EXPEDITED) {
            // A filter that was installed after the registration refuses the call. A processor empties its store
            // buffer in far less time than this.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(not(any(
    all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
        not(any(miri, no_membarrier))
    ),
    loom
)))]
mod system {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn everywhere() {}
}
