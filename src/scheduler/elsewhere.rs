use core::ptr::NonNull;

#[cfg(not(loom))]
use super::ThreadPool;
use super::thread_pool::Entry;
use crate::Transfer;
#[cfg(not(loom))]
use crate::sender::native::Queue;

/// Queues the job of an entry in the global pool. Used for work without a scheduler of its own, when the calling thread
/// may hold locks. A model has no global pool: there the job is returned to the caller's driver.
///
/// # Safety
///
/// The entry is in no queue, and stays valid at its address until its job runs.
pub(crate) unsafe fn elsewhere(entry: NonNull<Entry>) -> Transfer {
    #[cfg(not(loom))]
    {
        let scheduler = ThreadPool::global().scheduler();
        // SAFETY: the contract of this function. A pool accepts any entry, and the global pool never ends. The handle
        // is a local.
        unsafe { Queue::enqueue(NonNull::from(&scheduler), entry.cast()) }
    }
    // SAFETY: the contract of this function.
    #[cfg(loom)]
    unsafe {
        Transfer::to(entry.cast())
    }
}
