//! The pinning of a thread to one processor.

/// Pins the calling thread to one of the processors it may use: the one at `index`, modulo their number.
///
/// This is best effort: if the system refuses, the thread runs anywhere.
#[cfg(all(target_os = "linux", not(loom)))]
pub(super) fn pin_to(index: usize) {
    /// The size of the C library's `cpu_set_t`: 1024 processors.
    type Set = [u64; 16];
    const BITS: usize = u64::BITS as usize;

    unsafe extern "C" {
        fn sched_getaffinity(pid: i32, size: usize, set: *mut Set) -> i32;
        fn sched_setaffinity(pid: i32, size: usize, set: *const Set) -> i32;
    }

    let mut allowed: Set = [0; 16];
    // SAFETY: the set has the given size, and 0 means the calling thread.
    if unsafe { sched_getaffinity(0, size_of::<Set>(), &mut allowed) } != 0 {
        return;
    }
    let processors = || (0..16 * BITS).filter(|cpu| allowed[cpu / BITS] & 1 << (cpu % BITS) != 0);
    let count = processors().count();
    if let Some(cpu) = index.checked_rem(count).and_then(|nth| processors().nth(nth)) {
        let mut one: Set = [0; 16];
        one[cpu / BITS] = 1 << (cpu % BITS);
        // SAFETY: the set has the given size, and 0 means the calling thread.
        unsafe { sched_setaffinity(0, size_of::<Set>(), &one) };
    }
}

#[cfg(not(all(target_os = "linux", not(loom))))]
pub(super) fn pin_to(_: usize) {}
