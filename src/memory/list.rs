//! The one intrusive list: doubly linked, first in first out, without allocation.
//!
//! A node is a field of something pinned, and is linked by two pointers of its own. The list has no lock: its owner
//! keeps it in a lock, in a [`SpinLock`](crate::sync::SpinLock) for instance, which also protects the links.
//!
//! # Invariants
//!
//! They are established by the contracts of [`List::push_back`], [`List::push_front`] and [`List::remove`], and the safe
//! functions rest on them.
//!
//! - A node in a list is valid and does not move until it is taken out.
//! - A node is in one list at most, so its links are those of that list.
//! - The list and its nodes' links are used by one thread at a time, which has exclusive access to the list.
//!
//! The stop registry, those who wait for a shared run, a scope or a group, the queues of a pool and the timers use it.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

/// A type whose values are nodes of a [`List`].
///
/// # Safety
///
/// Each getter returns what its setter stored last. While a node is in a list, only the list calls the setters.
pub(crate) unsafe trait Linked: Sized {
    fn next(&self) -> *mut Self;
    fn set_next(&self, next: *mut Self);
    fn previous(&self) -> *mut Self;
    fn set_previous(&self, previous: *mut Self);
}

/// The two links of a node, for types that do not store them elsewhere. See [`links`].
pub(crate) struct Links<N> {
    pub(crate) next: Cell<*mut N>,
    pub(crate) previous: Cell<*mut N>,
}

impl<N> Links<N> {
    pub(crate) const fn new() -> Self {
        Links {
            next: Cell::new(ptr::null_mut()),
            previous: Cell::new(ptr::null_mut()),
        }
    }
}

/// Implements [`Linked`] for a type with a field of type [`Links`].
macro_rules! links {
    ($node:ty, $links:ident) => {
        // SAFETY: each getter reads the cell that its setter writes. The cells are written through this trait alone.
        unsafe impl $crate::memory::Linked for $node {
            #[inline]
            fn next(&self) -> *mut Self {
                self.$links.next.get()
            }

            #[inline]
            fn set_next(&self, next: *mut Self) {
                self.$links.next.set(next);
            }

            #[inline]
            fn previous(&self) -> *mut Self {
                self.$links.previous.get()
            }

            #[inline]
            fn set_previous(&self, previous: *mut Self) {
                self.$links.previous.set(previous);
            }
        }
    };
}
pub(crate) use links;

/// Where a list keeps the address of its last node: in a word of its own, or in the first node.
///
/// # Safety
///
/// `last` returns what `set_last` stored last. Both are called only while the list is not empty, with its first node.
pub(crate) unsafe trait Last<N>: Copy {
    /// No node.
    const NONE: Self;

    fn last(&self, first: &N) -> *mut N;
    fn set_last(&mut self, first: &N, last: *mut N);
}

/// The last node is the `previous` of the first: the list is one word, and a push at the back writes to the first node.
#[derive(Clone, Copy)]
pub(crate) struct InFirst;

// SAFETY: the first node's `previous` is used for nothing else.
unsafe impl<N: Linked> Last<N> for InFirst {
    const NONE: Self = InFirst;

    #[inline]
    fn last(&self, first: &N) -> *mut N {
        first.previous()
    }

    #[inline]
    fn set_last(&mut self, first: &N, last: *mut N) {
        first.set_previous(last);
    }
}

/// The last node is a word of the list: a push at the back writes to the last node alone.
#[cfg(feature = "std")]
pub(crate) struct Beside<N>(*mut N);

#[cfg(feature = "std")]
impl<N> Clone for Beside<N> {
    fn clone(&self) -> Self {
        *self
    }
}

#[cfg(feature = "std")]
impl<N> Copy for Beside<N> {}

// SAFETY: it is stored here.
#[cfg(feature = "std")]
unsafe impl<N: Linked> Last<N> for Beside<N> {
    const NONE: Self = Beside(ptr::null_mut());

    #[inline]
    fn last(&self, _: &N) -> *mut N {
        self.0
    }

    #[inline]
    fn set_last(&mut self, _: &N, last: *mut N) {
        self.0 = last;
    }
}

/// An intrusive list of `N`, which keeps its end as `L` says.
pub(crate) struct List<N: Linked, L: Last<N> = InFirst> {
    /// Null while the list is empty. The `next` of the last node is null.
    first: *mut N,
    /// Means something only while `first` is not null.
    last: L,
    _nodes: PhantomData<*mut N>,
}

impl<N: Linked, L: Last<N>> List<N, L> {
    pub(crate) const fn new() -> Self {
        List {
            first: ptr::null_mut(),
            last: L::NONE,
            _nodes: PhantomData,
        }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// The oldest of the nodes that were pushed at the back.
    #[inline]
    pub(crate) fn first(&self) -> Option<NonNull<N>> {
        NonNull::new(self.first)
    }

    /// The node at the back.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn last(&self) -> Option<NonNull<N>> {
        let first = self.first()?;
        // SAFETY: a node in the list is valid.
        NonNull::new(self.last.last(unsafe { first.as_ref() }))
    }

    /// Appends a node.
    ///
    /// # Safety
    ///
    /// The node is valid, pinned and in no list. It stays valid until it is taken out.
    #[cfg(feature = "alloc")]
    #[inline]
    pub(crate) unsafe fn push_back(&mut self, node: NonNull<N>) {
        // SAFETY: the node is valid by the caller's promise, and a node in the list is valid.
        unsafe {
            node.as_ref().set_next(ptr::null_mut());
            match self.first() {
                None => self.first = node.as_ptr(),
                Some(first) => {
                    let last = self.last.last(first.as_ref());
                    (*last).set_next(node.as_ptr());
                    node.as_ref().set_previous(last);
                }
            }
            self.last.set_last(&*self.first, node.as_ptr());
        }
    }

    /// Puts a node before all others.
    ///
    /// # Safety
    ///
    /// The node is valid, pinned and in no list. It stays valid until it is taken out.
    #[inline]
    pub(crate) unsafe fn push_front(&mut self, node: NonNull<N>) {
        // SAFETY: the node is valid by the caller's promise, and a node in the list is valid.
        unsafe {
            node.as_ref().set_next(self.first);
            let last = match self.first() {
                None => node.as_ptr(),
                Some(first) => {
                    let last = self.last.last(first.as_ref());
                    first.as_ref().set_previous(node.as_ptr());
                    last
                }
            };
            self.first = node.as_ptr();
            self.last.set_last(node.as_ref(), last);
        }
    }

    /// Takes a node out.
    ///
    /// # Safety
    ///
    /// The node is in this list.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, node: NonNull<N>) {
        // SAFETY: the node and its neighbours are in the list, and so valid.
        unsafe {
            let (next, previous) = (node.as_ref().next(), node.as_ref().previous());
            if self.first == node.as_ptr() {
                self.first = next;
            } else {
                (*previous).set_next(next);
            }
            match next.as_ref() {
                Some(next) => next.set_previous(previous),
                None => {
                    if let Some(first) = self.first.as_ref() {
                        self.last.set_last(first, previous);
                    }
                }
            }
        }
    }

    /// Takes the first node out.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<NonNull<N>> {
        let first = self.first()?;
        // SAFETY: it is in the list.
        unsafe { self.remove(first) };
        Some(first)
    }

    /// Takes all nodes out, as a list of their own.
    #[cfg(feature = "alloc")]
    #[inline]
    pub(crate) const fn take(&mut self) -> Self {
        core::mem::replace(self, List::new())
    }

    /// The nodes, first to last. The list does not change meanwhile.
    #[cfg(feature = "std")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = NonNull<N>> {
        let mut at = self.first;
        core::iter::from_fn(move || {
            let node = NonNull::new(at)?;
            // SAFETY: a node in the list is valid, and the list is borrowed.
            at = unsafe { node.as_ref() }.next();
            Some(node)
        })
    }
}

impl<N: Linked, L: Last<N>> fmt::Debug for List<N, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List")
            .field("is_empty", &self.is_empty())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    struct Node {
        number: usize,
        links: Links<Node>,
    }

    links!(Node, links);

    /// Does the same with a list and with a deque, at random, and compares them after each step.
    fn agrees_with_a_deque<L: Last<Node>>() {
        const NODES: usize = 24;
        let nodes: Vec<Node> = (0..NODES)
            .map(|number| Node {
                number,
                links: Links::new(),
            })
            .collect();
        let node = |number: usize| NonNull::from(&nodes[number]);
        // SAFETY: the nodes are alive until the end of this function.
        let number = |node: NonNull<Node>| unsafe { node.as_ref() }.number;
        let mut list = List::<Node, L>::new();
        let mut deque = VecDeque::new();
        let mut random = 1_u32;
        let mut next = |below: usize| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) as usize % below
        };
        for _ in 0..20_000 {
            let chosen = next(NODES);
            let found = deque.iter().position(|&other| other == chosen);
            match (next(8), found) {
                (0, _) => assert_eq!(list.pop_front().map(number), deque.pop_front()),
                (1, _) if next(16) == 0 => {
                    let mut taken = list.take();
                    while let Some(node) = taken.pop_front() {
                        assert_eq!(Some(number(node)), deque.pop_front());
                    }
                }
                (_, Some(at)) => {
                    deque.remove(at);
                    // SAFETY: it was found in the deque, and so is in the list.
                    unsafe { list.remove(node(chosen)) };
                }
                (2 | 3, None) => {
                    deque.push_front(chosen);
                    // SAFETY: it stays where it is in its vector, and was not found.
                    unsafe { list.push_front(node(chosen)) };
                }
                (_, None) => {
                    deque.push_back(chosen);
                    // SAFETY: it stays where it is in its vector, and was not found.
                    unsafe { list.push_back(node(chosen)) };
                }
            }
            assert_eq!(list.is_empty(), deque.is_empty());
            assert_eq!(list.first().map(number), deque.front().copied());
            assert_eq!(list.last().map(number), deque.back().copied());
            assert!(list.iter().map(number).eq(deque.iter().copied()));
        }
    }

    #[test]
    fn a_list_with_its_end_in_the_first_node_agrees_with_a_deque() {
        agrees_with_a_deque::<InFirst>();
        assert_eq!(size_of::<List<Node>>(), size_of::<usize>());
    }

    #[test]
    fn a_list_with_its_end_beside_agrees_with_a_deque() {
        agrees_with_a_deque::<Beside<Node>>();
    }
}
