//! The word that names the owner of a single child's result.
//!
//! | value | meaning |
//! |---|---|
//! | null | the child runs, and no party waits |
//! | a [`Joiner`], with `STARTING` | the child runs, and the joiner begins to wait. Its start notices a removal |
//! | a joiner | the child runs, and the joiner waits. The removing party completes it |
//! | `DONE` | the child has ended; the result is in the frame, and belongs to the [`ChildClaim`](super::claim::ChildClaim) |
//! | `TAKEN` | the child has ended; the result belongs to the joiner that waited |
//! | `GONE` | the result was disclaimed: the end of the child discards it |
//! | `ORPHAN` | like `GONE`; the end also ends the await that the parent has counted |
//! | `OVER` | the child has ended, and its result was discarded |
//!
//! | from | to | writer |
//! |---|---|---|
//! | null | a joiner, with `STARTING` | the joiner's start |
//! | a joiner, with `STARTING` | the joiner | the joiner's start, when it listens to its stop token |
//! | a joiner, with or without `STARTING` | null | the joiner's stop callback |
//! | null, a joiner with `STARTING` | `DONE` | the end of the child |
//! | a joiner | `TAKEN` | the end of the child, which completes the joiner |
//! | null, a joiner | `GONE`, `ORPHAN` | the claim, when it is dropped |
//! | null, a joiner, `GONE` | `ORPHAN` | the parent, when its future is dropped |
//! | `GONE`, `ORPHAN` | `OVER` | the end of the child, after the result was discarded |
//!
//! Every change is `AcqRel`, and every load acquires. So a party that finds `DONE` sees the result. A party that completes a joiner
//! sees the writes of the joiner's start.

use core::ptr::{self, NonNull};

use super::join::Joiner;

pub(super) const DONE: *mut Joiner = ptr::without_provenance_mut(1);
pub(super) const GONE: *mut Joiner = ptr::without_provenance_mut(2);
pub(super) const ORPHAN: *mut Joiner = ptr::without_provenance_mut(3);
pub(super) const OVER: *mut Joiner = ptr::without_provenance_mut(5);
pub(super) const TAKEN: *mut Joiner = ptr::without_provenance_mut(7);
/// A bit that is zero in the address of a joiner: its start has not returned.
pub(super) const STARTING: usize = 1;

/// Returns the joiner that the word names, if it waits.
pub(super) fn waiting(word: *mut Joiner) -> Option<NonNull<Joiner>> {
    NonNull::new(word).filter(|joiner| joiner.addr().get() & STARTING == 0 && word != GONE)
}
