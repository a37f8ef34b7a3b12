use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use allocator_api2::alloc::{Allocator, Global};

use super::{Count, Words};

/// The error of an allocator that has no memory left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemoryError {
    layout: Layout,
}

impl OutOfMemoryError {
    /// Creates the error of an allocation with this layout.
    #[cfg(feature = "std")]
    pub(crate) const fn new(layout: Layout) -> Self {
        OutOfMemoryError { layout }
    }

    /// Returns the layout of the failed allocation.
    pub const fn layout(&self) -> Layout {
        self.layout
    }
}

impl fmt::Display for OutOfMemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to allocate {} bytes", self.layout.size())
    }
}

impl core::error::Error for OutOfMemoryError {}

/// A type-erased allocator, in two words. An allocator larger than a word is shared, in memory of its own.
pub(crate) struct AnyAllocator<'a> {
    /// The functions of the allocator's type. `None` for the global allocator, which needs no clone and no drop.
    vtable: Option<&'static AllocatorVtable>,
    /// The allocator, or a pointer to a [`SharedAllocator`].
    word: Words<1>,
    _allocator: PhantomData<&'a ()>,
}

/// The functions of one allocator type. Each takes a word that was made for that type, by [`AnyAllocator::new`].
struct AllocatorVtable {
    allocate: unsafe fn(&Words<1>, Layout) -> Option<NonNull<u8>>,
    deallocate: unsafe fn(&Words<1>, NonNull<u8>, Layout),
    clone: unsafe fn(&Words<1>) -> Words<1>,
    drop: unsafe fn(&Words<1>),
}

/// An allocator in memory from itself, with the reference count of the words that point to it.
struct SharedAllocator<A> {
    count: Count,
    allocator: A,
}

/// The vtable for the type `A`.
struct AllocatorOf<A>(PhantomData<A>);

impl<A: Allocator + Clone> AllocatorOf<A> {
    const INLINE: bool = Words::<1>::fit(Layout::new::<A>());
    const VTABLE: &'static AllocatorVtable = &AllocatorVtable {
        allocate: Self::allocate,
        deallocate: Self::deallocate,
        clone: Self::clone,
        drop: Self::drop,
    };

    /// # Safety
    ///
    /// The word was made for an `A`, which does not fit into a word, by [`AnyAllocator::new`].
    unsafe fn shared(word: &Words<1>) -> NonNull<SharedAllocator<A>> {
        // SAFETY: for such an `A`, `new` stored a pointer in the word.
        unsafe { word.place().cast().read() }
    }

    /// # Safety
    ///
    /// The word was made for an `A`, by [`AnyAllocator::new`].
    unsafe fn get(word: &Words<1>) -> &A {
        if Self::INLINE {
            // SAFETY: `new` stored an allocator that fits in the word itself.
            unsafe { word.place().cast().as_ref() }
        } else {
            // SAFETY: the word owns a counted reference, so the shared allocator is valid.
            unsafe { &(*Self::shared(word).as_ptr()).allocator }
        }
    }

    /// # Safety
    ///
    /// The word was made for an `A`, by [`AnyAllocator::new`].
    unsafe fn allocate(word: &Words<1>, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the word was made for an `A`, by the contract of this function.
        unsafe { Self::get(word) }.allocate(layout).ok().map(NonNull::cast)
    }

    /// # Safety
    ///
    /// The word was made for an `A`, by [`AnyAllocator::new`]. The memory is from this allocator, with this layout.
    unsafe fn deallocate(word: &Words<1>, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the contract of this function.
        unsafe { Self::get(word).deallocate(memory, layout) };
    }

    /// # Safety
    ///
    /// The word was made for an `A`, by [`AnyAllocator::new`].
    unsafe fn clone(word: &Words<1>) -> Words<1> {
        // SAFETY: the word was made for an `A`. It owns a counted reference, so the count is valid.
        unsafe {
            if Self::INLINE {
                let clone = Words::empty();
                clone.place().cast().write(Self::get(word).clone());
                clone
            } else {
                let shared = Self::shared(word);
                shared.as_ref().count.add();
                Words::of(shared)
            }
        }
    }

    /// # Safety
    ///
    /// The word was made for an `A`, by [`AnyAllocator::new`], and is not used afterwards.
    unsafe fn drop(word: &Words<1>) {
        // SAFETY: the word was made for an `A`, and this call ends its ownership. The last reference has exclusive
        // access to the shared allocator, and moves it out before it frees the memory.
        unsafe {
            if Self::INLINE {
                drop(word.place().cast::<A>().read());
            } else {
                let shared = Self::shared(word);
                if shared.as_ref().count.release() {
                    let SharedAllocator { allocator, .. } = shared.read();
                    allocator.deallocate(shared.cast(), Layout::new::<SharedAllocator<A>>());
                }
            }
        }
    }
}

impl<'a> AnyAllocator<'a> {
    /// Erases the type of an allocator. One that does not fit into a word is moved to memory of its own.
    pub(crate) fn new<A>(allocator: A) -> Result<Self, OutOfMemoryError>
    where
        A: Allocator + Clone + Send + Sync + 'a,
    {
        let word = Words::empty();
        let place = word.place();
        if AllocatorOf::<A>::INLINE {
            // SAFETY: `INLINE` says that the allocator fits into the word.
            unsafe { place.cast().write(allocator) };
        } else {
            let layout = Layout::new::<SharedAllocator<A>>();
            let shared: NonNull<SharedAllocator<A>> = match allocator.allocate(layout) {
                Ok(memory) => memory.cast(),
                Err(_) => return Err(OutOfMemoryError { layout }),
            };
            // SAFETY: the memory is new and has this layout. A pointer fits into a word.
            unsafe {
                shared.write(SharedAllocator {
                    count: Count::one(),
                    allocator,
                });
                place.cast().write(shared);
            }
        }
        Ok(AnyAllocator {
            vtable: Some(AllocatorOf::<A>::VTABLE),
            word,
            _allocator: PhantomData,
        })
    }

    /// Returns the global allocator.
    pub(crate) const fn global() -> Self {
        AnyAllocator {
            vtable: None,
            word: Words::empty(),
            _allocator: PhantomData,
        }
    }

    /// Allocates memory.
    pub(crate) fn allocate(&self, layout: Layout) -> Result<NonNull<u8>, OutOfMemoryError> {
        let memory = match self.vtable {
            // SAFETY: `new` or `clone` made the word for the vtable's type.
            Some(vtable) => unsafe { (vtable.allocate)(&self.word, layout) },
            None => Global.allocate(layout).ok().map(NonNull::cast),
        };
        memory.ok_or(OutOfMemoryError { layout })
    }

    /// # Safety
    ///
    /// The memory is from this allocator or a clone of it, with this layout. It is not used afterwards.
    pub(crate) unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        match self.vtable {
            // SAFETY: the contract of this function. `new` or `clone` made the word for the vtable's type.
            Some(vtable) => unsafe { (vtable.deallocate)(&self.word, memory, layout) },
            // SAFETY: the contract of this function.
            None => unsafe { Global.deallocate(memory, layout) },
        }
    }
}

// SAFETY: the allocator is `Send` and `Sync`, by the bounds of `new`.
unsafe impl Send for AnyAllocator<'_> {}
// SAFETY: see `Send`.
unsafe impl Sync for AnyAllocator<'_> {}

impl Clone for AnyAllocator<'_> {
    #[inline]
    fn clone(&self) -> Self {
        AnyAllocator {
            vtable: self.vtable,
            word: match self.vtable {
                // SAFETY: `new` or `clone` made the word for the vtable's type.
                Some(vtable) => unsafe { (vtable.clone)(&self.word) },
                None => Words::empty(),
            },
            _allocator: PhantomData,
        }
    }
}

impl Drop for AnyAllocator<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(vtable) = self.vtable {
            // SAFETY: `new` or `clone` made the word for the vtable's type. It is not used after the drop.
            unsafe { (vtable.drop)(&self.word) };
        }
    }
}
