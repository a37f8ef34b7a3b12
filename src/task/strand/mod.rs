//! A strand: a task as the papers know it, with the tasks that are awaited in it.
//!
//! This layer is above `frame`. It says what the frames of a strand share, and knows neither schedulers without a queue, nor
//! senders, nor the types of tasks.
//!
//! # Key types
//!
//! - [`Unit`] is the strand itself. Its first field is the tracker that frames know. It lives in the operation of a task, or in the
//!   tail of a child's frame.
//! - [`Context`] is what the strand inherits. Its first field is the placement that frames know. It lives beside the unit; a scope
//!   has a context of its own in a block.
//! - [`ScopedFuture`] polls a future with another context: shields, deadlines and task-local values.
//! - [`Tether`] ties something on the heap to the frame that it began in.
//! - [`Link`] is something that a strand waits for and that is raised with the strand.
//! - [`TaskRef`] and its record outlive the strand.
//!
//! # Who may access what, and when
//!
//! | what | accessed by |
//! |---|---|
//! | a context | written before a frame uses it. After that it does not change, and any thread reads it |
//! | the lists of a unit, the fields of a [`Link`] and of a [`Counted`] | the thread that holds the lock of the unit |
//! | the record of a unit | any thread, by an atomic pointer; its fields under its own lock or its parent's |
//! | a binding of a task-local value | any thread; it does not change once it is linked |
//!
//! # States
//!
//! A strand begins with its first frame, and ends after its last one: `Unit::end` publishes the last facts. A scope is *entered* by
//! each user, and ends with the last of them. A tether is *tied*, and then *untied* by its owner, or *loose* and left to its frame.
//!
//! # Why it is sound
//!
//! - A frame stores pointers to the first fields of a context and of a unit. `Header::begin` asks for both types, so a cast back is
//!   right.
//! - A unit outlives its frames. A context outlives its frames, or its scope counts them as users.
//! - What is tethered holds a reference that the frame releases, and the frame is not done before that.
//! - No user code runs under the lock of a unit. A raise collects what it finds in a batch, and raises it after the unlock.

mod context;
#[cfg(feature = "inspect")]
mod instrument;
mod locals;
mod raising;
pub(super) mod scoped_future;
mod stop_handler;
mod task_ref;
mod tether;
mod unit;

pub(super) use self::context::{Awaiter, Context};
#[cfg(feature = "inspect")]
pub use self::instrument::{Instrument, SetInstrumentError, set_instrument};
use self::locals::Binding;
pub(super) use self::locals::Locals;
pub(super) use self::raising::{BATCH, Batch, Counted, Link, Raising, ToRaise, current_level};
pub(super) use self::scoped_future::{Change, ScopedFuture};
pub(super) use self::stop_handler::{StopHandler, hears_stop, stops_here};
#[cfg(feature = "inspect")]
pub(super) use self::task_ref::Roots;
pub(super) use self::task_ref::Snapshot;
use self::task_ref::{Facts, Record};
pub use self::task_ref::{TaskId, TaskRef};
pub(super) use self::tether::{Tether, Tethered};
pub(super) use self::unit::Unit;
