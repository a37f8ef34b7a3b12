//! Awaiting outside of a task: in an executor of another crate, or in a task by code that polls with wakers of its own.
//!
//! There is no frame to suspend and to wake. So the operation lives in one block on the heap, with a queue, and the queue is the
//! scheduler that the sender sees. A job that is queued wakes the executor, and runs in the next poll.
//!
//! [`Foreign`] is the future's part, [`ForeignCore`] the shared part of the block, and [`ForeignScheduler`] what the operation sees.
//! [`LocalHome`] notes the frames of local tasks that run here. The block has one reference for each of these, and one for the
//! operation. Everything in its queue is protected by a lock, under which no job, no waker and no user code runs.

mod core;
mod local_home;
mod scheduler;

use ::core::cell::{Cell, UnsafeCell};
use ::core::marker::PhantomData;
use ::core::mem::{self, ManuallyDrop};
use ::core::pin::Pin;
use ::core::ptr::NonNull;
use ::core::task::{Context as Cx, Poll};
use std::boxed::Box;

use self::core::{ForeignCore, ForeignQueue, ForeignRef, ForeignVtable, ROUNDS, run_queued};
pub(in crate::task) use self::local_home::LocalHome;
use self::scheduler::ForeignScheduler;
use crate::memory::Count;
use crate::sender::env::Look;
use crate::sender::start;
use crate::stop::{Relay, RelayOwner};
use crate::sync::{Mutex, lock, thread_id};
use crate::task::awaiting::receiver::{Await, AwaitReceiver, AwaitResult};
use crate::task::awaiting::sent_elsewhere;
use crate::task::frame::{Header, Home, Placement, Polling, Stopping};
use crate::task::strand::{Awaiter, Context, Tether};
use crate::{Completion, Sender};

/// A block on the heap: an await and its operation.
#[repr(C)]
struct ForeignBlock<S: Sender<Value: Send, Error: Send>> {
    shared: Await<ForeignCore, S::Value, S::Error>,
    operation: UnsafeCell<Option<ForeignOperationOf<S>>>,
}

type ForeignOperationOf<S> =
    <S as Sender>::Operation<AwaitReceiver<ForeignCore, <S as Sender>::Value, <S as Sender>::Error>>;

impl<S: Sender<Value: Send, Error: Send>> ForeignBlock<S> {
    const VTABLE: &'static ForeignVtable = &ForeignVtable {
        clear: Self::clear,
        free: Self::free,
    };

    /// # Safety
    ///
    /// `core` is that of such a block, whose operation has completed. Only one party calls this.
    unsafe fn clear(core: NonNull<ForeignCore>) {
        // SAFETY: the caller's promise; the core is the first field.
        let this = unsafe { core.cast::<Self>().as_ref() };
        // SAFETY: the caller has exclusive access. The operation has completed, and is dropped in place.
        unsafe {
            *this.operation.get() = None;
            drop((*this.shared.result.get()).take());
        }
    }

    /// # Safety
    ///
    /// The last reference was released.
    unsafe fn free(core: NonNull<ForeignCore>) {
        // SAFETY: the caller's promise; the block was leaked from a box.
        drop(unsafe { Box::from_raw(core.cast::<Self>().as_ptr()) });
    }
}

/// A sender that was started outside of a task.
pub(in crate::task) struct Foreign<T, E> {
    block: ForeignRef,
    _result: PhantomData<fn() -> (T, E)>,
}

impl<T: Send, E: Send> Foreign<T, E> {
    /// Starts a sender, which is polled right afterwards.
    ///
    /// If this thread polls a task, the sender begins as part of it. It sees the task's cancellation, values and deadline, and
    /// the task ends after it. Only its scheduler is the polling code. A destructor of a task that ends by a stop or a panic
    /// may block on a sender: that is not part of the task, which cannot be stopped again.
    pub(in crate::task) fn start<S>(sender: S) -> Self
    where
        S: Sender<Value = T, Error = E> + 'static,
    {
        Polling::with(|polling| Self::start_in(sender, polling.filter(|polling| !polling.is_unwinding())))
    }

    fn start_in<S>(sender: S, polling: Option<Polling<'_>>) -> Self
    where
        S: Sender<Value = T, Error = E> + 'static,
    {
        let around = polling.map(|polling| Awaiter {
            frame: polling.frame(),
            context: NonNull::from(polling.context()),
        });
        let block = NonNull::from(Box::leak(Box::new(ForeignBlock::<S> {
            shared: Await {
                core: ForeignCore {
                    count: Count::one(),
                    queue: Mutex::new(ForeignQueue {
                        driver: thread_id(),
                        ..ForeignQueue::default()
                    }),
                    relay: Relay::new(&RelayOwner {
                        over: ForeignCore::relay_over,
                        reach_unlisted: None,
                    }),
                    around,
                    tether: None,
                    has_tether: Cell::new(false),
                    scheduler: None,
                    context: None,
                    vtable: ForeignBlock::<S>::VTABLE,
                },
                result: UnsafeCell::new(None),
            },
            operation: UnsafeCell::new(None),
        })));
        let core = block.cast::<ForeignCore>();
        let this = Foreign {
            // SAFETY: this is the first reference.
            block: unsafe { ForeignRef::from_raw(core) },
            _result: PhantomData,
        };
        // SAFETY: the block is not shared yet. The pointers back to it are stored inside it.
        unsafe {
            let token = core.as_ref().relay.token();
            let scheduler = (*core.as_ptr())
                .scheduler
                .insert(ManuallyDrop::new(ForeignScheduler(ForeignRef::from_raw(core))));
            let outside: (_, Look) = (core.cast(), LocalHome::look);
            let mut inside = Context::new(
                Home::of_queue(&**scheduler).unwrap_or_else(Home::anywhere),
                token,
                outside,
            );
            if let Some((around, polling)) = around.zip(polling) {
                match Tether::tie(core, polling) {
                    Ok(tether) => (*core.as_ptr()).tether = Some(tether),
                    Err(error) => {
                        // It is not part of the task, and does not wake it.
                        (*core.as_ptr()).around = None;
                        panic!("a task cannot go on: {error}");
                    }
                }
                mem::forget(ForeignRef::of(core));
                core.as_ref().has_tether.set(true);
                let task = polling.context();
                task.enter();
                polling.count_wait();
                Relay::link(NonNull::new_unchecked(&raw mut (*core.as_ptr()).relay), task.token);
                inside = Context {
                    placement: Placement {
                        priority: polling.level(),
                        ..inside.placement
                    },
                    around: Some(around),
                    deadline: task.deadline,
                    locals: task.locals,
                    is_local: task.is_local,
                    ..inside
                };
            }
            (*core.as_ptr()).context = Some(inside);
        }
        // SAFETY: the block does not move, and the operation stays in it until it has completed. It is started once. The completion
        // releases the operation's reference.
        unsafe {
            mem::forget(ForeignRef::of(core));
            let receiver = AwaitReceiver::new(core.cast());
            let place = block.as_ref().operation.get();
            *place = Some(sender.connect(receiver));
            if let Some(operation) = &mut *place {
                start(Pin::new_unchecked(operation)).run();
            }
        }
        this
    }

    /// Runs the queued work, and checks for the result. Not called again after it was ready.
    pub(in crate::task) fn poll(&mut self, cx: &Cx<'_>) -> Poll<Completion<T, E>> {
        let core = &*self.block;
        if let Some(around) = core.around
            && !Header::is_current(around.frame)
            && !lock(&core.queue).done
        {
            sent_elsewhere();
        }
        // A party that schedules or completes between this and the next check finds no waker, and needs none.
        let registered = lock(&core.queue).waker.take();
        let waker = match registered {
            Some(waker) if waker.will_wake(cx.waker()) => waker,
            _ => cx.waker().clone(),
        };
        let me = thread_id();
        for round in 0.. {
            let mut queue = lock(&core.queue);
            if queue.done {
                drop(queue);
                return Poll::Ready(self.finish());
            }
            let pause = queue.is_empty() || round == ROUNDS;
            queue.driver = if pause { 0 } else { me };
            if !pause {
                let jobs = queue.take();
                drop(queue);
                run_queued(jobs);
            } else if queue.is_empty() && queue.later.is_none() {
                queue.waker = Some(waker);
                break;
            } else {
                queue.turn();
                drop(queue);
                waker.wake();
                break;
            }
        }
        Poll::Pending
    }

    /// Takes the result of a completed operation.
    fn finish(&mut self) -> Completion<T, E> {
        self.block.untie();
        let (left, first, _) = self.block.close();
        left.run();
        if !first {
            // The task in which it began has ended, and the result was dropped.
            return Completion::Stopped;
        }
        // SAFETY: this thread owns the result of a completed operation. It is moved out first: the rest may panic.
        let result = unsafe {
            (*self
                .block
                .as_ptr()
                .cast::<Await<ForeignCore, T, E>>()
                .as_ref()
                .result
                .get())
            .take()
        };
        // SAFETY: the operation has completed, and this is the one call.
        unsafe { (self.block.vtable.clear)(self.block.as_ptr()) };
        result.map_or(Completion::Stopped, AwaitResult::into_completion)
    }
}

impl<T, E> Drop for Foreign<T, E> {
    fn drop(&mut self) {
        self.block.give_up();
        let core = &*self.block;
        let done = lock(&core.queue).done;
        match core.around {
            _ if done => self.block.untie(),
            Some(around) => Polling::with_frame(around.frame, |polling| _ = polling.map(Polling::add_orphan)),
            None => {}
        }
    }
}

/// Returns the completion as code outside of a task sees it.
pub(in crate::task) fn conclude<T, E>(completion: Completion<T, E>) -> Result<T, E> {
    match completion {
        Completion::Value(value) => Ok(value),
        Completion::Error(error) => Err(error),
        Completion::Panicked(payload) => payload.resume(),
        Completion::Stopped => Polling::with(|polling| match polling {
            Some(polling) if !polling.is_unwinding() => Stopping::unwind(polling),
            _ => panic!(
                "what was awaited outside of a task has stopped, and there is no task to stop with it: \
                 await it with `.stopped_as_option()`, `.stopped_as_error(..)` or `.into_outcome()`"
            ),
        }),
    }
}
