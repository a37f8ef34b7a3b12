//! [`HostedScheduler`]: a queue of jobs that another executor drives.
//!
//! The host polls a number of [`HostedDriver`]s, which are plain futures. A driver takes jobs from the shared queue and
//! runs them inside `poll`. Without jobs it parks: it stores its waker, and a push wakes it.
//!
//! | file | contents |
//! |---|---|
//! | `schedule.rs` | the scheduler, its sender and its operation |
//! | `driver.rs` | the future that runs jobs, and what a job that blocks does |
//! | `shared.rs` | the memory of a queue: who is parked, push, take, end |
//! | `host.rs` | the trait of a host that does more than to poll |
//!
//! # States of a driver
//!
//! | state | meaning | counted in |
//! |---|---|---|
//! | awake | polled now, or not polled yet | |
//! | parked | its waker is in its slot | `parked` |
//! | notified | its waker was called, and it is polled soon | `notified` |
//! | gone | dropped, or its future has ended | |
//!
//! | change | when | by |
//! |---|---|---|
//! | awake → parked | the queue is empty | the driver |
//! | awake → notified | its budget is used up and jobs are queued | the driver, which wakes itself |
//! | parked → notified | a job is pushed, and more jobs are queued than drivers notified | the pusher, or a driver that takes a job |
//! | parked → notified | the queue is closed | the closing thread; then each driver that is polled or dropped wakes the next one |
//! | notified → awake | it is polled, or its waker has panicked | the driver, or the waking thread |
//! | parked → awake | it is polled for another reason | the driver |
//! | any → gone | the host drops it | the host |
//! | awake → gone | there are more drivers than asked for, or the queue is closed and empty | the driver |
//!
//! # States of a queue
//!
//! | state | meaning |
//! |---|---|
//! | open | pushes are accepted |
//! | closed, forwarding | pushes are refused; the closing thread moves the entries to the global pool, and drivers may take some |
//! | closed | pushes are refused, no entry is left, and the drivers leave |
//! | over | the last driver has left: the memory may be used again |
//!
//! | change | when | by |
//! |---|---|---|
//! | open → forwarding | the host drops a driver, or calls [`HostedScheduler::end`] | the thread that does so |
//! | forwarding → closed or over | the lists are empty | the same thread |
//! | closed → over | no driver is left | the last driver |
//!
//! A refused push is forwarded by the pusher. The first drop closes the queue, not the last: a host that ends drops the drivers that
//! rest, and cannot drop one that is inside a job. That job may wait for the very jobs that are queued, by whichever means.
//!
//! # Who may access what
//!
//! Everything is lock-protected, by one lock for each queue. It is held for a few instructions. No user code runs under it:
//! wakers are cloned before, and called or dropped after. A job is queued in at most one place, and taken out under the
//! lock, so it runs once. The memory of a queue is never freed, but kept for a later one as a new *generation*: a push may
//! access it after its job has run. An older generation's pushes are refused.
//!
//! # Callers
//!
//! Tasks queue their frames by the [`Queue`](crate::sender::native::Queue) of the scheduler. Run loops call
//! [`while_blocked`] before they put a thread to sleep.

mod driver;
mod host;
mod schedule;
mod shared;

pub use driver::HostedDriver;
pub(crate) use driver::while_blocked;
pub use host::Host;
pub use schedule::{HostedSchedule, HostedScheduler};
