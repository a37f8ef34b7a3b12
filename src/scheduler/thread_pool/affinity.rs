//! Keeping a thread on one processor.

/// Keeps the calling thread on one of the processors it may use: the one at `index`, counted around.
///
/// It is a wish: where it cannot be had, the thread runs anywhere.
#[cfg(all(target_os = "linux", not(loom)))]
pub(super) fn pin_to(index: usize) {
    /// As large as the `cpu_set_t` of the C library: 1024 processors.
    type Set = [u64; 16];
    const BITS: usize = u64::BITS as usize;

    unsafe extern "C" {
        fn sched_getaffinity(pid: i32, size: usize, set: *mut Set) -> i32;
        fn sched_setaffinity(pid: i32, size: usize, set: *const Set) -> i32;
    }

    let mut allowed: Set = [0; 16];
    // SAFETY: the set is as large as we say, and 0 is the calling thread.
    if unsafe { sched_getaffinity(0, size_of::<Set>(), &mut allowed) } != 0 {
        return;
    }
    let processors = || (0..16 * BITS).filter(|cpu| allowed[cpu / BITS] & 1 << (cpu % BITS) != 0);
    let count = processors().count();
    if let Some(cpu) = index.checked_rem(count).and_then(|nth| processors().nth(nth)) {
        let mut one: Set = [0; 16];
        one[cpu / BITS] = 1 << (cpu % BITS);
        // SAFETY: as above.
        unsafe { sched_setaffinity(0, size_of::<Set>(), &one) };
    }
}

#[cfg(not(all(target_os = "linux", not(loom))))]
pub(super) fn pin_to(_: usize) {}
