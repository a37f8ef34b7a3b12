//! The memory of a frame: blocks that end on other threads against the awaits, the end and the last reference of the frame.

use std::alloc::Layout;
use std::future::{Future, poll_fn};
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use allocator_api2::alloc::{AllocError, Allocator, Global};
use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;
use bowline::task::{self, InAllocator, SenderFuture, Task, continuation};
use bowline::{Operation, Receiver, Transfer};
use loom::thread::{self, ThreadId};

use crate::awaits::{begin_and_drop, begin_and_give, begin_and_give_at_once};
use crate::support::{Ended, Watched, World, race};
use crate::task::{Failure, Sendable, awaited, begin, task};

/// A sender that completes inside `start` without declaring so: its await needs a block.
struct Here(World);

// SAFETY: the operation touches nothing after its completion, and is `!Unpin`.
unsafe impl Sender for Here {
    type Value = ();
    type Error = Failure;
    type Operation<R: Receiver<(), Failure>> = HereOperation<R>;

    fn connect<R: Receiver<(), Failure>>(self, receiver: R) -> HereOperation<R> {
        HereOperation {
            receiver: Some(receiver),
            _memory: self.0.census.value(0),
            _pinned: PhantomPinned,
        }
    }
}

struct HereOperation<R> {
    receiver: Option<R>,
    _memory: Watched,
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), Failure>> Operation for HereOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: the receiver is not pinned.
        let receiver = unsafe { self.get_unchecked_mut() }.receiver.take();
        receiver.expect("started once").set_value(())
    }
}

/// An allocator that counts, and records the thread of the last deallocation.
#[derive(Clone, Default)]
struct Counting {
    allocated: Arc<AtomicUsize>,
    freed: Arc<AtomicUsize>,
    by: Arc<Mutex<Option<ThreadId>>>,
}

// SAFETY: forwards to the global allocator.
unsafe impl Allocator for Counting {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.allocated.fetch_add(1, SeqCst);
        Global.allocate(layout)
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        self.freed.fetch_add(1, SeqCst);
        *self.by.lock().expect("nobody panicked") = Some(thread::current().id());
        // SAFETY: the caller's promise.
        unsafe { Global.deallocate(memory, layout) };
    }
}

impl Counting {
    fn task(
        &self,
        future: impl Future<Output = Result<Watched, Failure>> + 'static,
    ) -> Task<Watched, Failure, InAllocator<Counting>> {
        Task::try_new_in(Sendable(future), self.clone())
    }

    /// Asserts that everything was freed. Returns the number of allocations and the thread of the last deallocation.
    fn end(&self) -> (usize, ThreadId) {
        let (allocated, freed) = (self.allocated.load(SeqCst), self.freed.load(SeqCst));
        assert_eq!(allocated, freed, "something was leaked");
        let by = self.by.lock().expect("nobody panicked").take();
        (allocated, by.expect("there was a frame"))
    }
}

/// An await is dropped on another thread. Covers its block ending before the next await allocates, which reuses its memory, and
/// after, when the next await gets another block.
#[test]
fn the_end_of_a_block_elsewhere_races_with_the_next_await() {
    race(2, &["its place", "another block"], |world, root, report| {
        let (memory, threads, value) = (Counting::default(), world.threads.clone(), world.census.value(7));
        let awaits = world.clone();
        let inside = async move {
            // Larger than what follows.
            let room = [0_u8; 1024];
            let forever = never::<Watched, Failure>().then(move |value| {
                std::hint::black_box(&room);
                value
            });
            let forever = SenderFuture::new(forever);
            begin_and_give(forever, move |forever| threads.spawn(move || drop(forever))).await;
            for _ in 0..2 {
                SenderFuture::new(Here(awaits.clone())).await?;
            }
            Ok(value)
        };
        submit(memory.task(inside).write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        match memory.end().0 {
            // The frame and its block.
            2 => "its place",
            3 | 4 => "another block",
            other => panic!("{other} allocations"),
        }
    });
}

/// The block below another one ends on another thread, while the upper one ends here and pops both, or only itself.
#[test]
fn the_end_of_a_block_elsewhere_races_with_that_of_the_one_on_top_of_it() {
    race(2, &["here first", "there first"], |world, root, report| {
        let (memory, threads, value) = (Counting::default(), world.threads.clone(), world.census.value(7));
        let (awaits, ended) = (world.clone(), Arc::new(AtomicBool::new(false)));
        let first = Arc::new(AtomicBool::new(false));
        let noted = first.clone();
        let inside = async move {
            let both = [(); 2].map(|()| SenderFuture::new(never::<Watched, Failure>()));
            begin_and_give(both_of(both), move |both| {
                let [beneath, above] = Pin::into_inner(both).0;
                let ends = ended.clone();
                threads.spawn(move || {
                    drop(beneath);
                    ends.store(true, SeqCst);
                });
                drop(above);
                noted.store(!ended.load(SeqCst), SeqCst);
            })
            .await;
            SenderFuture::new(Here(awaits)).await?;
            Ok(value)
        };
        submit(memory.task(inside).write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        memory.end();
        if first.load(SeqCst) {
            "here first"
        } else {
            "there first"
        }
    });
}

/// Two futures that are started in one poll.
struct Both<F>([F; 2]);

fn both_of<F: Future + Unpin>(futures: [F; 2]) -> Both<F> {
    Both(futures)
}

impl<F: Future + Unpin> Future for Both<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        for future in &mut self.0 {
            assert!(Pin::new(future).poll(context).is_pending());
        }
        Poll::Pending
    }
}

/// An await is dropped in flight, and completes on another thread, while the task resumes, awaits more, and ends. It is
/// destroyed once, before the task is done.
#[test]
fn the_completion_of_an_orphan_races_with_the_next_await_and_the_end_of_the_frame() {
    race(3, &["here", "there"], |world, root, report| {
        let (remote, value, awaits) = (world.remote(6), world.census.value(7), world.clone());
        let alive = world.census.clone();
        let inner = task(async move {
            begin_and_drop(awaited(remote)).await;
            SenderFuture::new(Here(awaits)).await?;
            Ok(value)
        });
        let outer = task(async move {
            let value = inner.await?;
            // The value, and that of the root.
            assert_eq!(alive.alive(), 2, "something outlives the task that awaited it");
            Ok(value)
        });
        begin(outer, root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() { "here" } else { "there" }
    });
}

/// A result that records the thread that dropped it.
struct Noted {
    value: Watched,
    by: Arc<Mutex<Option<ThreadId>>>,
}

// SAFETY: the threads of a model share one system thread, and `loom` watches the value.
unsafe impl Send for Noted {}

impl Drop for Noted {
    fn drop(&mut self) {
        self.value.touch();
        let before = self.by.lock().expect("nobody panicked").replace(thread::current().id());
        assert_eq!(before, None);
    }
}

/// An await is sent away and dropped on one thread, while it completes on another and the frame ends here. Covers each of them
/// destroying the operation.
#[test]
fn the_drop_of_an_await_elsewhere_races_with_its_completion_and_the_end_of_the_frame() {
    race(2, &["the future", "here", "the completion"], |world, root, report| {
        let (value, threads, by) = (world.census.value(7), world.threads.clone(), Arc::default());
        let note = Arc::<Mutex<Option<ThreadId>>>::clone(&by);
        let dropper = Arc::new(Mutex::new(None));
        let noted = dropper.clone();
        let sender = world.remote(6).then(move |value| Noted { value, by: note });
        let inside = async move {
            begin_and_give(SenderFuture::new(sender), move |sender| {
                threads.spawn(move || {
                    *noted.lock().expect("nobody panicked") = Some(thread::current().id());
                    drop(sender);
                });
            })
            .await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        let by = by.lock().expect("nobody panicked").expect("it was dropped");
        match by {
            by if by == thread::current().id() => "here",
            by if Some(by) == *dropper.lock().expect("nobody panicked") => "the future",
            _ => "the completion",
        }
    });
}

/// An await is sent away and dropped while the last waker is dropped here. The last reference frees the frame, with everything
/// left in it. Covers that being the waker, the future, and the completion, which polls the frame.
#[test]
fn the_last_reference_of_a_frame_destroys_what_is_left_in_it() {
    race(
        2,
        &["the waker", "the future", "the completion"],
        |world, root, report| {
            let (memory, value, threads) = (Counting::default(), world.census.value(7), world.threads.clone());
            let (remote, waker, dropper) = (world.remote(6), Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
            let (kept, noted) = (waker.clone(), dropper.clone());
            let inside = async move {
                let mut remote = Some(awaited(remote));
                poll_fn(move |context| {
                    let mut remote = remote.take().expect("polled once");
                    let _ = Pin::new(&mut remote).poll(context);
                    *kept.lock().expect("nobody panicked") = Some(context.waker().clone());
                    let noted = noted.clone();
                    threads.spawn(move || {
                        *noted.lock().expect("nobody panicked") = Some(thread::current().id());
                        drop(remote);
                    });
                    Poll::Ready(())
                })
                .await;
                Ok(value)
            };
            submit(memory.task(inside).write_env(WithScheduler(InlineScheduler)), root);
            drop(waker.lock().expect("nobody panicked").take());
            world.end();
            assert_eq!(report.get(), Ended::Value(7));
            match memory.end().1 {
                by if by == thread::current().id() => "the waker",
                by if Some(by) == *dropper.lock().expect("nobody panicked") => "the future",
                _ => "the completion",
            }
        },
    );
}

/// A future is begun, sent away and dropped on another thread, all within the poll in which the frame counts it. Neither the
/// reference count nor the await count is read before it is final.
#[test]
fn what_is_begun_in_a_poll_is_over_before_the_poll_is() {
    race(2, &["in the poll", "later"], |world, root, report| {
        let (value, threads) = (world.census.value(7), world.threads.clone());
        let ended = loom::sync::Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let early = Arc::new(AtomicBool::new(false));
        let noted = early.clone();
        let inside = async move {
            let forever = SenderFuture::new(never::<Watched, Failure>());
            let ends = ended.clone();
            begin_and_give_at_once(forever, move |forever| {
                threads.spawn(move || {
                    drop(forever);
                    ends.store(true, Relaxed);
                });
            })
            .await;
            noted.store(ended.load(Relaxed), SeqCst);
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if early.load(SeqCst) { "in the poll" } else { "later" }
    });
}

/// A value whose destructor awaits in the current task.
struct AwaitsWhenDropped {
    drops: Arc<AtomicUsize>,
    kept: Arc<Mutex<Vec<Pin<Box<dyn Future<Output = ()> + Send>>>>>,
    keeps: bool,
    _value: Watched,
}

// SAFETY: as for `Noted`.
unsafe impl Send for AwaitsWhenDropped {}

impl Drop for AwaitsWhenDropped {
    fn drop(&mut self) {
        assert_eq!(self.drops.fetch_add(1, SeqCst), 0, "destroyed twice");
        let mut shielded = Box::pin(task::shield(std::future::pending::<()>()));
        assert!(
            shielded
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        if self.keeps {
            self.kept.lock().expect("nobody panicked").push(shielded);
        }
    }
}

/// An orphan has ended when the next await allocates, which destroys it; and its destructor allocates as well. It is destroyed
/// once, whether its memory is reused or not.
#[test]
fn the_destructor_of_an_orphan_awaits_in_the_same_frame() {
    for keeps in [false, true] {
        race(2, &["done"], move |world, root, report| {
            let (value, awaits, drops) = (world.census.value(7), world.clone(), Arc::<AtomicUsize>::default());
            let kept = Arc::<Mutex<Vec<_>>>::default();
            let held = AwaitsWhenDropped {
                drops: drops.clone(),
                kept: kept.clone(),
                keeps,
                _value: world.census.value(1),
            };
            let inside = async move {
                let resumed = Arc::new(Mutex::new(None));
                let resumes = resumed.clone();
                let waiting = continuation::<(), Failure, _>(move |continuation| {
                    *resumes.lock().expect("nobody panicked") = Some(continuation);
                });
                let orphan = waiting.unstoppable().then(move |()| held);
                begin_and_drop(SenderFuture::new(orphan)).await;
                let continuation = resumed.lock().expect("nobody panicked").take().expect("it was started");
                assert!(continuation.resume(()).is_ok());
                SenderFuture::new(Here(awaits)).await?;
                Ok(value)
            };
            begin(task(inside), root);
            world.threads.join();
            assert_eq!((report.get(), drops.load(SeqCst)), (Ended::Value(7), 1));
            kept.lock().expect("nobody panicked").clear();
            world.end();
            "done"
        });
    }
}
