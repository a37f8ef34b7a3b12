//! Spare memory behind a frame: its first chunk, allocated together with the frame.
//!
//! Most frames of a type need the same memory for what they await, or none. So a spawned child gets as much spare memory as
//! the last frame of its type needed for its first block. That saves an allocation for each child that waits.

use super::chunk;
use crate::sync::atomic::{AtomicU8, Ordering::Relaxed};
use crate::task::frame::FrameVtable;

/// The unit of the size.
pub(in crate::task) const UNIT: usize = chunk::UNIT;
/// Frames that need more than this get none.
const MOST: usize = 512;

/// The sizes in units, by the address of a vtable. Types may share a place: a wrong size costs an allocation, or some bytes.
/// Loaded and stored by any thread with relaxed ordering, since they publish nothing.
#[cfg(not(loom))]
static SIZES: [AtomicU8; 256] = [const { AtomicU8::new(0) }; 256];
// Atomics of a model cannot be static.
#[cfg(loom)]
static SIZES: [AtomicU8; 0] = [];

fn place(vtable: &'static FrameVtable) -> Option<&'static AtomicU8> {
    SIZES.get((&raw const *vtable).addr() / 16 % 256)
}

/// Returns the size that suits the next frame of this type, in units.
#[inline]
pub(in crate::task) fn hint(vtable: &'static FrameVtable) -> u8 {
    place(vtable).map_or(0, |size| size.load(Relaxed))
}

/// Notes how much memory a frame of this type needed.
#[cold]
pub(in crate::task::frame) fn learn(vtable: &'static FrameVtable, needed: usize) {
    let size = if needed > MOST { 0 } else { needed.div_ceil(UNIT) as u8 };
    // A store of the same value would only take the cache line from other threads.
    if let Some(place) = place(vtable).filter(|place| place.load(Relaxed) != size) {
        place.store(size, Relaxed);
    }
}
