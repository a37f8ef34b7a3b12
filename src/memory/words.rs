use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// Storage for a value of any type that [fits](Words::fit), aligned to a word.
///
/// Moving the words moves the value in them. The words do not know whether they hold a value. The value may change
/// behind a shared reference, so the storage is an `UnsafeCell`.
pub(crate) struct Words<const N: usize>(UnsafeCell<[MaybeUninit<usize>; N]>);

impl<const N: usize> Words<N> {
    /// Creates words without a value.
    pub(crate) const fn empty() -> Self {
        Words(UnsafeCell::new([MaybeUninit::uninit(); N]))
    }

    /// Creates words with a value, which must fit.
    #[cfg(feature = "alloc")]
    pub(crate) const fn of<T>(value: T) -> Self {
        const { assert!(Self::fit(Layout::new::<T>())) };
        let words = Self::empty();
        // SAFETY: the assertion checked size and alignment.
        unsafe { words.place().cast::<T>().write(value) };
        words
    }

    /// Returns whether a value of this layout fits.
    pub(crate) const fn fit(layout: Layout) -> bool {
        layout.size() <= size_of::<Self>() && layout.align() <= align_of::<Self>()
    }

    /// Returns the address of the value, for reading and writing.
    #[inline]
    pub(crate) const fn place(&self) -> NonNull<()> {
        // SAFETY: the address of a field is not null.
        unsafe { NonNull::new_unchecked(self.0.get().cast()) }
    }
}
