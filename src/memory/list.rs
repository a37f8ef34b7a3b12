//! The intrusive list of this crate: doubly linked, FIFO, without allocation.
//!
//! [`List`] links nodes that are fields of pinned values, by two pointers in each node. The list has no lock of its
//! own. Its owner protects the list and the links, by a [`SpinLock`](crate::sync::SpinLock) for instance.
//!
//! # Invariants
//!
//! The contracts of [`List::push_back`], [`List::push_front`] and [`List::remove`] establish them. The safe functions
//! rely on them.
//!
//! - A node in a list is valid and does not move until it is removed.
//! - A node is in at most one list, so its links belong to that list.
//! - The thread that accesses the list has exclusive access to the list and to the links of its nodes.
//!
//! # Callers
//!
//! - the stop registry
//! - the waiters of shared senders, scopes and groups
//! - the injector of a pool, and the timer wheel

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

/// A type whose values are nodes of a [`List`].
///
/// # Safety
///
/// Each getter returns the last value of its setter. While a node is in a list, only the list calls the setters.
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

/// Implements [`Linked`] for a type with a field of type [`Links`], at a path that may call methods.
macro_rules! links {
    ($node:ty, $($links:tt)+) => {
        // SAFETY: each getter reads the cell that its setter writes. Only this trait writes the cells.
        unsafe impl $crate::memory::Linked for $node {
            #[inline]
            fn next(&self) -> *mut Self {
                self.$($links)+.next.get()
            }

            #[inline]
            fn set_next(&self, next: *mut Self) {
                self.$($links)+.next.set(next);
            }

            #[inline]
            fn previous(&self) -> *mut Self {
                self.$($links)+.previous.get()
            }

            #[inline]
            fn set_previous(&self, previous: *mut Self) {
                self.$($links)+.previous.set(previous);
            }
        }
    };
}
pub(crate) use links;

/// The place where a list stores the address of its last node: in a word of its own, or in the first node.
///
/// # Safety
///
/// `last` returns the last value of `set_last`. Both are called only while the list is not empty, with its first node.
pub(crate) unsafe trait Last<N>: Copy {
    /// No node.
    const NONE: Self;

    fn last(&self, first: &N) -> *mut N;
    fn set_last(&mut self, first: &N, last: *mut N);
}

/// Stores the last node in the `previous` link of the first. The list is one word, and a push at the back writes to the
/// first node.
#[derive(Clone, Copy)]
pub(crate) struct InFirst;

// SAFETY: the first node has no predecessor, so no other code uses its `previous` link.
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

/// Stores the last node in a word of the list. A push at the back writes to the last node only.
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

// SAFETY: the field holds the last value of `set_last`.
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

/// An intrusive list of `N`. `L` says where the last node is stored.
pub(crate) struct List<N: Linked, L: Last<N> = InFirst> {
    /// Null while the list is empty. The `next` of the last node is null.
    first: *mut N,
    /// Meaningful only while `first` is not null.
    last: L,
    _nodes: PhantomData<*mut N>,
}

impl<N: Linked, L: Last<N>> Default for List<N, L> {
    fn default() -> Self {
        List::new()
    }
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

    /// Returns the node at the front.
    #[inline]
    pub(crate) fn first(&self) -> Option<NonNull<N>> {
        NonNull::new(self.first)
    }

    /// Returns the node at the back.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn last(&self) -> Option<NonNull<N>> {
        let first = self.first()?;
        // SAFETY: a node in the list is valid.
        NonNull::new(self.last.last(unsafe { first.as_ref() }))
    }

    /// Appends a node at the back.
    ///
    /// # Safety
    ///
    /// The node is valid, pinned and in no list. It stays valid until it is removed.
    #[cfg(feature = "alloc")]
    #[inline]
    pub(crate) unsafe fn push_back(&mut self, node: NonNull<N>) {
        // SAFETY: the node is valid, by the contract of this function. Nodes in the list are valid, by the invariants.
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

    /// Adds a node at the front.
    ///
    /// # Safety
    ///
    /// The node is valid, pinned and in no list. It stays valid until it is removed.
    #[inline]
    pub(crate) unsafe fn push_front(&mut self, node: NonNull<N>) {
        // SAFETY: the node is valid, by the contract of this function. Nodes in the list are valid, by the invariants.
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

    /// Removes a node.
    ///
    /// # Safety
    ///
    /// The node is in this list.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, node: NonNull<N>) {
        // SAFETY: the node and its neighbours are in the list, and so valid, by the invariants.
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

    /// Removes and returns the first node.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<NonNull<N>> {
        let first = self.first()?;
        // SAFETY: the node is the first of this list.
        unsafe { self.remove(first) };
        Some(first)
    }

    /// Moves all nodes to a new list.
    #[cfg(feature = "alloc")]
    #[inline]
    #[allow(clippy::mem_replace_with_default, reason = "`mem::take` is not a `const fn`")]
    pub(crate) const fn take(&mut self) -> Self {
        core::mem::replace(self, List::new())
    }

    /// Returns the nodes, first to last. The list must not change during the iteration.
    #[cfg(feature = "std")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = NonNull<N>> {
        let mut at = self.first;
        core::iter::from_fn(move || {
            let node = NonNull::new(at)?;
            // SAFETY: a node in the list is valid, by the invariants, and the list is borrowed.
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

    struct TestNode {
        number: usize,
        links: Links<TestNode>,
    }

    links!(TestNode, links);

    /// Applies random operations to a list and to a deque, and compares the two after each step.
    fn agrees_with_a_deque<L: Last<TestNode>>() {
        const NODES: usize = 24;
        let nodes: Vec<TestNode> = (0..NODES)
            .map(|number| TestNode {
                number,
                links: Links::new(),
            })
            .collect();
        let node = |number: usize| NonNull::from(&nodes[number]);
        // SAFETY: the nodes are valid until the end of this function.
        let number = |node: NonNull<TestNode>| unsafe { node.as_ref() }.number;
        let mut list = List::<TestNode, L>::new();
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
                    // SAFETY: the node was found in the deque, and so is in the list.
                    unsafe { list.remove(node(chosen)) };
                }
                (2 | 3, None) => {
                    deque.push_front(chosen);
                    // SAFETY: the vector does not move, and the node is not in the deque and so in no list.
                    unsafe { list.push_front(node(chosen)) };
                }
                (_, None) => {
                    deque.push_back(chosen);
                    // SAFETY: the vector does not move, and the node is not in the deque and so in no list.
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
        assert_eq!(size_of::<List<TestNode>>(), size_of::<usize>());
    }

    #[test]
    fn a_list_with_its_end_beside_agrees_with_a_deque() {
        agrees_with_a_deque::<Beside<TestNode>>();
    }
}
