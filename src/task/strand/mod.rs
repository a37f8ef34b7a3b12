//! A strand: the context that its frames share, its unit, and what is tethered to its frames.

mod context;
mod locals;
pub(super) mod raising;
mod reason;
mod record;
pub(super) mod scoped_future;
mod task_ref;
mod tether;
mod unit;

pub(super) use self::context::{Awaiter, Context};
use self::locals::Binding;
pub(super) use self::locals::Locals;
pub(super) use self::raising::{BATCH, Batch, Link, Raising, ToRaise, current_level};
pub use self::reason::Reason;
pub(super) use self::record::Facts;
use self::record::Record;
pub(super) use self::scoped_future::{Change, Ended, Leftover, ScopedFuture};
pub use self::task_ref::{TaskId, TaskRef};
pub(super) use self::tether::{Tether, Tethered};
pub(super) use self::unit::{Counted, Unit};
