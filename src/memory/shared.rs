use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;

use super::Count;

/// A value that counts its references, by a [count of its own](Counted) or as a part of something that does.
///
/// # Safety
///
/// The value stays valid, and does not move, while there is a reference. Any thread may use it, and release the last one.
pub(crate) unsafe trait Shareable {
    /// Adds a reference.
    ///
    /// # Safety
    ///
    /// There is a reference.
    unsafe fn add(this: NonNull<Self>);

    /// Releases a reference. The value may be freed when this returns.
    ///
    /// # Safety
    ///
    /// The caller owns the reference, and does not use it afterwards.
    unsafe fn release(this: NonNull<Self>);
}

/// A value with a [`Count`] of its own.
///
/// # Safety
///
/// As for [`Shareable`]: the value stays valid, and does not move, until [`free`](Counted::free). Any thread may use and free it.
pub(crate) unsafe trait Counted {
    fn count(&self) -> &Count;

    /// Frees the value.
    ///
    /// # Safety
    ///
    /// The last reference was released, and the value is not used afterwards.
    unsafe fn free(this: NonNull<Self>);
}

// SAFETY: the last reference frees the value, by the contract of `Counted`.
unsafe impl<T: Counted> Shareable for T {
    #[inline]
    unsafe fn add(this: NonNull<Self>) {
        // SAFETY: there is a reference, so the value is valid.
        unsafe { this.as_ref() }.count().add();
    }

    #[inline]
    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the caller owns a reference. After the last one, no other thread uses the value.
        unsafe {
            if this.as_ref().count().release() {
                T::free(this);
            }
        }
    }
}

/// A pointer that owns a reference to a value. The one counted pointer for values that are not in an `Arc`: in memory of
/// their own allocator, or inside of something else.
pub(crate) struct Shared<T: Shareable>(NonNull<T>);

// SAFETY: any thread may use and release the value, by the contract of `Shareable`.
unsafe impl<T: Shareable> Send for Shared<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Shareable> Sync for Shared<T> {}

impl<T: Shareable> Shared<T> {
    /// Takes over a reference.
    ///
    /// # Safety
    ///
    /// The caller owns the reference, and the pointer is to the whole value.
    #[inline]
    pub(crate) unsafe fn from_raw(value: NonNull<T>) -> Self {
        Shared(value)
    }

    /// Adds a reference.
    ///
    /// # Safety
    ///
    /// There is a reference, and the pointer is to the whole value.
    #[inline]
    pub(crate) unsafe fn of(value: NonNull<T>) -> Self {
        // SAFETY: there is a reference, by the contract of this function.
        unsafe { T::add(value) };
        Shared(value)
    }

    /// Returns the pointer, without the reference.
    #[inline]
    pub(crate) fn as_ptr(&self) -> NonNull<T> {
        self.0
    }

    /// Returns the pointer. Its holder owns the reference.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).0
    }
}

impl<T: Shareable> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this owns a reference, so the value is valid.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Shareable> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: this owns a reference.
        unsafe { Shared::of(self.0) }
    }
}

impl<T: Shareable> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this owns a reference, and is not used afterwards.
        unsafe { T::release(self.0) };
    }
}

impl<T: Shareable> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
