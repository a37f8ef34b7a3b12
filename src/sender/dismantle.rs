//! Nests of type-erased senders that were never started, destroyed in a loop.
//!
//! The depth of such a nest is only known at run time, so drop glue, which recurses, would take stack for each level.
//! Instead, a box that is destroyed first takes the boxes that its sender owns directly, with [`Sender::dismantle`],
//! and destroys those after the sender. Other boxes, in a closure for instance, are destroyed by drop glue, by
//! recursion. A drop that is not part of this is never deferred.

use core::marker::PhantomData;
use core::mem;
use core::ptr::{self, NonNull};

#[cfg(feature = "alloc")]
use super::Sender;

/// Type-erased senders that were moved out of a sender that is being destroyed. Dropping the list destroys them.
///
/// `'a` is invariant, and [`Sender::dismantle`] is generic over it. So a sender can add only what it owns, which is
/// valid as long as the sender's type.
pub struct DropList<'a> {
    head: *mut DropNode,
    /// The last node that the current sender has added, or null. Nodes are added at the head, in their order.
    added: *mut DropNode,
    _borrowed: PhantomData<fn(&'a ()) -> &'a ()>,
}

/// The link of an owner that can be in a [`DropList`].
pub(crate) struct DropNode {
    next: *mut DropNode,
    destroy: Destroy,
}

/// Adds the boxes of the node's owner to the list, and destroys the owner.
///
/// # Safety
///
/// The node is that of an owner that has this function, and to which the caller has exclusive access.
type Destroy = unsafe fn(NonNull<DropNode>, &mut DropList<'_>);

#[cfg(feature = "alloc")]
impl DropNode {
    /// Makes the node of an owner that `destroy` destroys.
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
    /// The contract of the node's function. What the owner's type borrows is valid until this returns.
    pub(crate) unsafe fn destroy(this: NonNull<DropNode>) {
        let mut list = DropList {
            head: ptr::null_mut(),
            added: ptr::null_mut(),
            _borrowed: PhantomData,
        };
        // SAFETY: the contract is that of `push`; the list is dropped before this returns.
        unsafe { list.push(this) };
    }
}

#[cfg(feature = "alloc")]
impl DropList<'_> {
    /// Adds an owner, after those that the current sender has added before.
    ///
    /// # Safety
    ///
    /// The caller has exclusive access to the node's owner, and what the owner's type borrows outlives `'a`.
    pub(crate) unsafe fn push(&mut self, node: NonNull<DropNode>) {
        // SAFETY: nodes in the list are alive, and the list has exclusive access to them.
        unsafe {
            let place = match self.added.as_mut() {
                Some(added) => &mut added.next,
                None => &mut self.head,
            };
            (*node.as_ptr()).next = mem::replace(place, node.as_ptr());
        }
        self.added = node.as_ptr();
    }

    /// Adds the boxes that a sender owns directly.
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
            // SAFETY: nodes in the list are alive, and the list has exclusive access to them. This one leaves it.
            let destroy = unsafe {
                self.head = node.as_ref().next;
                node.as_ref().destroy
            };
            self.added = ptr::null_mut();
            let rest = Rest(self);
            // SAFETY: it was in the list, which had exclusive access to it.
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
