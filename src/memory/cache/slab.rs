use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use allocator_api2::alloc::{Allocator, Global};

use super::heap::Heap;
use crate::memory::{Links, links};
use crate::sync::Owned;
use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

/// The alignment of a slab, and the distance between two adjacent ones.
const STRIDE: usize = if cfg!(loom) { 4096 } else { 32 * 1024 };
/// The size of a slab. The rest of the stride is for the head that many allocators put before an allocation: with that
/// room, adjacent slabs leave no gap.
const BYTES: usize = STRIDE - 16;
/// The offset of the first slot.
const FIRST: usize = size_of::<Slab>();

const _: () = assert!(FIRST == 128 || cfg!(loom));

/// The head of a slab: an aligned piece of memory with slots of one size.
///
/// A slab is in one of five states. The first two have an *owner*: the only heap that takes slots, and that accesses
/// `own`.
///
/// | state | `remote` | list |
/// |---|---|---|
/// | owned | null | of its heap's class |
/// | owned, with slots that other threads freed | the last such slot | of its heap's class |
/// | full: no free slot, no owner | [`Slab::full`] | none |
/// | shelved: free slots, no owner | [`Slab::shelved`] | of the depot's class |
/// | empty: no used slot | null | of a heap or of the depot |
///
/// ```text
///            ┌──────────────── the owner finds no free slot ────────────────▶ full
///          owned ◀───────────── a thread frees a slot of it ───────────────────┘
///           │ ▲ └──▶ empty, when the last slot is free
///           │ └─── a thread frees a slot of it, or needs one ───┐
///           └────── the owner ends, or has many slabs ──────▶ shelved
/// ```
///
/// A used slot keeps its slab alive. So a thread that frees a slot may access the head until the slot is free.
#[repr(C)]
pub(super) struct Slab {
    /// The owner, or null. A heap compares it with its own address, and only that heap ever stores its address. So
    /// relaxed accesses suffice. The heap stores null before it gives up the slab.
    owner: AtomicPtr<Heap>,
    /// The slots that threads other than the owner freed, linked by their first word, or one of two marks.
    ///
    /// - A thread pushes the slot that it frees with release. Pairs with the acquire swap of the owner, which takes all.
    /// - The owner exchanges null for a mark with release, and so passes on `own`. Pairs with the acquire exchange of the
    ///   heap that adopts a full slab. A shelved slab changes hands under the lock of the depot.
    remote: AtomicPtr<Slot>,
    own: OwnFields,
}

/// The fields of a slab that its owner accesses, on a cache line of their own.
#[repr(align(64))]
struct OwnFields {
    /// Claimed by a heap that adopts the slab.
    owned: Owned,
    /// The free slots, last freed first. The list is local to the slab, so slots in use at one time lie close together.
    free: Cell<*mut Slot>,
    /// The end of the slots that were never used, as an offset. They are taken from the last to the first. So a walk from
    /// the newest frame to the oldest, such as that of a stop, goes upwards in memory, which processors prefetch best.
    fresh: Cell<u32>,
    /// The number of slots that are neither in `free` nor fresh. Counts the slots in `remote`.
    used: Cell<u32>,
    /// The size of a slot.
    size: Cell<u32>,
    class: Cell<u32>,
    links: Links<Slab>,
}

/// A free slot.
struct Slot {
    next: *mut Slot,
    content: Owned,
}

links!(Slab, own.links);

impl Slab {
    /// The layout of a slab.
    const LAYOUT: Layout = match Layout::from_size_align(BYTES, STRIDE) {
        Ok(layout) => layout,
        Err(_) => panic!("the stride is a power of two"),
    };

    /// Allocates an empty slab.
    pub(super) fn new() -> Option<NonNull<Slab>> {
        let slab = Global.allocate(Slab::LAYOUT).ok()?.cast::<Slab>();
        // SAFETY: the memory is new, and large enough.
        unsafe {
            slab.write(Slab {
                owner: AtomicPtr::new(ptr::null_mut()),
                remote: AtomicPtr::new(ptr::null_mut()),
                own: OwnFields {
                    owned: Owned::new(),
                    free: Cell::new(ptr::null_mut()),
                    fresh: Cell::new(0),
                    used: Cell::new(0),
                    size: Cell::new(0),
                    class: Cell::new(0),
                    links: Links::new(),
                },
            });
        }
        Some(slab)
    }

    /// Deallocates a slab.
    ///
    /// # Safety
    ///
    /// The slab is empty, in no list, and not used afterwards.
    pub(super) unsafe fn delete(this: NonNull<Slab>) {
        // SAFETY: no slot is used, so no other thread accesses the slab. It was allocated with this layout.
        unsafe {
            this.drop_in_place();
            Global.deallocate(this.cast(), Slab::LAYOUT);
        }
    }

    /// Returns the slab of a slot.
    ///
    /// # Safety
    ///
    /// The slot is used, and from a slab.
    #[inline(always)]
    pub(super) unsafe fn of(slot: NonNull<u8>) -> NonNull<Slab> {
        let offset = slot.addr().get() % STRIDE;
        // SAFETY: a slab is aligned to `STRIDE`, and not larger. So this is its address.
        unsafe { slot.byte_sub(offset).cast() }
    }

    /// The value of `remote` for a slab without an owner and without a free slot.
    fn full() -> *mut Slot {
        ptr::without_provenance_mut(1)
    }

    /// The value of `remote` for a slab on a shelf of the depot.
    fn shelved() -> *mut Slot {
        ptr::without_provenance_mut(2)
    }

    #[inline(always)]
    pub(super) fn is_owned_by(&self, heap: &Heap) -> bool {
        ptr::eq(self.owner.load(Relaxed), heap)
    }

    pub(super) fn class(&self) -> usize {
        self.own.class.get() as usize
    }

    /// Returns whether no slot is used. Called by the owner.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.own.used.get() == 0
    }

    /// Makes a heap the owner of a slab. The heap accesses `own` from now on.
    ///
    /// # Safety
    ///
    /// The caller took the slab from a heap, the depot or the system, and has exclusive access to `own`.
    pub(super) unsafe fn set_owner(&self, heap: &Heap) {
        self.own.owned.claim();
        self.owner.store(ptr::from_ref(heap).cast_mut(), Relaxed);
    }

    /// Divides an empty slab into slots of a size.
    ///
    /// # Safety
    ///
    /// The caller owns the slab, which is empty.
    pub(super) unsafe fn divide(&self, class: usize, size: usize) {
        self.own.free.set(ptr::null_mut());
        // A model has few slots, so that it uses all of a slab.
        let slots = if cfg!(loom) { 2 } else { (BYTES - FIRST) / size };
        self.own.fresh.set((FIRST + slots * size) as u32);
        self.own.size.set(size as u32);
        self.own.class.set(class as u32);
    }

    /// Takes a free slot.
    ///
    /// # Safety
    ///
    /// The caller owns the slab, which was divided.
    #[inline(always)]
    pub(super) unsafe fn take(this: NonNull<Slab>) -> Option<NonNull<u8>> {
        // SAFETY: the slab is alive, and its owner has exclusive access to `own` and to free slots.
        unsafe {
            let own = &this.as_ref().own;
            let slot = match NonNull::new(own.free.get()) {
                Some(slot) => {
                    slot.as_ref().content.claim();
                    own.free.set(slot.as_ref().next);
                    slot.cast()
                }
                None if Slab::has_fresh(own) => {
                    let offset = own.fresh.get() - own.size.get();
                    own.fresh.set(offset);
                    this.byte_add(offset as usize).cast()
                }
                None => return None,
            };
            own.used.set(own.used.get() + 1);
            Some(slot)
        }
    }

    #[inline(always)]
    fn has_fresh(own: &OwnFields) -> bool {
        own.fresh.get() >= FIRST as u32 + own.size.get()
    }

    /// Frees a slot.
    ///
    /// # Safety
    ///
    /// The caller owns the slab, and the slot, which is used and from this slab.
    #[inline(always)]
    pub(super) unsafe fn put(&self, slot: NonNull<u8>) {
        let (slot, own) = (slot.cast::<Slot>(), &self.own);
        // SAFETY: the slot is unused from now on, and large enough.
        unsafe {
            slot.write(Slot {
                next: own.free.get(),
                content: Owned::new(),
            });
        }
        own.free.set(slot.as_ptr());
        own.used.set(own.used.get() - 1);
    }

    /// Takes the slots that other threads freed. Returns whether the slab has a free slot.
    ///
    /// # Safety
    ///
    /// The caller owns the slab.
    pub(super) unsafe fn collect(&self) -> bool {
        let own = &self.own;
        let mut first = ptr::null_mut();
        if !self.remote.load(Relaxed).is_null() {
            first = self.remote.swap(ptr::null_mut(), Acquire);
        }
        let mut count = 0;
        while let Some(slot) = NonNull::new(first) {
            // SAFETY: the swap acquired the slots, which are free. The owner has exclusive access to them.
            unsafe {
                slot.as_ref().content.claim();
                first = slot.as_ref().next;
                (*slot.as_ptr()).next = own.free.get();
            }
            own.free.set(slot.as_ptr());
            count += 1;
        }
        own.used.set(own.used.get() - count);
        !own.free.get().is_null() || Slab::has_fresh(own)
    }

    /// Gives up the ownership of a full slab. Returns `false` if another thread has freed a slot.
    ///
    /// # Safety
    ///
    /// `heap` owns the slab, which has no free slot. The slab is in no list. After `true` it may be gone.
    pub(super) unsafe fn give_up(&self, heap: &Heap) -> bool {
        // SAFETY: the contract of this function.
        unsafe { self.disown(heap, Slab::full()) }
    }

    /// Gives up the ownership of a slab that is put on a shelf. Returns `false` if another thread has freed a slot.
    ///
    /// # Safety
    ///
    /// `heap` owns the slab, which is in no list and has a used slot. The caller holds the depot's lock, and puts the
    /// slab on the shelf after `true`.
    pub(super) unsafe fn shelve(&self, heap: &Heap) -> bool {
        // SAFETY: the contract of this function.
        unsafe { self.disown(heap, Slab::shelved()) }
    }

    /// # Safety
    ///
    /// The contract of [`Slab::give_up`] or [`Slab::shelve`].
    unsafe fn disown(&self, heap: &Heap, mark: *mut Slot) -> bool {
        self.own.owned.claim();
        // Before the exchange: another heap may store its address after that.
        self.owner.store(ptr::null_mut(), Relaxed);
        let disowned = self
            .remote
            .compare_exchange(ptr::null_mut(), mark, Release, Relaxed)
            .is_ok();
        if !disowned {
            self.owner.store(ptr::from_ref(heap).cast_mut(), Relaxed);
        }
        disowned
    }

    /// Takes a slab from its shelf.
    ///
    /// # Safety
    ///
    /// The caller holds the depot's lock, and has removed the slab from its shelf. It becomes the owner.
    pub(super) unsafe fn unshelve(&self) {
        // No thread changes the mark without the lock, which orders the accesses to `own`.
        self.remote.store(ptr::null_mut(), Relaxed);
    }

    /// Returns whether the slab is on a shelf. Called under the depot's lock.
    pub(super) fn is_shelved(&self) -> bool {
        self.remote.load(Relaxed) == Slab::shelved()
    }

    /// Frees a slot of a slab that the caller does not own, unless the slab has no owner.
    ///
    /// # Safety
    ///
    /// The caller owns the slot, which is used and from this slab. If the result is [`Freed::Full`], the caller becomes
    /// the owner of the slab, and frees the slot. If it is [`Freed::Shelved`], the slot is still used.
    pub(super) unsafe fn put_remote(&self, slot: NonNull<u8>) -> Freed {
        let slot = slot.cast::<Slot>();
        let mut remote = self.remote.load(Relaxed);
        loop {
            let exchanged = if remote == Slab::shelved() {
                return Freed::Shelved;
            } else if remote == Slab::full() {
                match self.remote.compare_exchange(remote, ptr::null_mut(), Acquire, Relaxed) {
                    Ok(_) => return Freed::Full,
                    Err(now) => Err(now),
                }
            } else {
                // SAFETY: the caller owns the slot, which is large enough.
                unsafe {
                    slot.write(Slot {
                        next: remote,
                        content: Owned::new(),
                    });
                }
                self.remote.compare_exchange(remote, slot.as_ptr(), Release, Relaxed)
            };
            match exchanged {
                Ok(_) => return Freed::Remotely,
                Err(now) => remote = now,
            }
        }
    }
}

/// The result of [`Slab::put_remote`].
pub(super) enum Freed {
    /// The slot was pushed. The slab may be gone.
    Remotely,
    /// The slab was full, and belongs to the caller now.
    Full,
    /// The slab is on a shelf.
    Shelved,
}
