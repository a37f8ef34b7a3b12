//! Frames on a scheduler without a native queue: frames that arrive during a hop, and tasks that end during one.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bowline::prelude::*;
use bowline::task::{SenderFuture, Task};
use bowline::{Completion, Operation, Transfer};
use loom::cell::UnsafeCell;

use crate::support::{Ended, Remote, Report, Root, Watched, World, explore};

/// The state of a scheduler under test.
#[derive(Default)]
pub(crate) struct Place {
    /// The number of schedule operations.
    hops: AtomicUsize,
    /// The number of times the root had completed before a `start` returned.
    early: AtomicUsize,
    /// Written when an operation is created and destroyed: one that reuses the memory of another is ordered after it.
    room: UnsafeCell<u32>,
}

impl Place {
    fn touch(&self) {
        // SAFETY: `loom` reports unordered accesses.
        self.room.with_mut(|room| unsafe { *room += 1 });
    }
}

/// A scheduler that runs everything on a thread of its own.
#[derive(Clone)]
pub(crate) struct Elsewhere {
    pub(crate) world: World,
    place: Arc<Place>,
    pub(crate) report: Report,
}

// SAFETY: the threads of a model share one system thread, and `loom` watches what they share.
unsafe impl Send for Elsewhere {}
// SAFETY: as for `Send`.
unsafe impl Sync for Elsewhere {}

impl PartialEq for Elsewhere {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.place, &other.place)
    }
}

impl Scheduler for Elsewhere {
    type Schedule = Elsewhere;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> Elsewhere {
        self.clone()
    }
}

// SAFETY: the operation touches nothing of itself after its thread has started, and is `!Unpin`.
unsafe impl Sender for Elsewhere {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = ElsewhereOperation<R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> ElsewhereOperation<R> {
        self.place.touch();
        ElsewhereOperation {
            _memory: self.world.census.value(0),
            scheduler: self,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

pub(crate) struct ElsewhereOperation<R> {
    scheduler: Elsewhere,
    receiver: Option<R>,
    _memory: Watched,
    _pinned: PhantomPinned,
}

impl<R> Drop for ElsewhereOperation<R> {
    fn drop(&mut self) {
        self.scheduler.place.touch();
    }
}

impl<R: Receiver<(), Infallible>> Operation for ElsewhereOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: only the receiver is moved, and it is not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let receiver = this.receiver.take().expect("started once");
        let Elsewhere { world, place, report } = this.scheduler.clone();
        place.hops.fetch_add(1, SeqCst);
        let complete: Box<dyn FnOnce() + '_> = Box::new(move || receiver.set_value(()).run());
        // SAFETY: the receiver is valid until it completes, and completing is all the thread does with it.
        let complete: Box<dyn FnOnce() + 'static> = unsafe { std::mem::transmute(complete) };
        world.threads.spawn(complete);
        // From here on the operation is not used.
        loom::thread::yield_now();
        if report.is_there() {
            place.early.fetch_add(1, SeqCst);
        }
        Transfer::none()
    }
}

/// A wrapper that is `Send`, for the reason given at [`Elsewhere`].
struct Sendable<F>(F);

// SAFETY: as for `Elsewhere`.
unsafe impl<F> Send for Sendable<F> {}

impl<F: Future> Future for Sendable<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is structurally pinned.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(context)
    }
}

type Failure = &'static str;

fn task(future: impl Future<Output = Result<Watched, Failure>> + 'static) -> Task<Watched, Failure> {
    Task::try_new(Sendable(future))
}

fn awaits(remote: Remote<Failure>) -> Task<Watched, Failure> {
    task(async move { SenderFuture::new(remote).await })
}

/// Starts a task on this thread; an await that completes elsewhere takes it to a thread of the scheduler.
pub(crate) fn begin(task: Task<Watched, Failure>, root: Root, scheduler: Elsewhere) {
    submit(task.write_env(WithScheduler(scheduler)), root);
}

pub(crate) fn world() -> (Elsewhere, Root) {
    let world = World::default();
    let (root, report) = world.root();
    let place = Arc::default();
    (Elsewhere { world, place, report }, root)
}

/// The last frame hops and finishes, and the task's operation is destroyed with the hop: before the `start` of the schedule
/// operation has returned, or after. Also covers a sender that completes in time.
#[test]
fn a_task_is_gone_before_the_start_of_its_hop_returns() {
    explore(3, &["no hop", "early", "late"], |seen| {
        let (scheduler, root) = world();
        let Elsewhere { world, place, report } = scheduler.clone();
        begin(awaits(world.remote(6)), root, scheduler.clone());
        drop(scheduler);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        seen.note(match (place.hops.load(SeqCst), place.early.load(SeqCst)) {
            (0, 0) => "no hop",
            (1, 0) => "late",
            (1, 1) => "early",
            other => panic!("{other:?}"),
        });
    });
}

/// Stores its waker in the slot, and is ready at the next poll.
async fn woken(slot: Arc<Mutex<Option<Waker>>>, value: Watched) -> Result<Watched, Failure> {
    let mut polled = false;
    poll_fn(|context| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        *slot.lock().expect("nobody panicked") = Some(context.waker().clone());
        Poll::Pending
    })
    .await;
    Ok(value)
}

/// Two children of a task are woken by two threads. Covers the second arriving during the first's hop and sharing it. Also
/// covers it arriving with the first or later, and starting the next hop in the same memory. The task itself is woken
/// meanwhile, and may hop a third time.
#[test]
fn two_frames_hop_at_once() {
    explore(2, &["one hop", "two hops", "three hops"], |seen| {
        let (scheduler, root) = world();
        let Elsewhere { world, place, report } = scheduler.clone();
        let slots = [(); 2].map(|()| Arc::<Mutex<Option<Waker>>>::default());
        let [first, second] = [(0, 2), (1, 4)].map(|(slot, number)| {
            let (slot, value) = (slots[slot].clone(), world.census.value(number));
            task(woken(slot, value))
        });
        let both = task(async move {
            let (mut first, mut second) = (Box::pin(first.into_future()), Box::pin(second.into_future()));
            let (mut one, mut two) = (None, None);
            poll_fn(|context| {
                for (child, result) in [(&mut first, &mut one), (&mut second, &mut two)] {
                    if result.is_none()
                        && let Poll::Ready(Ok(value)) = child.as_mut().poll(context)
                    {
                        *result = Some(value);
                    }
                }
                if one.is_some() && two.is_some() {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            assert_eq!(two.map(|two| two.read()), Some(4));
            one.ok_or("nothing")
        });
        begin(both, root, scheduler.clone());
        drop(scheduler);
        let [here, there] = slots.map(|slot| slot.lock().expect("nobody panicked").take().expect("polled"));
        world.threads.spawn(move || there.wake());
        here.wake();
        world.end();
        assert_eq!(report.get(), Ended::Value(2));
        seen.note(match place.hops.load(SeqCst) {
            1 => "one hop",
            2 => "two hops",
            3 => "three hops",
            other => panic!("{other}"),
        });
    });
}

/// A nested operation uses the hop of the enclosing task. Both finish right after the arrival.
#[test]
fn an_operation_in_a_task_shares_its_hop() {
    explore(3, &["one hop", "two hops"], |seen| {
        let (scheduler, root) = world();
        let Elsewhere { world, place, report } = scheduler.clone();
        let (inner, outer) = (
            awaits(world.remote(2)),
            world.remote_of(Completion::Value(world.census.value(4))),
        );
        let both = task(async move {
            let (inner, outer) = SenderFuture::new(when_all((inner, outer))).await?;
            assert_eq!(outer.read(), 4);
            Ok(inner)
        });
        begin(both, root, scheduler.clone());
        drop(scheduler);
        world.end();
        assert_eq!(report.get(), Ended::Value(2));
        seen.note(match place.hops.load(SeqCst) {
            1 => "one hop",
            2 => "two hops",
            other => panic!("{other}"),
        });
    });
}

/// A task drops a child that another thread wakes, and ends. The child is dropped on the scheduler, by a hop of its own or by
/// that of the wake. The task finishes afterwards.
#[test]
fn a_frame_that_is_dropped_races_with_its_hop() {
    explore(2, &["dropped here", "ended by the arrival"], |seen| {
        let (scheduler, root) = world();
        let Elsewhere { world, place, report } = scheduler.clone();
        let slot = Arc::<Mutex<Option<Waker>>>::default();
        let child = task(woken(slot.clone(), world.census.value(2)));
        let (value, threads) = (world.census.value(4), world.threads.clone());
        let ended = Arc::new(Mutex::new(None));
        let parent = task({
            let ended = ended.clone();
            async move {
                let mut child = Some(Box::pin(child.into_future()));
                poll_fn(|context| {
                    let waker = slot.lock().expect("nobody panicked").take();
                    if let Some(waker) = waker {
                        // The child has been suspended since this frame released the thread.
                        threads.spawn(move || waker.wake());
                        child = None;
                        *ended.lock().expect("nobody panicked") = Some(loom::thread::current().id());
                        return Poll::Ready(());
                    }
                    if let Some(child) = &mut child {
                        assert!(child.as_mut().poll(context).is_pending());
                    }
                    context.waker().wake_by_ref();
                    Poll::Pending
                })
                .await;
                value.touch();
                Ok(value)
            }
        });
        begin(parent, root, scheduler.clone());
        drop(scheduler);
        world.end();
        assert_eq!(report.get(), Ended::Value(4));
        let dropped = ended.lock().expect("nobody panicked").take().expect("polled");
        assert!((1..=3).contains(&place.hops.load(SeqCst)));
        seen.note(if report.by(dropped) {
            "dropped here"
        } else {
            "ended by the arrival"
        });
    });
}
