use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// Room for a value of any type that [fits](Words::fit), at the alignment of a word.
///
/// It is moved like the value in it, and does not know whether there is one. The value may change behind a shared
/// reference, so the room is an `UnsafeCell`.
pub(crate) struct Words<const N: usize>(UnsafeCell<[MaybeUninit<usize>; N]>);

impl<const N: usize> Words<N> {
    pub(crate) const fn empty() -> Self {
        Words(UnsafeCell::new([MaybeUninit::uninit(); N]))
    }

    /// With `value` in it, which must fit.
    #[cfg(feature = "alloc")]
    pub(crate) const fn of<T>(value: T) -> Self {
        const { assert!(Self::fit(Layout::new::<T>())) };
        let words = Self::empty();
        // SAFETY: it fits, in size and alignment.
        unsafe { words.place().cast::<T>().write(value) };
        words
    }

    pub(crate) const fn fit(layout: Layout) -> bool {
        layout.size() <= size_of::<Self>() && layout.align() <= align_of::<Self>()
    }

    /// Where the value is, for reading and writing.
    #[inline]
    pub(crate) const fn place(&self) -> NonNull<()> {
        // SAFETY: it is the address of a field.
        unsafe { NonNull::new_unchecked(self.0.get().cast()) }
    }
}
