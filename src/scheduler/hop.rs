//! A queue for the frames of tasks on a scheduler that has none.
//!
//! A [`Hop`] is a queue with room for one schedule operation, which all queued frames share. [`HopTo`] is the hop to schedulers of one
//! type; the erased scheduler has its table.
//!
//! # States, and who may access what
//!
//! The hop is *idle*, or *busy* while frames wait. The frame that makes it busy owns the room: it connects the schedule operation
//! there, and starts it. The completion of the operation takes all frames, destroys the operation, and makes the hop idle. The tables
//! in [`Hop`] have each transition.
//!
//! # Why it is sound
//!
//! A frame that waits is not done, so the operation of its task is alive, and with it the scheduler and the hop. The completion
//! touches nothing of the hop after it has made the hop idle.

use core::alloc::Layout;
use core::any::{Any, TypeId};
use core::cell::{Cell, UnsafeCell};
use core::mem::{ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::{self, NonNull};

use super::thread_pool::Entry;
use crate::sender::native::Queue;
use crate::sender::receiver::receive_as_completion;
use crate::sender::start;
use crate::stop::NeverStop;
use crate::sync::atomic::{
    AtomicPtr, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::{Completion, Env, Job, NoScheduler, Panic, Priority, Receiver, Scheduler, Sender, Transfer};

/// The part of a hop that does not depend on the scheduler's type.
///
/// All frames of an operation share one hop, allocated at its start with room for a schedule operation. So a resume allocates
/// nothing and cannot fail. A hop is not stoppable.
#[repr(C)]
pub(crate) struct Hop {
    vtable: &'static HopVtable,
    /// The scheduler, of the type that the table is for. In the operation that owns the hop.
    scheduler: NonNull<()>,
    /// The queued frames, linked by their jobs, the last one first.
    ///
    /// | value | meaning |
    /// |---|---|
    /// | null | idle: the room is empty |
    /// | a job | busy: frames are queued. The room belongs to the frame that made it busy, then to the operation, then to its completion |
    ///
    /// | from | to | by |
    /// |---|---|---|
    /// | null | a job | a frame, which then connects the schedule operation and starts it |
    /// | a job | a job | a frame, which does nothing more: it may run from here on, and the hop may be freed |
    /// | a job | null | the [arrival](Hop::arrive), with all of them |
    ///
    /// Every change is `AcqRel`. So the thread that runs a frame sees the writes before its queueing. The frame that makes the
    /// hop busy sees the room as the last arrival left it. While the hop is busy a frame is queued, so the task is not done, and
    /// the hop is alive. The arrival touches nothing after its change.
    waiting: AtomicPtr<Job>,
    /// The progress of the operation's receiver. Meaningful while the hop is busy.
    ///
    /// | value | meaning | set by |
    /// |---|---|---|
    /// | `CONNECTING` | the operation is not connected yet | the frame that made the hop busy |
    /// | `UNDER_WAY` | the operation is connected, and its completion is the arrival | the same frame, before the start |
    /// | `OVER` | it has completed, or dropped its receiver | the receiver |
    ///
    /// The second party of `UNDER_WAY` and `OVER` destroys the operation and performs the arrival. Another `OVER` comes from
    /// the destructor of an operation that still had its receiver, and has no effect.
    receiver: AtomicU8,
    /// The priority of the frame that made the hop busy. Written by that frame, and read by the receiver.
    priority: Cell<Option<Priority>>,
    /// The operation that the hop was created for, which frees it. Operations of tasks awaited inside use it as well.
    owner: NonNull<()>,
}

const CONNECTING: u8 = 0;
const UNDER_WAY: u8 = 1;
const OVER: u8 = 2;

/// The type-erased operations of a hop's scheduler.
pub(crate) struct HopVtable {
    /// The layout of the whole hop.
    layout: Layout,
    /// Connects the operation and starts it.
    depart: unsafe fn(NonNull<Hop>) -> Transfer,
    /// Destroys the operation.
    clear: unsafe fn(NonNull<Hop>),
}

impl HopVtable {
    /// Returns the layout of the whole hop.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }
}

/// Only a home uses a hop as its queue, so every queued job is a frame.
impl Queue for Hop {
    unsafe fn enqueue(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first field of an entry. The hop is valid until all frames that use it are done.
        unsafe {
            let level = job.cast::<Entry>().as_ref().level();
            Hop::push(this, job, Some(level).filter(|level| *level != Priority::Default))
        }
    }

    unsafe fn enqueue_last(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: a home queues only frames.
        unsafe { Self::enqueue(this, job) }
    }

    fn identity(&self) -> [usize; 2] {
        [ptr::from_ref(self).addr(), 0]
    }
}

impl Hop {
    /// Creates a hop to a scheduler, for the tasks of an operation.
    ///
    /// # Safety
    ///
    /// The memory has the layout of the table, and is exclusive. The scheduler is of the type that the table is for, and valid as
    /// long as the hop.
    pub(crate) unsafe fn write(
        this: NonNull<Hop>,
        (vtable, scheduler): (&'static HopVtable, NonNull<()>),
        owner: NonNull<()>,
    ) {
        // SAFETY: the caller's promise. The room stays uninitialized.
        unsafe {
            this.write(Hop {
                vtable,
                scheduler,
                waiting: AtomicPtr::new(ptr::null_mut()),
                receiver: AtomicU8::new(OVER),
                priority: Cell::new(None),
                owner,
            });
        }
    }

    /// Destroys the hop, if `owner` is the operation that it was created for. Returns the layout of its memory then.
    ///
    /// # Safety
    ///
    /// All frames that use the hop are done.
    pub(crate) unsafe fn destroy(this: NonNull<Hop>, owner: NonNull<()>) -> Option<Layout> {
        // SAFETY: the caller's promise. The hop is idle, and its last arrival touches it no more.
        unsafe {
            let layout = this.as_ref().vtable.layout;
            (this.as_ref().owner == owner).then(|| {
                this.drop_in_place();
                layout
            })
        }
    }

    /// # Safety
    ///
    /// The hop is alive until the job has run. The job is in no list, and pinned until then.
    unsafe fn push(this: NonNull<Hop>, job: NonNull<Job>, priority: Option<Priority>) -> Transfer {
        // SAFETY: the caller's promise, until the job is in the list.
        let (hop, link) = unsafe { (this.as_ref(), job.as_ref()) };
        let mut last = hop.waiting.load(Relaxed);
        loop {
            link.set_next(last);
            match hop.waiting.compare_exchange_weak(last, job.as_ptr(), AcqRel, Relaxed) {
                Err(now) => last = now,
                // The frame may have run, and the hop may be freed.
                Ok(_) if !last.is_null() => return Transfer::none(),
                Ok(_) => break,
            }
        }
        hop.priority.set(priority);
        hop.receiver.store(CONNECTING, Relaxed);
        // SAFETY: this call made the hop busy.
        unsafe { (hop.vtable.depart)(this) }
    }

    /// Handles the completion or the drop of the operation's receiver.
    ///
    /// # Safety
    ///
    /// The hop is busy.
    unsafe fn end(this: NonNull<Hop>) -> Transfer {
        // SAFETY: a busy hop is alive.
        match unsafe { this.as_ref() }.receiver.swap(OVER, AcqRel) {
            // SAFETY: this is the second party, so the operation has completed and is not used.
            UNDER_WAY => unsafe { Hop::arrive(this, true) },
            _ => Transfer::none(),
        }
    }

    /// Destroys the operation, if there is one, and resumes all queued frames in FIFO order.
    ///
    /// # Safety
    ///
    /// The hop is busy, and the caller is the party that performs the arrival. The hop may be freed when this returns.
    unsafe fn arrive(this: NonNull<Hop>, clear: bool) -> Transfer {
        // SAFETY: a busy hop is alive.
        let hop = unsafe { this.as_ref() };
        if clear {
            // A panic of the destructor has no receiver: the frames resume all the same.
            // SAFETY: the operation has completed, and the caller owns the room.
            let _ = Panic::catch(|| unsafe { (hop.vtable.clear)(this) }).map_err(Panic::discard);
        }
        let last = hop.waiting.swap(ptr::null_mut(), AcqRel);
        // From here on the hop may be freed.
        // SAFETY: the exchange gave this call exclusive ownership of the listed jobs.
        unsafe { in_order(last) }
    }
}

/// Returns the jobs of a LIFO list in FIFO order.
///
/// # Safety
///
/// The caller owns the jobs, which are pinned until they have run.
unsafe fn in_order(mut next: *mut Job) -> Transfer {
    let mut resumed = Transfer::none();
    while let Some(job) = NonNull::new(next) {
        // SAFETY: a job is pinned until it has run, and was only in this list.
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
    room: UnsafeCell<MaybeUninit<HopSchedule<S>>>,
}

/// The schedule operation.
type HopSchedule<S> = <<S as Scheduler>::Schedule as Sender>::Operation<HopReceiver>;

impl<S: Scheduler> HopTo<S> {
    pub(crate) const VTABLE: &'static HopVtable = &HopVtable {
        layout: Layout::new::<Self>(),
        depart: Self::depart,
        clear: Self::clear,
    };

    /// # Safety
    ///
    /// `hop` is of this type, and the caller made it busy.
    unsafe fn depart(hop: NonNull<Hop>) -> Transfer {
        let this = hop.cast::<Self>().as_ptr();
        // SAFETY: the scheduler is valid as long as the hop. The thread that made the hop busy has exclusive access to the
        // room, which is written after all user code has returned.
        let connected = Panic::catch(|| unsafe {
            let operation = hop
                .as_ref()
                .scheduler
                .cast::<S>()
                .as_ref()
                .schedule()
                .connect(HopReceiver { hop });
            (*(*this).room.get()).write(operation);
        })
        .map_err(Panic::discard)
        .is_ok();
        // SAFETY: a busy hop is alive.
        let receiver = unsafe { &hop.as_ref().receiver };
        if !connected {
            // A sender that panicked has dropped its receiver, which did nothing in this state.
            // SAFETY: this call made the hop busy, and there is no operation.
            return unsafe { Hop::arrive(hop, false) };
        }
        match receiver.compare_exchange(CONNECTING, UNDER_WAY, AcqRel, Acquire) {
            // SAFETY: the room does not move; the operation is started once, and stays until it completes. Nothing is used after.
            Ok(_) => unsafe { start(Pin::new_unchecked((*(*this).room.get()).assume_init_mut())) },
            // The operation dropped its receiver while it was connected, so it would never complete.
            // SAFETY: the receiver is over, so this is the second party.
            Err(_) => unsafe { Hop::arrive(hop, true) },
        }
    }

    /// # Safety
    ///
    /// `hop` is of this type, with a completed operation that is not used any longer.
    unsafe fn clear(hop: NonNull<Hop>) {
        // SAFETY: the caller's promise.
        unsafe { (*(*hop.cast::<Self>().as_ptr()).room.get()).assume_init_drop() };
    }
}

/// The receiver of a hop.
pub(crate) struct HopReceiver {
    hop: NonNull<Hop>,
}

// SAFETY: the hop may be accessed by any thread, and a receiver is completed once.
unsafe impl Send for HopReceiver {}

impl HopReceiver {
    /// Resumes the task in every case. The scheduler declared itself infallible at compile time.
    fn complete<E>(self, completion: Completion<(), E>) -> Transfer {
        match completion {
            Completion::Panicked(payload) => payload.discard(),
            other => drop(other),
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: the hop is busy until this call.
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

    receive_as_completion!((), E);
}

impl Drop for HopReceiver {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: the hop is busy until this call, or until the operation that contains this is destroyed.
        unsafe { Hop::end(self.hop) }.run();
    }
}

/// The environment of a hop: it never stops, and has the priority of the task.
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
