//! The queue of a seat for children of tasks that have not run yet.
//!
//! [`ChildQueue`] is a deque under a [`Biased`] lock. The occupant of the seat pushes children and pops the newest, so
//! a tree of tasks is walked depth-first. It does so with plain loads and stores while no other thread wants the queue.
//! Other threads take the oldest, several at a time, and remove an entry that is raised.
//!
//! # Layout
//!
//! The newest entries are in an array of [`CAPACITY`] pointers, so that a thief takes several without accessing the
//! entries. Older ones are in an intrusive list. When the array is full, its older half moves to the list. When it is
//! empty, the occupant pops from the list. So the queue has no limit, and needs no memory of its own.
//!
//! The list is a stack of such halves, and each half is popped in the order of its pushes. So a tree is walked
//! depth-first, half by half. A large group is walked mostly in the order in which its frames lie in memory, each frame
//! once, so that the processor fetches the next one in time.
//!
//! # Who may access what
//!
//! | data | accessed by |
//! |---|---|
//! | the array and the list, with the links of its entries | the thread that holds the lock |
//! | the place of an entry in the queue | written with the lock held; read by threads that raise the entry |
//! | `len` | written with the lock held; read by all threads |
//!
//! Only the occupant pushes onto an empty queue. So if it reads a length of 0, the queue is empty.
//!
//! # Places
//!
//! With the lock held, an entry is in the array exactly if the array has its pointer. It is in the list exactly if its
//! place says so: an entry that leaves the list is given another place before the lock is released.

use core::mem;
use core::ptr::{self, NonNull};

use super::biased::Biased;
use super::entry::{Entry, EntryPlace, OwnedEntry};
use super::theft::NAPS;
use crate::memory::{Beside, Linked, List, prefetch};
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

/// The length of the array. Small under `loom`, so that a model can fill it.
pub(super) const CAPACITY: usize = if cfg!(loom) { 2 } else { 1024 };
const MASK: usize = CAPACITY - 1;
/// The largest number of entries that a thief takes from the array at once.
pub(super) const BATCH: usize = if cfg!(loom) { 2 } else { 32 };
/// The largest number of entries that a thief takes from the list at once. It accesses each of them under the lock.
const LISTED_BATCH: usize = if cfg!(loom) { 1 } else { 4 };
/// How far ahead of its run an entry is fetched into the caches.
const AHEAD: usize = 4;

/// The children queued on a seat.
#[repr(align(128))]
pub(super) struct ChildQueue {
    lock: Biased<Children>,
    /// The number of entries. Written with the lock held, relaxed. The pusher's barrier orders it with the idle state:
    /// see `idle/mod.rs`. For threads without the lock it is a hint.
    len: AtomicUsize,
    /// The number of pushes. Written by the occupant, relaxed. A thief compares two loads: if they differ, the occupant
    /// makes progress.
    pushes: AtomicUsize,
}

type OlderChildren = List<Entry, Beside<Entry>>;

/// The entries of a [`ChildQueue`].
struct Children {
    /// The pointers of the entries with numbers `top..bottom`, each at its number modulo the capacity. Null at all
    /// other positions, and where an entry was removed.
    array: [*mut Entry; CAPACITY],
    /// The number of the oldest entry of the array. Numbers wrap.
    top: usize,
    /// The number of the next push.
    bottom: usize,
    /// The entries that are older than those in the array, the next to pop first.
    older: OlderChildren,
    /// The number of all entries.
    count: usize,
    /// The index of the seat.
    seat: usize,
}

// SAFETY: the entries may run on any thread. While they are queued, they are accessed under the lock only.
unsafe impl Send for Children {}

impl ChildQueue {
    pub(super) fn new(seat: usize) -> Self {
        ChildQueue {
            lock: Biased::new(Children {
                array: [ptr::null_mut(); CAPACITY],
                top: 0,
                bottom: 0,
                older: List::new(),
                count: 0,
                seat,
            }),
            len: AtomicUsize::new(0),
            pushes: AtomicUsize::new(0),
        }
    }

    /// Sets whether the lock is biased towards the occupant of the seat, which does not use the queue yet.
    pub(super) fn open(&self, biased: bool) {
        self.lock.open(biased);
    }

    /// Returns the number of entries. The load is sequentially consistent.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.load(SeqCst)
    }

    /// Returns the number of pushes. Numbers wrap.
    pub(super) fn pushes(&self) -> usize {
        self.pushes.load(Relaxed)
    }

    /// Pushes an entry, and returns the number of entries.
    ///
    /// # Safety
    ///
    /// The caller is the occupant of the seat.
    pub(super) unsafe fn push(&self, entry: OwnedEntry) -> usize {
        // SAFETY: the contract of this function.
        let mut children = unsafe { self.lock.as_owner() };
        if children.is_full() {
            children.spill();
        }
        self.push_locked(&mut children, entry)
    }

    /// Does what [`push`](ChildQueue::push) does, if the lock is biased and the array has room. Otherwise it returns the entry.
    ///
    /// # Safety
    ///
    /// As for [`push`](ChildQueue::push).
    #[inline]
    pub(super) unsafe fn push_at_once(&self, entry: OwnedEntry) -> Result<usize, OwnedEntry> {
        // SAFETY: the contract of this function.
        match unsafe { self.lock.as_owner_if_biased() } {
            Some(mut children) if !children.is_full() => Ok(self.push_locked(&mut children, entry)),
            _ => Err(entry),
        }
    }

    /// Pushes an entry onto the array, which has room.
    #[inline]
    fn push_locked(&self, children: &mut Children, entry: OwnedEntry) -> usize {
        children.push_newest(entry);
        self.len.store(children.count, Relaxed);
        if NAPS {
            (self.pushes).store(self.pushes.load(Relaxed).wrapping_add(1), Relaxed);
        }
        children.count
    }

    /// Pushes an entry beneath a number of the newest. Returns it if that is zero, or more than the array has.
    ///
    /// # Safety
    ///
    /// The caller is the occupant of the seat.
    pub(super) unsafe fn push_beneath(&self, entry: OwnedEntry, many: usize) -> Result<(), OwnedEntry> {
        // SAFETY: the contract of this function.
        let mut children = unsafe { self.lock.as_owner() };
        let length = children.bottom.wrapping_sub(children.top);
        if many == 0 || many > length || length == CAPACITY {
            return Err(entry);
        }
        children.push_beneath(entry, many);
        self.len.store(children.count, Relaxed);
        Ok(())
    }

    /// Pushes an entry as a thread that is not the occupant, if the queue has others. Returns the entry if it has none, or if
    /// the lock is biased: no thread has stolen from here for a while, and a push would cost the occupant more than it gains.
    pub(super) fn push_from_outside(&self, entry: OwnedEntry) -> Result<(), OwnedEntry> {
        if self.len.load(Relaxed) == 0 || self.lock.is_biased() {
            return Err(entry);
        }
        let mut children = self.lock.as_other();
        if children.count == 0 {
            return Err(entry);
        }
        if children.is_full() {
            children.spill();
        }
        children.push_newest(entry);
        self.len.store(children.count, Relaxed);
        Ok(())
    }

    /// Takes the newest entry.
    ///
    /// # Safety
    ///
    /// The caller is the occupant of the seat.
    #[inline]
    pub(super) unsafe fn pop_newest(&self) -> Option<OwnedEntry> {
        // Exact for the occupant, if the queue is empty: no other thread pushes onto an empty queue.
        if self.len.load(Relaxed) == 0 {
            return None;
        }
        // SAFETY: the contract of this function.
        unsafe { self.pop_present() }
    }

    /// Takes the newest entry of a queue that is not empty, most likely. Not inlined, so that the picks of other
    /// entries stay short.
    ///
    /// # Safety
    ///
    /// The caller is the occupant of the seat.
    #[inline(never)]
    unsafe fn pop_present(&self) -> Option<OwnedEntry> {
        // SAFETY: the contract of this function.
        unsafe {
            match self.lock.as_owner_if_biased() {
                Some(mut children) => self.pop_locked(&mut children),
                None => self.pop_shared(),
            }
        }
    }

    /// Takes the newest entry when the lock is not biased.
    ///
    /// # Safety
    ///
    /// As for [`pop_present`](ChildQueue::pop_present).
    #[cold]
    unsafe fn pop_shared(&self) -> Option<OwnedEntry> {
        // SAFETY: the contract of this function.
        let mut children = unsafe { self.lock.as_owner() };
        self.pop_locked(&mut children)
    }

    #[inline]
    fn pop_locked(&self, children: &mut Children) -> Option<OwnedEntry> {
        let entry = children.pop_newest();
        self.len.store(children.count, Relaxed);
        entry
    }

    /// Takes the oldest entry.
    ///
    /// # Safety
    ///
    /// The caller is the occupant of the seat.
    pub(super) unsafe fn pop_oldest(&self) -> Option<OwnedEntry> {
        // SAFETY: the contract of this function.
        let mut children = unsafe { self.lock.as_owner() };
        let entry = children.pop_oldest();
        self.len.store(children.count, Relaxed);
        entry
    }

    /// Takes up to half of the entries, the oldest first, and passes each to `take` after the lock is released. Any
    /// thread but the occupant may call this.
    pub(super) fn steal(&self, mut take: impl FnMut(OwnedEntry)) {
        let mut batch = [ptr::null_mut(); BATCH];
        {
            let mut children = self.lock.as_other();
            children.take_oldest(&mut batch);
            self.len.store(children.count, Relaxed);
        }
        let entries = batch.iter().copied().map_while(NonNull::new);
        entries.clone().for_each(|entry| prefetch::<2>(entry.as_ptr()));
        // SAFETY: this thread took the entries out of the queue, so it owns them.
        entries.for_each(|entry| take(unsafe { OwnedEntry::new(entry) }));
    }

    /// Removes an entry that is raised. Returns `None` if it is not in this queue. Any thread may call this.
    ///
    /// # Safety
    ///
    /// The entry is valid.
    pub(super) unsafe fn remove(&self, entry: NonNull<Entry>) -> Option<OwnedEntry> {
        let mut children = self.lock.as_other();
        // SAFETY: the contract of this function.
        let entry = unsafe { children.remove(entry) };
        self.len.store(children.count, Relaxed);
        entry
    }
}

impl Children {
    #[inline]
    fn is_full(&self) -> bool {
        self.bottom.wrapping_sub(self.top) == CAPACITY
    }

    /// Pushes an entry onto the array, which has room.
    #[inline]
    fn push_newest(&mut self, entry: OwnedEntry) {
        let at = self.bottom & MASK;
        entry.get().set_place(EntryPlace::Children(self.seat, at));
        self.array[at] = entry.into_raw().as_ptr();
        self.bottom = self.bottom.wrapping_add(1);
        self.count += 1;
    }

    /// Pushes an entry in the place of the oldest of so many, which becomes the newest. The array has these, and is not full.
    fn push_beneath(&mut self, entry: OwnedEntry, many: usize) {
        let at = self.bottom.wrapping_sub(many) & MASK;
        entry.get().set_place(EntryPlace::Children(self.seat, at));
        match NonNull::new(mem::replace(&mut self.array[at], entry.into_raw().as_ptr())) {
            // SAFETY: the entry was taken out of the array.
            Some(above) => self.push_newest(unsafe { OwnedEntry::new(above) }),
            // One was removed there.
            None => self.count += 1,
        }
    }

    /// Moves the older half of the full array to the list. The oldest of the half becomes the first.
    #[cold]
    fn spill(&mut self) {
        let (end, place) = (
            self.top.wrapping_add(CAPACITY / 2),
            EntryPlace::OlderChildren(self.seat),
        );
        // A local list stays in registers.
        let mut older = self.older.take();
        for back in 0..CAPACITY / 2 {
            if let Some(entry) = self.take(end.wrapping_sub(back + 1)) {
                // SAFETY: an entry in the array is valid. It was taken out, so it is in no list.
                unsafe {
                    entry.as_ref().set_place(place);
                    older.push_front(entry);
                }
            }
        }
        self.older = older;
        self.top = end;
    }

    #[inline]
    fn pop_newest(&mut self) -> Option<OwnedEntry> {
        loop {
            if self.bottom == self.top {
                let entry = self.pop_listed(List::first);
                if let Some(next) = self.older.first() {
                    // The removal has written to the next entry, so its link is in the caches. At the end it is null,
                    // which is harmless.
                    // SAFETY: an entry in the list is valid.
                    prefetch::<5>(unsafe { next.as_ref() }.next());
                }
                return entry;
            }
            self.bottom = self.bottom.wrapping_sub(1);
            if let Some(entry) = self.take(self.bottom) {
                prefetch::<2>(self.array[self.bottom.wrapping_sub(AHEAD) & MASK]);
                self.count -= 1;
                // SAFETY: the entry was taken out of the queue.
                return Some(unsafe { OwnedEntry::new(entry) });
            }
        }
    }

    fn pop_oldest(&mut self) -> Option<OwnedEntry> {
        if let Some(entry) = self.pop_listed(List::last) {
            return Some(entry);
        }
        while self.bottom != self.top {
            if let Some(entry) = self.take_top() {
                self.count -= 1;
                // SAFETY: the entry was taken out of the queue.
                return Some(unsafe { OwnedEntry::new(entry) });
            }
        }
        None
    }

    /// Takes an entry of the list: the first is the next to pop, and the last is of the oldest.
    fn pop_listed(&mut self, which: fn(&OlderChildren) -> Option<NonNull<Entry>>) -> Option<OwnedEntry> {
        let entry = which(&self.older)?;
        self.count -= 1;
        // SAFETY: the entry is in the list, so it is valid. Then it is in no queue.
        let entry = unsafe {
            self.older.remove(entry);
            OwnedEntry::new(entry)
        };
        // With another place, it is known not to be in the list.
        entry.get().set_place(EntryPlace::Coming);
        Some(entry)
    }

    /// Takes the older half of the array, or a few entries of the list if the array is empty.
    fn take_oldest(&mut self, batch: &mut [*mut Entry; BATCH]) {
        let mut room = batch.iter_mut();
        let wanted = self.bottom.wrapping_sub(self.top).div_ceil(2).min(BATCH);
        for _ in 0..wanted {
            if let Some(entry) = self.take_top()
                && let Some(to) = room.next()
            {
                *to = entry.as_ptr();
                self.count -= 1;
            }
        }
        if self.bottom == self.top {
            for to in room.take(LISTED_BATCH) {
                match self.pop_listed(List::last) {
                    Some(entry) => *to = entry.into_raw().as_ptr(),
                    None => break,
                }
            }
        }
    }

    /// Removes an entry from any position.
    ///
    /// # Safety
    ///
    /// The entry is valid.
    unsafe fn remove(&mut self, entry: NonNull<Entry>) -> Option<OwnedEntry> {
        // SAFETY: the contract of this function.
        match unsafe { entry.as_ref() }.place() {
            EntryPlace::Children(seat, at) if seat == self.seat && ptr::eq(self.array[at & MASK], entry.as_ptr()) => {
                self.array[at & MASK] = ptr::null_mut();
            }
            // SAFETY: with the lock held, the entry's place says that it is in the list.
            EntryPlace::OlderChildren(seat) if seat == self.seat => unsafe {
                self.older.remove(entry);
                entry.as_ref().set_place(EntryPlace::Coming);
            },
            _ => return None,
        }
        self.count -= 1;
        // SAFETY: the entry was taken out of the queue.
        Some(unsafe { OwnedEntry::new(entry) })
    }

    /// Takes the entry at the top of the array, which is not empty. Returns `None` if the entry was removed.
    #[inline]
    fn take_top(&mut self) -> Option<NonNull<Entry>> {
        let top = self.top;
        self.top = top.wrapping_add(1);
        self.take(top)
    }

    #[inline]
    fn take(&mut self, number: usize) -> Option<NonNull<Entry>> {
        NonNull::new(mem::replace(&mut self.array[number & MASK], ptr::null_mut()))
    }
}
