use core::ptr::NonNull;

#[cfg(not(loom))]
use super::ThreadPool;
use super::thread_pool::Entry;
use crate::Transfer;
#[cfg(not(loom))]
use crate::sender::native::Queue;

/// Queues the job of an entry with the global pool: for work that has no scheduler of its own to go to, where the calling
/// thread may hold locks. In a model, which has no global pool, the job is handed back to the caller's driver.
///
/// # Safety
///
/// The entry is in no queue, and stays where it is until its job runs.
pub(crate) unsafe fn elsewhere(entry: NonNull<Entry>) -> Transfer {
    #[cfg(not(loom))]
    {
        let scheduler = ThreadPool::global().scheduler();
        // SAFETY: the caller's promise. A pool runs the job of any entry; the handle is a local, and the pool never ends.
        unsafe { Queue::enqueue(NonNull::from(&scheduler), entry.cast()) }
    }
    // SAFETY: the caller's promise.
    #[cfg(loom)]
    unsafe {
        Transfer::to(entry.cast())
    }
}
