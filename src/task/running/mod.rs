//! Homes on schedulers that have no queue.
//!
//! This layer is above `strand`. A [`Home`](crate::task::frame::Home) names a scheduler and a queue. Schedulers of this crate have one.
//! For any other, this layer makes a *hop*: one schedule operation that all frames of a strand share as their queue.
//!
//! # Key types
//!
//! - [`Hop`](hop::Hop) is the queue: the frames that wait, and room for one schedule operation.
//! - [`HopTo`] is the hop to schedulers of one type. The erased scheduler has its table.
//!
//! # States, and who may access what
//!
//! The hop is *idle*, or *busy* while frames wait. The frame that makes it busy owns the room: it connects the schedule operation
//! there, and starts it. The completion of the operation takes all frames, destroys the operation, and makes the hop idle. The tables
//! in [`hop`] have each transition.
//!
//! # Why it is sound
//!
//! A frame that waits is not done, so the operation of its task is alive, and with it the scheduler and the hop. The completion
//! touches nothing of the hop after it has made the hop idle.

mod hop;

pub(crate) use self::hop::{HopTo, HopVtable};
