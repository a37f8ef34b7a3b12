use core::ptr::NonNull;

#[cfg(not(loom))]
use super::ThreadPool;
use super::thread_pool::Entry;
#[cfg(not(loom))]
use crate::Scheduler;
use crate::Transfer;

/// Queues the job of an entry with the global pool: for work that has no scheduler of its own to go to, where the calling
/// thread may hold locks. In a model, which has no global pool, the job is handed back to the caller's driver.
///
/// # Safety
///
/// The entry is in no queue, and stays where it is until its job runs.
pub(crate) unsafe fn elsewhere(entry: NonNull<Entry>) -> Transfer {
    // SAFETY: the caller's promise.
    #[cfg(not(loom))]
    return unsafe { ThreadPool::global().scheduler().enqueue(entry) };
    // SAFETY: the caller's promise.
    #[cfg(loom)]
    return unsafe { Transfer::to(entry.cast()) };
}
