/// Starts to fetch this many cache lines from an address on into the caches.
#[inline]
pub(crate) fn prefetch<const LINES: usize>(from: *const impl Sized) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    for line in 0..LINES {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses no memory, at any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast::<i8>().wrapping_add(64 * line)) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
    let _ = from;
}
