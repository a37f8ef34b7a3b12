//! Tasks with their types.
//!
//! This layer is above `awaiting`. It gives a frame its future, its result, its context and its allocator.
//!
//! # Key types
//!
//! - [`Task`] owns a frame that was not started. It is a sender, whose operation is a [`TaskOperation`], and a future by
//!   [`TaskFuture`].
//! - [`Frame`] is the frame with its types, and the functions of its vtable. Its *tail* belongs to the owner: a unit, or a child's
//!   part of its group.
//! - [`TaskContext`] is the user's configuration. A frame whose context does not inherit has an `OwnContext`.
//! - [`LocalTask`] is a task whose future and result check the thread that they are used on.
//!
//! # Who may access what, and when
//!
//! | part of a frame | accessed by |
//! |---|---|
//! | the future | the polling thread |
//! | the result | the polling thread, until the frame is done; then the owner |
//! | the tail | as the owner says: see `children` |
//! | the own context | written by the start; dropped by the polling thread before the frame is done |
//!
//! # Why it is sound
//!
//! - A vtable is made with the types of its frame, and `Frame::make` writes both. So each function casts to the right type.
//! - The operation of a task is pinned and alive until the frame is done: it is the frame's successor. So the context, the unit and
//!   the scheduler in it outlive the frame.
//! - User code is asked before the frame starts. If it panics, nothing half-made is left.

mod allocator;
mod builder;
mod context;
mod future;
mod homed;
mod local;
mod operation;
mod own_context;
mod task;
mod typed_frame;

pub use self::allocator::{CurrentAllocator, TaskAllocator};
pub use self::builder::TaskBuilder;
use self::builder::or_panic;
pub use self::context::{ContextScheduler, DefaultContext, FromEnv, InAllocator, Inline, Providing, TaskContext};
pub use self::future::TaskFuture;
use self::homed::{Homed, HomedFuture};
pub use self::local::{LocalTask, LocalTaskFuture, LocalTaskOperation};
use self::operation::SchedulerIn;
pub use self::operation::TaskOperation;
use self::own_context::OwnContext;
pub use self::task::Task;
pub(super) use self::typed_frame::{Frame, FrameTail, Plain};
use self::typed_frame::{Produce, Try};
