use core::cell::Cell;
use core::ptr::NonNull;

use super::depot::Depot;
use super::slab::{Freed, Slab};
use super::{CLASSES, size_of_class};
use crate::memory::{Linked, List};

/// The number of slabs of a class that a heap owns at most. Other threads free slots of these, and a thread that does
/// not look at them does not see that they are empty.
const OWNED: u32 = if cfg!(loom) { 1 } else { 8 };
/// The number of empty slabs that a heap keeps.
const KEPT: u32 = if cfg!(loom) { 0 } else { 4 };

/// The slabs of a thread.
///
/// A heap does not move while it owns a slab: its address is the owner's name.
pub(crate) struct Heap {
    classes: [Class; CLASSES],
    /// The empty slabs.
    empty: Class,
}

/// A list of slabs and their number.
struct Class {
    /// The heap takes slots from the first one.
    slabs: Cell<List<Slab>>,
    count: Cell<u32>,
}

impl Class {
    const fn new() -> Self {
        Class {
            slabs: Cell::new(List::new()),
            count: Cell::new(0),
        }
    }

    #[inline(always)]
    fn first(&self) -> Option<NonNull<Slab>> {
        // SAFETY: the cell is not shared between threads, and the reference ends here.
        unsafe { &*self.slabs.as_ptr() }.first()
    }

    /// Returns the slab after the first.
    fn second(&self) -> Option<NonNull<Slab>> {
        // SAFETY: a slab in the list is alive.
        NonNull::new(unsafe { self.first()?.as_ref() }.next())
    }

    fn change<T>(&self, by: u32, change: impl FnOnce(&mut List<Slab>) -> T) -> T {
        self.count.set(self.count.get().wrapping_add(by));
        let mut slabs = self.slabs.replace(List::new());
        let result = change(&mut slabs);
        self.slabs.set(slabs);
        result
    }

    /// # Safety
    ///
    /// The slab is alive, and in no list.
    unsafe fn push_back(&self, slab: NonNull<Slab>) {
        // SAFETY: the contract of this function.
        self.change(1, |slabs| unsafe { slabs.push_back(slab) });
    }

    /// # Safety
    ///
    /// The slab is alive, and in no list.
    unsafe fn push_front(&self, slab: NonNull<Slab>) {
        // SAFETY: the contract of this function.
        self.change(1, |slabs| unsafe { slabs.push_front(slab) });
    }

    /// # Safety
    ///
    /// The slab is in this list.
    unsafe fn remove(&self, slab: NonNull<Slab>) {
        // SAFETY: the contract of this function.
        self.change(1_u32.wrapping_neg(), |slabs| unsafe { slabs.remove(slab) });
    }

    fn pop(&self) -> Option<NonNull<Slab>> {
        let first = self.first()?;
        // SAFETY: the slab is the first of this list.
        unsafe { self.remove(first) };
        Some(first)
    }
}

impl Heap {
    pub(crate) const fn new() -> Self {
        Heap {
            classes: [const { Class::new() }; CLASSES],
            empty: Class::new(),
        }
    }

    /// Takes a free slot from the first slab of a class. `None` if that has none.
    #[inline(always)]
    pub(crate) fn take(&self, class: usize) -> Option<NonNull<u8>> {
        // SAFETY: the heap owns the slabs in its lists.
        unsafe { Slab::take(self.classes[class].first()?) }
    }

    /// Allocates a slot of a class. `None` if there is no memory.
    pub(crate) fn allocate(&self, class: usize, depot: &Depot) -> Option<NonNull<u8>> {
        let slabs = &self.classes[class];
        // SAFETY: the heap owns the slabs in its lists. One that it gives up was removed before.
        unsafe {
            while let Some(slab) = slabs.first() {
                if slab.as_ref().collect() {
                    return Slab::take(slab);
                }
                slabs.remove(slab);
                if !slab.as_ref().give_up(self) {
                    slabs.push_front(slab);
                }
            }
            let slab = match self.empty.pop() {
                Some(slab) => {
                    slab.as_ref().divide(class, size_of_class(class));
                    slab
                }
                None => depot.take(class, self)?,
            };
            slabs.push_front(slab);
            Slab::take(slab)
        }
    }

    /// Frees a slot of a class. Does nothing, and returns `false`, if the heap does not own its slab.
    ///
    /// # Safety
    ///
    /// The slot is from a heap with the same depot, and has this class. It is not used after `true`.
    #[inline(always)]
    pub(crate) unsafe fn put(&self, slot: NonNull<u8>, class: usize, depot: &Depot) -> bool {
        // SAFETY: the used slot keeps its slab alive. Only the owner accesses more than the head's atomics.
        unsafe {
            let slab = Slab::of(slot);
            if !slab.as_ref().is_owned_by(self) {
                return false;
            }
            slab.as_ref().put(slot);
            if slab.as_ref().is_empty() {
                // Keeps this branch apart from the next one.
                core::hint::cold_path();
                if self.classes[class].first() != Some(slab) {
                    self.take_out(slab, depot);
                }
            }
            true
        }
    }

    /// Frees a slot of a class.
    ///
    /// # Safety
    ///
    /// The slot is from a heap with the same depot, and has this class. It is not used afterwards.
    pub(crate) unsafe fn deallocate(&self, slot: NonNull<u8>, class: usize, depot: &Depot) {
        // SAFETY: the contract of this function.
        unsafe {
            if !self.put(slot, class, depot) {
                self.deallocate_foreign(Slab::of(slot), slot, depot);
            }
        }
    }

    /// Removes an empty slab from its class.
    ///
    /// # Safety
    ///
    /// The heap owns the slab, which is empty and in the list of its class.
    #[cold]
    #[inline(never)]
    unsafe fn take_out(&self, slab: NonNull<Slab>, depot: &Depot) {
        // SAFETY: the contract of this function.
        unsafe {
            self.classes[slab.as_ref().class()].remove(slab);
            self.put_empty(slab, depot);
        }
    }

    /// Frees a slot of a slab that this heap does not own. Adopts the slab if no other heap owns it.
    ///
    /// # Safety
    ///
    /// The contract of [`Heap::deallocate`]. The slot is from this slab.
    unsafe fn deallocate_foreign(&self, slab: NonNull<Slab>, slot: NonNull<u8>, depot: &Depot) {
        // SAFETY: the used slot keeps its slab alive. This heap owns the slab after the loop, which `Full` or
        // `take_shelved` establishes.
        unsafe {
            loop {
                match slab.as_ref().put_remote(slot) {
                    Freed::Remotely => return,
                    Freed::Full => {
                        slab.as_ref().set_owner(self);
                        break;
                    }
                    Freed::Shelved if depot.take_shelved(slab, self) => break,
                    Freed::Shelved => {}
                }
            }
            slab.as_ref().put(slot);
            if slab.as_ref().is_empty() {
                return self.put_empty(slab, depot);
            }
            let slabs = &self.classes[slab.as_ref().class()];
            slabs.push_back(slab);
            if slabs.count.get() > OWNED
                && let Some(oldest) = slabs.second()
            {
                slabs.remove(oldest);
                self.put_away(oldest, depot);
            }
        }
    }

    /// Keeps an empty slab, or passes it to the depot.
    ///
    /// # Safety
    ///
    /// The heap owns the slab, which is empty and in no list.
    unsafe fn put_empty(&self, slab: NonNull<Slab>, depot: &Depot) {
        // SAFETY: the contract of this function.
        unsafe {
            if self.empty.count.get() < KEPT {
                self.empty.push_front(slab);
            } else {
                depot.put_empty(slab);
            }
        }
    }

    /// Ends the ownership of a slab.
    ///
    /// # Safety
    ///
    /// The heap owns the slab, which is in no list.
    unsafe fn put_away(&self, slab: NonNull<Slab>, depot: &Depot) {
        // SAFETY: the contract of this function. The loop ends with the ownership.
        unsafe {
            loop {
                let has_free = slab.as_ref().collect();
                if slab.as_ref().is_empty() {
                    return self.put_empty(slab, depot);
                }
                let ended = if has_free {
                    depot.shelve(slab, self)
                } else {
                    slab.as_ref().give_up(self)
                };
                if ended {
                    return;
                }
            }
        }
    }

    /// Passes all slabs on, because the thread ends.
    pub(crate) fn end(&self, depot: &Depot) {
        // SAFETY: the heap owns the slabs in its lists, and those that were popped are in none.
        unsafe {
            for class in &self.classes {
                while let Some(slab) = class.pop() {
                    self.put_away(slab, depot);
                }
            }
            while let Some(slab) = self.empty.pop() {
                depot.put_empty(slab);
            }
        }
    }
}
