//! Nests of type-erased senders that were never started, destroyed in a loop.
//!
//! The depth of such a nest is only known at run time, so drop glue, which recurses, would take stack for each level.
//! Instead, a box that is destroyed first asks its sender for the boxes that the sender owns directly, with
//! [`Sender::dismantle`], and destroys those after the sender. Boxes that a sender owns in ways that it does not tell, in
//! a closure for instance, are destroyed by drop glue: at once, by recursion. Nothing is ever deferred that was merely
//! dropped while a box was being destroyed.

use core::marker::PhantomData;
use core::mem;
use core::ptr::{self, NonNull};

#[cfg(feature = "alloc")]
use super::Sender;

/// Type-erased senders that were moved out of the one that is being destroyed, and are destroyed when this is dropped.
///
/// `'a` is invariant, and [`Sender::dismantle`] is generic over it: all that a sender can put here is what it owns, which
/// lives as long as the sender's type does.
pub struct DropList<'a> {
    head: *mut DropNode,
    /// The last of those that the current sender has added, or null: they are added at the head, in their order.
    added: *mut DropNode,
    _borrowed: PhantomData<fn(&'a ()) -> &'a ()>,
}

/// The link of something that can wait in a [`DropList`].
pub(crate) struct DropNode {
    next: *mut DropNode,
    destroy: Destroy,
}

/// Adds what the owner of the node owns to the list, and destroys the owner.
///
/// # Safety
///
/// The node is that of such an owner, which is used by nothing else any more.
type Destroy = unsafe fn(NonNull<DropNode>, &mut DropList<'_>);

#[cfg(feature = "alloc")]
impl DropNode {
    /// A node of an owner that `destroy` destroys.
    pub(crate) const fn new(destroy: Destroy) -> Self {
        DropNode {
            next: ptr::null_mut(),
            destroy,
        }
    }

    /// Destroys the owner of a node, and all that it owns in turn, in a loop.
    ///
    /// # Safety
    ///
    /// As for the node's function. What the owner's type borrows is valid until this returns.
    pub(crate) unsafe fn destroy(this: NonNull<DropNode>) {
        let mut list = DropList {
            head: ptr::null_mut(),
            added: ptr::null_mut(),
            _borrowed: PhantomData,
        };
        // SAFETY: the caller's promise; the list is dropped before this returns.
        unsafe { list.push(this) };
    }
}

#[cfg(feature = "alloc")]
impl DropList<'_> {
    /// Adds an owner, behind those that the current sender has added before.
    ///
    /// # Safety
    ///
    /// The node's owner is used by nothing else any more, and what its type borrows outlives `'a`.
    pub(crate) unsafe fn push(&mut self, node: NonNull<DropNode>) {
        // SAFETY: nodes in the list are alive, and used by the list alone.
        unsafe {
            let place = match self.added.as_mut() {
                Some(added) => &mut added.next,
                None => &mut self.head,
            };
            (*node.as_ptr()).next = mem::replace(place, node.as_ptr());
        }
        self.added = node.as_ptr();
    }

    /// Adds what a sender owns directly.
    pub(crate) fn collect<S: Sender>(&mut self, sender: &mut S) {
        // SAFETY: only the lifetime differs. `dismantle` is generic over it, so it can add nothing but what `S` owns. The
        // owner of a node in this list owned `S`, so what `S` borrows is valid as long as what that owner borrows.
        let list = unsafe { &mut *ptr::from_mut(self).cast::<DropList<'_>>() };
        sender.dismantle(list);
    }
}

impl DropList<'_> {
    fn run(&mut self) {
        /// Destroys what is left when a destructor unwinds.
        struct Rest<'l, 'a>(&'l mut DropList<'a>);
        impl Drop for Rest<'_, '_> {
            fn drop(&mut self) {
                self.0.run();
            }
        }

        while let Some(node) = NonNull::new(self.head) {
            // SAFETY: nodes in the list are alive, and used by the list alone. This one leaves it.
            let destroy = unsafe {
                self.head = node.as_ref().next;
                node.as_ref().destroy
            };
            self.added = ptr::null_mut();
            let rest = Rest(self);
            // SAFETY: it was in the list, so nothing else uses it.
            unsafe { destroy(node, rest.0) };
            mem::forget(rest);
        }
    }
}

impl Drop for DropList<'_> {
    fn drop(&mut self) {
        self.run();
    }
}

crate::opaque!([] DropList<'_>);

/// Implements [`Sender::dismantle`] for an adaptor with children in these fields.
macro_rules! dismantle {
    ($($child:ident),+) => {
        #[inline]
        fn dismantle<'dismantled>(&mut self, list: &mut $crate::sender::dismantle::DropList<'dismantled>)
        where
            Self: 'dismantled,
        {
            $($crate::Sender::dismantle(&mut self.$child, list);)+
        }
    };
}
pub(crate) use dismantle;
