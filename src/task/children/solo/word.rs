//! The word that says which party the result of a single child belongs to.
//!
//! | value | means |
//! |---|---|
//! | null | it runs, and nobody waits |
//! | a [`Joiner`], with `STARTING` | it runs, and that begins to wait. Whoever takes it out of here has nothing to do: its start sees that |
//! | a joiner | it runs, and that waits. Whoever takes it out of here completes it |
//! | `DONE` | it has ended; the result is in the frame, and belongs to the owner of the [`ChildClaim`](super::claim::ChildClaim) |
//! | `TAKEN` | it has ended; the result belongs to the joiner that waited |
//! | `GONE` | nobody will ask: the end drops the result |
//! | `ORPHAN` | the same, and then wakes the parent, which has counted an await |
//! | `OVER` | it has ended, and the result was dropped by that |
//!
//! | from | to | by |
//! |---|---|---|
//! | null | a joiner, with `STARTING` | the joiner's start |
//! | that | the joiner | the same, when it listens to its stop token |
//! | either of those | null | its stop |
//! | null, a joiner with `STARTING` | `DONE` | the end |
//! | a joiner | `TAKEN` | the end, which completes the joiner |
//! | null, a joiner | `GONE`, `ORPHAN` | the claim, when it is dropped |
//! | null, a joiner, `GONE` | `ORPHAN` | the parent, when its future is gone |
//! | `GONE`, `ORPHAN` | `OVER` | the end, when the result was dropped |
//!
//! Every change acquires and releases: who finds `DONE` sees the result, and who completes a joiner sees all of that.

use core::ptr::{self, NonNull};

use super::join::Joiner;

pub(super) const DONE: *mut Joiner = ptr::without_provenance_mut(1);
pub(super) const GONE: *mut Joiner = ptr::without_provenance_mut(2);
pub(super) const ORPHAN: *mut Joiner = ptr::without_provenance_mut(3);
pub(super) const OVER: *mut Joiner = ptr::without_provenance_mut(5);
pub(super) const TAKEN: *mut Joiner = ptr::without_provenance_mut(7);
/// The lowest bit of the address of a joiner.
pub(super) const STARTING: usize = 1;

/// The joiner that a value of the word is, if it waits.
pub(super) fn waiting(word: *mut Joiner) -> Option<NonNull<Joiner>> {
    NonNull::new(word).filter(|joiner| joiner.addr().get() & STARTING == 0 && word != GONE)
}
