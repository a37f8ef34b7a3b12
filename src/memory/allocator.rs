use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use allocator_api2::alloc::{Allocator, Global};

use super::{Count, Words};

/// The allocator had no memory to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    layout: Layout,
}

impl OutOfMemory {
    /// Of an allocator that was asked for this.
    #[cfg(feature = "std")]
    pub(crate) const fn new(layout: Layout) -> Self {
        OutOfMemory { layout }
    }

    /// What it was asked for.
    pub const fn layout(&self) -> Layout {
        self.layout
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the allocator has no memory for {} bytes", self.layout.size())
    }
}

impl core::error::Error for OutOfMemory {}

/// An allocator whose type is erased: in two words where it is no larger than one, else shared, in memory of its own.
pub(crate) struct AnyAllocator<'a> {
    /// None for the global allocator, which takes nothing to clone and to drop.
    vtable: Option<&'static AllocatorVtable>,
    /// The allocator, or a pointer to a [`SharedAllocator`] one.
    word: Words<1>,
    _allocator: PhantomData<&'a ()>,
}

struct AllocatorVtable {
    allocate: unsafe fn(&Words<1>, Layout) -> Option<NonNull<u8>>,
    deallocate: unsafe fn(&Words<1>, NonNull<u8>, Layout),
    clone: unsafe fn(&Words<1>) -> Words<1>,
    drop: unsafe fn(&Words<1>),
}

struct SharedAllocator<A> {
    count: Count,
    allocator: A,
}

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
    /// The word was made for an `A`, by [`AnyAllocator::new`].
    unsafe fn shared(word: &Words<1>) -> NonNull<SharedAllocator<A>> {
        // SAFETY: an allocator that does not fit is shared.
        unsafe { word.place().cast().read() }
    }

    /// # Safety
    ///
    /// As for `shared`.
    unsafe fn get(word: &Words<1>) -> &A {
        if Self::INLINE {
            // SAFETY: an allocator that fits is in the word.
            unsafe { word.place().cast().as_ref() }
        } else {
            // SAFETY: it lives as long as a handle does, and the word is one.
            unsafe { &(*Self::shared(word).as_ptr()).allocator }
        }
    }

    /// # Safety
    ///
    /// As for `shared`.
    unsafe fn allocate(word: &Words<1>, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: by the caller's promise.
        unsafe { Self::get(word) }.allocate(layout).ok().map(NonNull::cast)
    }

    /// # Safety
    ///
    /// As for `shared`; the memory is from this allocator, and of this layout.
    unsafe fn deallocate(word: &Words<1>, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: by the caller's promise.
        unsafe { Self::get(word).deallocate(memory, layout) };
    }

    /// # Safety
    ///
    /// As for `shared`.
    unsafe fn clone(word: &Words<1>) -> Words<1> {
        // SAFETY: by the caller's promise.
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
    /// As for `shared`; the word is not used any more.
    unsafe fn drop(word: &Words<1>) {
        // SAFETY: by the caller's promise. What is read is not used again.
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
    pub(crate) fn new<A>(allocator: A) -> Result<Self, OutOfMemory>
    where
        A: Allocator + Clone + Send + Sync + 'a,
    {
        let word = Words::empty();
        let place = word.place();
        if AllocatorOf::<A>::INLINE {
            // SAFETY: it fits.
            unsafe { place.cast().write(allocator) };
        } else {
            let layout = Layout::new::<SharedAllocator<A>>();
            let shared: NonNull<SharedAllocator<A>> = match allocator.allocate(layout) {
                Ok(memory) => memory.cast(),
                Err(_) => return Err(OutOfMemory { layout }),
            };
            // SAFETY: the memory is ours, and of this layout; a pointer fits into a word.
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

    /// The global one, which takes no room.
    pub(crate) const fn global() -> Self {
        AnyAllocator {
            vtable: None,
            word: Words::empty(),
            _allocator: PhantomData,
        }
    }

    pub(crate) fn allocate(&self, layout: Layout) -> Result<NonNull<u8>, OutOfMemory> {
        let memory = match self.vtable {
            // SAFETY: the word was made for the vtable's type.
            Some(vtable) => unsafe { (vtable.allocate)(&self.word, layout) },
            None => Global.allocate(layout).ok().map(NonNull::cast),
        };
        memory.ok_or(OutOfMemory { layout })
    }

    /// # Safety
    ///
    /// The memory is from this allocator, or from one that it was cloned from, or that was cloned from it; it is of
    /// this layout, and not used any more.
    pub(crate) unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        match self.vtable {
            // SAFETY: by the caller's promise; the word was made for the vtable's type.
            Some(vtable) => unsafe { (vtable.deallocate)(&self.word, memory, layout) },
            // SAFETY: by the caller's promise.
            None => unsafe { Global.deallocate(memory, layout) },
        }
    }
}

// SAFETY: the allocator is `Send` and `Sync`, by the bounds of `new`.
unsafe impl Send for AnyAllocator<'_> {}
// SAFETY: as above.
unsafe impl Sync for AnyAllocator<'_> {}

impl Clone for AnyAllocator<'_> {
    #[inline]
    fn clone(&self) -> Self {
        AnyAllocator {
            vtable: self.vtable,
            word: match self.vtable {
                // SAFETY: the word was made for the vtable's type.
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
            // SAFETY: the word was made for the vtable's type, and this is the end of it.
            unsafe { (vtable.drop)(&self.word) };
        }
    }
}
