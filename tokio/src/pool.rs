//! Pools of bowline whose threads are inside a runtime.

use bowline::scheduler::{BuildError, ThreadPool, ThreadPoolBuilder};
use tokio::runtime::Handle;

/// Creates a pool of bowline's whose threads are inside a tokio runtime.
///
/// Tasks on the pool use tokio's sockets, timers and `tokio::spawn`. The runtime's own threads wait for them: a runtime with one
/// thread is enough. Computations do not delay the sockets, and have the pool's priorities and work stealing. A wake-up crosses
/// from one of tokio's threads to one of the pool's, which costs more than on a [`TokioScheduler`](crate::TokioScheduler).
///
/// ```
/// use bowline::prelude::*;
/// use std::time::Duration;
///
/// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
/// let pool = bowline_tokio::pool(runtime.handle(), 2)?;
/// let work = Task::new(async {
///     tokio::time::sleep(Duration::from_millis(1)).await;
///     tokio::spawn(async { 6 * 7 }).await.unwrap()
/// });
/// assert_eq!(sync_wait(starts_on(pool.scheduler(), work)).unwrap(), 42);
/// # Ok::<(), bowline::scheduler::BuildError>(())
/// ```
///
/// The pool does not keep the runtime running. Drop the pool first: after the runtime's shutdown its sockets and timers return
/// errors or panic. A runtime of the flavor `current_thread` serves them only while a thread is inside `Runtime::block_on`.
///
/// # Errors
///
/// Those of [`ThreadPoolBuilder::build`].
pub fn pool(handle: &Handle, threads: usize) -> Result<ThreadPool, BuildError> {
    inside(handle, ThreadPool::builder().threads(threads)).build()
}

/// Makes the threads of a pool enter a tokio runtime. Sets the function of [`ThreadPoolBuilder::around`].
///
/// ```
/// use bowline::scheduler::ThreadPool;
///
/// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
/// let names = ThreadPool::builder().threads(1).names(|n| format!("cook-{n}"));
/// let pool = bowline_tokio::inside(runtime.handle(), names).build()?;
/// assert!(pool.install(|| tokio::runtime::Handle::try_current().is_ok()));
/// # Ok::<(), bowline::scheduler::BuildError>(())
/// ```
pub fn inside(handle: &Handle, builder: ThreadPoolBuilder) -> ThreadPoolBuilder {
    let handle = handle.clone();
    builder.around(move |_, run| {
        let _context = handle.enter();
        run();
    })
}
