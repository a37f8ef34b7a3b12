//! Raising the children of a group.

use core::mem::{self, ManuallyDrop};
use core::ptr::NonNull;

use super::core::{GroupCore, GroupRef};
use crate::Priority;
use crate::sender::stage::container_of;
use crate::sync::atomic::Ordering::Relaxed;
use crate::task::frame::Header;
use crate::task::strand::{BATCH, Batch, Link, Raising, ToRaise};

impl GroupCore {
    /// Keeps a group that is to be raised.
    ///
    /// # Safety
    ///
    /// The link is that of a group, which has not left.
    pub(super) unsafe fn hold(link: NonNull<Link>) -> Option<ToRaise> {
        /// # Safety
        ///
        /// The group is counted, and this gives that back.
        unsafe fn raise(what: NonNull<()>, level: Priority, raising: &mut Raising) {
            GroupRef(what.cast()).raise(level, raising);
        }

        // SAFETY: by the caller's promise, it is there.
        let core = ManuallyDrop::new(GroupRef(unsafe { container_of!(link, GroupCore, link) }));
        mem::forget(GroupRef::clone(&core));
        Some(ToRaise {
            what: core.0.cast(),
            raise,
        })
    }

    /// Makes all children at least as urgent, and those that come later.
    fn raise(&self, level: Priority, raising: &mut Raising) {
        let mut lock = self.lock();
        if lock.floor >= Some(level) {
            return;
        }
        lock.floor = Some(level);
        self.lowest.fetch_max(level as u8, Relaxed);
        let mut here = lock.cursor();
        let cursor = &raw mut here;
        // SAFETY: it is removed below.
        unsafe { lock.add_cursor(cursor) };
        // One that waits for more than there was room for, and is where the cursor is.
        let mut again = None;
        loop {
            let mut batch = Batch::default();
            // SAFETY: the cursor, and the child that it is at, are under the lock.
            let ends = unsafe {
                for _ in 0..BATCH {
                    let Some(child) = (*cursor).child() else { break };
                    let all = if again == Some(child) {
                        Raising::links(Header::unit(child).as_ref(), level, &mut batch)
                    } else {
                        raising.frames(child, level, &mut batch)
                    };
                    if !all {
                        again = Some(child);
                        break;
                    }
                    (*cursor).advance();
                }
                let ends = (*cursor).child().is_none();
                if ends {
                    lock.remove_cursor(cursor);
                }
                ends
            };
            drop(lock);
            raising.keep(&mut batch, level);
            if ends {
                return;
            }
            lock = self.lock();
        }
    }

    /// Somebody this urgent waits for the children.
    pub(super) fn wanted_at(&self, level: Priority) {
        if self.lowest.load(Relaxed) < level as u8 {
            let mut raising = Raising::default();
            self.raise(level, &mut raising);
            raising.finish();
        }
    }
}
