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
    /// Adds a reference to a group that is to be raised.
    ///
    /// # Safety
    ///
    /// `link` is that of a group, and listed.
    pub(super) unsafe fn hold(link: NonNull<Link>) -> Option<ToRaise> {
        /// # Safety
        ///
        /// `what` is a reference to a group, which this releases.
        unsafe fn raise(what: NonNull<()>, level: Priority, raising: &mut Raising) {
            GroupRef(what.cast()).raise(level, raising);
        }

        // SAFETY: the caller's promise. A group with a listed link is alive.
        let core = ManuallyDrop::new(GroupRef(unsafe { container_of!(link, GroupCore, link) }));
        mem::forget(GroupRef::clone(&core));
        Some(ToRaise {
            what: core.0.cast(),
            raise,
        })
    }

    /// Raises all children to at least `level`, later ones included.
    fn raise(&self, level: Priority, raising: &mut Raising) {
        let mut lock = self.lock();
        if lock.floor >= Some(level) {
            return;
        }
        lock.floor = Some(level);
        self.lowest.fetch_max(level as u8, Relaxed);
        let mut here = lock.cursor();
        let cursor = &raw mut here;
        // SAFETY: the cursor is removed before this returns.
        unsafe { lock.add_cursor(cursor) };
        // The child at the cursor, if it has more links than fitted into the last batch. Its frames were raised then.
        let mut again = None;
        loop {
            let mut batch = Batch::default();
            // SAFETY: the cursor and its child are lock-protected.
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
            // `keep` allocates, so it needs the unlock. Children may end meanwhile: `end_child` advances the cursor.
            drop(lock);
            raising.keep(&mut batch, level);
            if ends {
                return;
            }
            lock = self.lock();
        }
    }

    /// Raises the children to the level of a party that waits for them.
    pub(super) fn wanted_at(&self, level: Priority) {
        if self.lowest.load(Relaxed) < level as u8 {
            let mut raising = Raising::default();
            self.raise(level, &mut raising);
            raising.finish();
        }
    }
}
