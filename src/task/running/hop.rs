//! How frames get onto a scheduler that has no queue for them: by one schedule operation that they share.

use core::alloc::Layout;
use core::any::{Any, TypeId};
use core::cell::{Cell, UnsafeCell};
use core::mem::{ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::{self, NonNull};

use crate::memory::OutOfMemoryError;
use crate::scheduler::hop_to;
use crate::sender::native::Queue;
use crate::sender::start;
use crate::stop::NeverStop;
use crate::sync::atomic::{
    AtomicPtr, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::task::frame::{Header, Polling};
use crate::{Env, Job, NoScheduler, Panic, Priority, Receiver, Scheduler, Sender, Transfer};

/// What a hop is, whatever the scheduler.
///
/// There is one for all frames of an operation, made when that starts, with room for a schedule operation. So a resume
/// allocates nothing, and nothing can run out. Nothing stops it either.
#[repr(C)]
pub(crate) struct Hop {
    vtable: &'static HopVtable,
    /// The frames that wait to be on the scheduler, by the links of their jobs, the last one first.
    ///
    /// | value | means |
    /// |---|---|
    /// | null | idle: the room is empty |
    /// | a job | busy: frames wait. The room belongs to the frame that made it busy, then to the operation, then to its completion |
    ///
    /// | from | to | by |
    /// |---|---|---|
    /// | null | a job | a frame, which then connects the schedule operation and starts it |
    /// | a job | a job | a frame, which has nothing else to do: it may run from here on, and the hop be gone |
    /// | a job | null | the [arrival](Hop::arrive), with all of them |
    ///
    /// Every change acquires and releases. So the thread that runs a frame sees what was done before it was queued, and the one
    /// that makes the hop busy finds the room as the last arrival left it. While the hop is busy a frame waits, so the task is
    /// not done, and the hop is alive. The arrival touches nothing after its change.
    waiting: AtomicPtr<Job>,
    /// How far the receiver of the operation has come. It means something while the hop is busy.
    ///
    /// | value | means | set by |
    /// |---|---|---|
    /// | `CONNECTING` | the operation is not there yet | whoever made the hop busy |
    /// | `UNDER_WAY` | it is, and its completion is the arrival | the same, before it is started |
    /// | `OVER` | it has completed, or let go of its receiver | the receiver |
    ///
    /// Whoever comes second of `UNDER_WAY` and `OVER` destroys the operation and sees to the arrival. A second `OVER`
    /// comes from the destructor of an operation that still had its receiver, and is nothing.
    receiver: AtomicU8,
    /// How urgent the frame is that made the hop busy. Written by that, and read by the receiver.
    priority: Cell<Option<Priority>>,
    /// The operation that it was made for, which frees it. The operations of tasks that are awaited in there use it as well.
    owner: NonNull<()>,
}

const CONNECTING: u8 = 0;
const UNDER_WAY: u8 = 1;
const OVER: u8 = 2;

/// What is known of the scheduler of a hop.
pub(crate) struct HopVtable {
    /// Of the whole.
    layout: Layout,
    /// Writes the rest of it: the scheduler is this one.
    make: unsafe fn(NonNull<Hop>, scheduler: NonNull<()>),
    /// Connects the operation and starts it.
    depart: unsafe fn(NonNull<Hop>) -> Transfer,
    /// Destroys the operation.
    clear: unsafe fn(NonNull<Hop>),
}

/// Makes a hop to a scheduler that has no queue for frames.
///
/// # Errors
///
/// The allocator had no memory.
///
/// # Safety
///
/// - The scheduler stays where it is until [`free`].
/// - The frame is the one that is about to be started; the owner is the operation that frees the hop.
#[cold]
pub(in crate::task) unsafe fn make<S: Scheduler>(
    scheduler: &S,
    frame: NonNull<Header>,
    owner: NonNull<()>,
) -> Result<NonNull<Hop>, OutOfMemoryError> {
    let (vtable, scheduler) = hop_to(scheduler);
    // SAFETY: by the caller's promise.
    let Some(memory) = (unsafe { Header::allocate(frame, vtable.layout) }) else {
        return Err(OutOfMemoryError::new(vtable.layout));
    };
    let hop = memory.cast::<Hop>();
    // SAFETY: there is room for it, and for the rest.
    unsafe {
        hop.write(Hop {
            vtable,
            waiting: AtomicPtr::new(ptr::null_mut()),
            receiver: AtomicU8::new(OVER),
            priority: Cell::new(None),
            owner,
        });
        (vtable.make)(hop, scheduler);
    }
    Ok(hop)
}

/// Frees a hop, if it was made for this operation.
///
/// # Safety
///
/// All frames that use the hop are done. The frame is that which it was made for, if it was made for the operation.
#[cold]
pub(in crate::task) unsafe fn free(hop: NonNull<Hop>, operation: NonNull<()>, frame: NonNull<Header>) {
    // SAFETY: by the caller's promise. The hop is idle, and its last arrival touches nothing of it.
    unsafe {
        if hop.as_ref().owner != operation {
            return;
        }
        let layout = hop.as_ref().vtable.layout;
        hop.drop_in_place();
        Header::deallocate(frame, hop.cast(), layout);
    }
}

/// The queue of frames whose scheduler has none. Only a home has one, so what is queued is a frame.
impl Queue for Hop {
    unsafe fn enqueue(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first of a frame that is busy and in no queue. The hop is valid until all frames that
        // use it are done.
        unsafe { Hop::push(this, job, Polling::new(job.cast()).level()) }
    }

    unsafe fn enqueue_last(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: see above: a frame is all that a home queues.
        unsafe { Self::enqueue(this, job) }
    }

    fn identity(&self) -> [usize; 2] {
        [ptr::from_ref(self).addr(), 0]
    }
}

impl Hop {
    /// # Safety
    ///
    /// The hop is there until the job has run, which is in no list and stays where it is until then.
    unsafe fn push(this: NonNull<Hop>, job: NonNull<Job>, priority: Option<Priority>) -> Transfer {
        // SAFETY: by the caller's promise, until the job is in the list.
        let (hop, link) = unsafe { (this.as_ref(), job.as_ref()) };
        let mut last = hop.waiting.load(Relaxed);
        loop {
            link.set_next(last);
            match hop.waiting.compare_exchange_weak(last, job.as_ptr(), AcqRel, Relaxed) {
                Err(now) => last = now,
                // It may have run, and all of this be gone.
                Ok(_) if !last.is_null() => return Transfer::none(),
                Ok(_) => break,
            }
        }
        hop.priority.set(priority);
        hop.receiver.store(CONNECTING, Relaxed);
        // SAFETY: we made it busy.
        unsafe { (hop.vtable.depart)(this) }
    }

    /// The receiver of the operation has completed, or is gone.
    ///
    /// # Safety
    ///
    /// The hop is busy.
    unsafe fn end(this: NonNull<Hop>) -> Transfer {
        // SAFETY: by the caller's promise.
        match unsafe { this.as_ref() }.receiver.swap(OVER, AcqRel) {
            // SAFETY: as above. The operation touches nothing of itself any more.
            UNDER_WAY => unsafe { Hop::arrive(this, true) },
            _ => Transfer::none(),
        }
    }

    /// Destroys the operation, if there is one, and resumes all that wait, in the order in which they came.
    ///
    /// # Safety
    ///
    /// The hop is busy, and the caller the one who sees to this. It may be gone when this returns.
    unsafe fn arrive(this: NonNull<Hop>, clear: bool) -> Transfer {
        // SAFETY: by the caller's promise.
        let hop = unsafe { this.as_ref() };
        if clear {
            // There is nobody to tell of a panic in there: the frames go on all the same.
            // SAFETY: as above.
            let _ = Panic::catch(|| unsafe { (hop.vtable.clear)(this) }).map_err(Panic::discard);
        }
        let last = hop.waiting.swap(ptr::null_mut(), AcqRel);
        // From here on the hop may be gone.
        // SAFETY: the jobs are out of the list.
        unsafe { in_order(last) }
    }
}

/// Jobs in the order in which they came, of a list that begins with the last.
///
/// # Safety
///
/// They are the caller's, and stay until they have run.
unsafe fn in_order(mut next: *mut Job) -> Transfer {
    let mut resumed = Transfer::none();
    while let Some(job) = NonNull::new(next) {
        // SAFETY: a job stays until it has run, and that was the list it was in.
        resumed = unsafe {
            next = job.as_ref().next();
            Transfer::to(job)
        }
        .and(resumed);
    }
    resumed
}

/// A hop to schedulers of one type.
#[repr(C)]
pub(crate) struct HopTo<S: Scheduler> {
    hop: Hop,
    /// In the operation that the hop was made for.
    scheduler: NonNull<S>,
    room: UnsafeCell<MaybeUninit<HopSchedule<S>>>,
}

/// The schedule operation.
type HopSchedule<S> = <<S as Scheduler>::Schedule as Sender>::Operation<HopReceiver>;

impl<S: Scheduler> HopTo<S> {
    pub(crate) const VTABLE: &'static HopVtable = &HopVtable {
        layout: Layout::new::<Self>(),
        make: Self::make,
        depart: Self::depart,
        clear: Self::clear,
    };

    /// # Safety
    ///
    /// There is room for such a hop, of which the first field is there, and the scheduler is one of this type.
    unsafe fn make(hop: NonNull<Hop>, scheduler: NonNull<()>) {
        // SAFETY: by the caller's promise. The room is empty.
        unsafe { (&raw mut (*hop.cast::<Self>().as_ptr()).scheduler).write(scheduler.cast()) };
    }

    /// # Safety
    ///
    /// The hop is such a one, and the caller made it busy.
    unsafe fn depart(hop: NonNull<Hop>) -> Transfer {
        let this = hop.cast::<Self>().as_ptr();
        // SAFETY: the scheduler is valid as long as the hop. The thread that made the hop busy has exclusive access to the
        // room, which is written once all of the user's code has returned.
        let connected = Panic::catch(|| unsafe {
            let operation = (*this).scheduler.as_ref().schedule().connect(HopReceiver { hop });
            (*(*this).room.get()).write(operation);
        })
        .map_err(Panic::discard)
        .is_ok();
        // SAFETY: as above.
        let receiver = unsafe { &hop.as_ref().receiver };
        if !connected {
            // A sender that panics has let go of its receiver, which did nothing about it.
            // SAFETY: as above.
            return unsafe { Hop::arrive(hop, false) };
        }
        match receiver.compare_exchange(CONNECTING, UNDER_WAY, AcqRel, Acquire) {
            // SAFETY: nothing in the room moves; the operation is started once, and stays until it has completed.
            // Nothing of this is touched afterwards.
            Ok(_) => unsafe { start(Pin::new_unchecked((*(*this).room.get()).assume_init_mut())) },
            // It let go of its receiver when it was connected, so nothing would come of it.
            // SAFETY: as above.
            Err(_) => unsafe { Hop::arrive(hop, true) },
        }
    }

    /// # Safety
    ///
    /// The hop is such a one, with an operation in it that touches nothing of itself any more.
    unsafe fn clear(hop: NonNull<Hop>) {
        // SAFETY: by the caller's promise.
        unsafe { (*(*hop.cast::<Self>().as_ptr()).room.get()).assume_init_drop() };
    }
}

/// The receiver of a hop.
pub(crate) struct HopReceiver {
    hop: NonNull<Hop>,
}

// SAFETY: what it does with the hop is for any thread, and one completes it.
unsafe impl Send for HopReceiver {}

impl HopReceiver {
    fn end(self) -> Transfer {
        let this = ManuallyDrop::new(self);
        // SAFETY: the hop is busy until this.
        unsafe { Hop::end(this.hop) }
    }
}

impl<E> Receiver<(), E> for HopReceiver {
    type Env = HopEnv;

    fn env(&self) -> HopEnv {
        HopEnv {
            // SAFETY: the hop is busy until this has completed.
            priority: unsafe { self.hop.as_ref() }.priority.get(),
        }
    }

    fn set_value(self, (): ()) -> Transfer {
        self.end()
    }

    /// The scheduler was asked not to fail, at compile time. Where it does all the same, the task goes on.
    fn set_error(self, error: E) -> Transfer {
        drop(error);
        self.end()
    }

    fn set_stopped(self) -> Transfer {
        self.end()
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        payload.discard();
        self.end()
    }
}

impl Drop for HopReceiver {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: the hop is busy until this, or until the operation is gone that this is in.
        unsafe { Hop::end(self.hop) }.run();
    }
}

/// The environment of a hop: nothing stops it, and it is as urgent as the task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HopEnv {
    priority: Option<Priority>,
}

impl Env for HopEnv {
    type StopToken = NeverStop;
    type Scheduler = NoScheduler;

    fn stop_token(&self) -> NeverStop {
        NeverStop
    }

    fn scheduler(&self) -> NoScheduler {
        NoScheduler
    }

    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        if let Some(priority) = &self.priority
            && id == TypeId::of::<Priority>()
        {
            found(priority);
        }
    }

    fn priority(&self) -> Option<Priority> {
        self.priority
    }
}
