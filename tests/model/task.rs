//! Tasks: completions, wake-ups and stops against the polling of a frame.
#![allow(unreachable_pub, reason = "shared by the models")]

use std::alloc::Layout;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use allocator_api2::alloc::{AllocError, Allocator, Global};
use bowline::Completion;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop};
use bowline::stop::StopSource;
use bowline::task::{FromEnv, InAllocator, Providing, SenderFuture, Task};
use loom::thread;

use crate::support::{Census, Ended, Remote, Root, Watched, World, explore, race};

/// A wrapper that is `Send`: the threads of a model share one system thread, and `loom` watches what they share.
pub struct Sendable<F>(pub F);

// SAFETY: see the type.
unsafe impl<F> Send for Sendable<F> {}

impl<F> Sendable<F> {
    pub fn new(future: F) -> Self {
        Sendable(future)
    }
}

impl<F: Future> Future for Sendable<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is structurally pinned.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(context)
    }
}

pub type Failure = &'static str;

pub fn task(future: impl Future<Output = Result<Watched, Failure>> + 'static) -> Task<Watched, Failure> {
    Task::try_new(Sendable(future))
}

pub fn awaited(remote: Remote<Failure>) -> SenderFuture<Remote<Failure>> {
    SenderFuture::new(remote)
}

/// Polls a future, and writes before and after each poll: each poll must be ordered after the previous one.
async fn touching<F: Future>(local: Watched, future: F) -> F::Output {
    let mut future = Box::pin(future);
    poll_fn(move |context| {
        local.touch();
        let polled = future.as_mut().poll(context);
        local.touch();
        polled
    })
    .await
}

/// Starts a task on this thread. It is resumed on the thread that wakes it.
pub fn begin(task: Task<Watched, Failure>, root: Root) {
    submit(task.write_env(WithScheduler(InlineScheduler)), root);
}

/// Starts a task on this thread, with a stop that another thread requests.
pub fn begin_and_stop(world: &World, task: Task<Watched, Failure>, root: Root) {
    let source = StopSource::new();
    let token = source.token();
    world.threads.spawn(move || {
        source.request_stop();
    });
    let env = (WithScheduler(InlineScheduler), WithStopToken(token));
    submit(task.write_env(env.0).write_env(env.1), root);
}

/// Covers the completion coming during `start`, and after it, for a value and for an error.
#[test]
fn a_completion_races_with_the_return_of_start() {
    for (value, expected) in [(true, Ended::Value(6)), (false, Ended::Error("failed"))] {
        race(3, &["start", "the completion"], move |world, root, report| {
            let remote = if value {
                world.remote(6)
            } else {
                world.remote_of(Completion::Error("failed"))
            };
            let local = world.census.value(1);
            // The resuming thread is ordered after the previous one.
            begin(task(touching(local, awaited(remote))), root);
            world.end();
            assert_eq!(report.get(), expected);
            if report.here() { "start" } else { "the completion" }
        });
    }
}

/// Covers a stop during `start`, and after it; the task does not resume.
#[test]
fn a_stopped_completion_races_with_the_return_of_start() {
    race(3, &["start", "the completion"], move |world, root, report| {
        let remote = world.remote_of(Completion::Stopped);
        let local = world.census.value(1);
        let inside = async move {
            let result = awaited(remote).await;
            drop(local);
            assert!(result.is_err(), "it goes on after a stop");
            result
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Stopped);
        if report.here() { "start" } else { "the completion" }
    });
}

/// Covers a child completing on another thread early and late. Its parent, held or not, resumes there.
#[test]
fn a_child_that_completes_elsewhere_resumes_its_parent() {
    race(3, &["here", "there"], move |world, root, report| {
        let remote = world.remote(6);
        let local = world.census.value(1);
        let (inner, outer) = (world.census.value(2), local);
        let child = task(touching(inner, awaited(remote)));
        begin(task(touching(outer, child.into_future())), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        if report.here() { "here" } else { "there" }
    });
}

/// A task on a loop resumes on the loop's thread, however early the completion is.
#[test]
fn it_comes_back_to_the_loop() {
    explore(2, &["done"], |seen| {
        let world = World::default();
        let here = thread::current().id();
        let run_loop = RunLoop::new();
        let remote = world.remote(6);
        let inside = async move {
            let result = awaited(remote).await;
            assert_eq!(thread::current().id(), here);
            result
        };
        let value = run_loop.run_until(task(inside)).unwrap();
        assert_eq!(value.read(), 6);
        drop(value);
        drop(run_loop);
        world.end();
        seen.note("done");
    });
}

/// An event that happens once, and its waiter.
#[derive(Clone, Default)]
pub struct Event(Arc<loom::sync::Mutex<(bool, Option<Waker>)>>);

impl Event {
    pub fn happen(&self) {
        let waker = {
            let mut state = self.0.lock().expect("nobody panicked");
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().expect("nobody panicked");
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(context.waker().clone());
        Poll::Pending
    }

    pub async fn wait(&self) {
        poll_fn(|context| self.poll(context)).await;
    }
}

/// Covers the event happening before the first poll, during it, and after it.
#[test]
fn a_wake_up_races_with_the_poll() {
    race(3, &["before", "while", "after"], |world, root, report| {
        let event = Event::default();
        let polls = Arc::new(AtomicUsize::new(0));
        world.threads.spawn({
            let event = event.clone();
            move || event.happen()
        });
        let (value, counted) = (world.census.value(5), polls.clone());
        let inside = async move {
            poll_fn(|context| {
                counted.fetch_add(1, SeqCst);
                let polled = event.poll(context);
                value.touch();
                polled
            })
            .await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(5));
        match (polls.load(SeqCst), report.here()) {
            (1, true) => "before",
            (2, true) => "while",
            (2, false) => "after",
            other => panic!("{other:?}"),
        }
    });
}

/// A task completes while one thread wakes it and another drops the last waker but one. Covers it completing on the first
/// thread, and on the waking one.
#[test]
fn a_wake_up_races_with_completion_and_with_the_drop_of_a_waker() {
    race(3, &["here", "there"], |world, root, report| {
        let (value, threads) = (world.census.value(5), world.threads.clone());
        let mut polled = false;
        let inside = async move {
            poll_fn(|context| {
                if std::mem::replace(&mut polled, true) {
                    return Poll::Ready(());
                }
                let (wakes, drops) = (context.waker().clone(), context.waker().clone());
                threads.spawn(move || wakes.wake());
                threads.spawn(move || drop(drops));
                Poll::Pending
            })
            .await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(5));
        if report.here() { "here" } else { "there" }
    });
}

/// A task is done while two threads wake it by wakers that outlive it. It is not polled again, and the last waker frees the
/// memory.
#[test]
fn wakers_outlive_the_task() {
    race(3, &["done"], |world, root, report| {
        let (value, threads) = (world.census.value(5), world.threads.clone());
        let inside = async move {
            let mut polled = false;
            poll_fn(|context| {
                assert!(!std::mem::replace(&mut polled, true), "polled after its end");
                let (first, second) = (context.waker().clone(), context.waker().clone());
                threads.spawn(move || {
                    first.wake_by_ref();
                    drop(first);
                });
                threads.spawn(move || second.wake());
                Poll::Ready(())
            })
            .await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(5));
        "done"
    });
}

/// A child that is ready at once is woken by wakers that outlive it; otherwise its parent frees its memory with the result.
#[test]
fn wakers_outlive_a_child_that_is_ready_at_once() {
    race(2, &["done"], |world, root, report| {
        let (value, threads) = (world.census.value(5), world.threads.clone());
        let child = task(async move {
            poll_fn(|context| {
                let (first, second) = (context.waker().clone(), context.waker().clone());
                threads.spawn(move || first.wake());
                threads.spawn(move || drop(second));
                Poll::Ready(())
            })
            .await;
            Ok(value)
        });
        begin(task(async move { child.await }), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(5));
        "done"
    });
}

/// Covers the sender completing first, and the stop coming first.
#[test]
fn a_stop_races_with_the_completion() {
    race(2, &["value", "stopped"], |world, root, report| {
        let source = StopSource::new();
        let sender = world.stoppable(6);
        let local = world.census.value(1);
        let inside = async move {
            let result = SenderFuture::new(sender).await;
            assert_eq!(local.read(), 1);
            result
        };
        let token = source.token();
        world.threads.spawn(move || _ = source.request_stop());
        submit(
            task(inside)
                .write_env(WithScheduler(InlineScheduler))
                .write_env(WithStopToken(token)),
            root,
        );
        world.end();
        match report.get() {
            Ended::Value(6) => "value",
            Ended::Stopped => "stopped",
            other => panic!("{other:?}"),
        }
    });
}

/// A child completes on another thread while its parent is woken for another reason and polls the child again. The parent may
/// find it done before the notification. Covers the parent ending on each of the three threads.
#[test]
fn a_child_completes_while_its_parent_is_polled() {
    race(2, &["here", "there"], |world, root, report| {
        let event = Event::default();
        let (remote, census) = (world.remote(1), world.census.clone());
        world.threads.spawn({
            let event = event.clone();
            move || event.happen()
        });
        let inside = async move {
            let child = task(async move {
                drop(awaited(remote).await?);
                // Created here, so that a reader must be ordered after the end of this task, not only after its await.
                let value = census.value(6);
                value.touch();
                Ok(value)
            });
            let mut child = Box::pin(child.into_future());
            poll_fn(|context| {
                let _ = event.poll(context);
                let polled = child.as_mut().poll(context);
                if let Poll::Ready(Ok(value)) = &polled {
                    assert_eq!(value.read(), 6);
                }
                polled
            })
            .await
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        if report.here() { "here" } else { "there" }
    });
}

/// A task returns its value while a sender that it awaited is in flight. It completes after the sender: on the first thread if
/// that was in time, otherwise on the sender's.
#[test]
fn a_task_waits_for_an_await_that_it_let_go_of() {
    explore(3, &["here", "there"], |seen| {
        let world = World::default();
        let (root, report) = world.root();
        let (remote, value) = (world.remote(6), world.census.value(5));
        let away = Arc::new(Mutex::new(None));
        let kept = away.clone();
        let inside = async move {
            let mut sender = Some(Box::pin(awaited(remote)));
            poll_fn(|context| {
                let mut sender = sender.take().expect("polled once");
                if sender.as_mut().poll(context).is_pending() {
                    *kept.lock().expect("nobody panicked") = Some(sender);
                }
                Poll::Ready(())
            })
            .await;
            Ok(value)
        };
        begin(task(inside), root);
        world.threads.join();
        assert_eq!(report.get(), Ended::Value(5));
        seen.note(if report.here() { "here" } else { "there" });
        drop(away.lock().expect("nobody panicked").take());
        world.end();
    });
}

/// The owner of a child that has its value drops its future, while a sender that the child let go of completes. The value goes
/// with the later of the two, although the future of that sender still refers to the child.
#[test]
fn the_value_of_a_child_goes_with_its_owner_or_with_its_end() {
    explore(3, &["here", "there"], |seen| {
        let world = World::default();
        let (root, report) = world.root();
        let (remote, given, children) = (world.remote(6), world.census.value(5), Census::default());
        let away = Arc::new(Mutex::new(None));
        let (kept, value) = (away.clone(), children.value(4));
        let inside = async move {
            let child = task(async move {
                let mut sender = Box::pin(awaited(remote));
                poll_fn(|context| Poll::Ready(sender.as_mut().poll(context).is_pending())).await;
                *kept.lock().expect("nobody panicked") = Some(sender);
                Ok(value)
            });
            let mut child = Box::pin(child.into_future());
            poll_fn(|context| Poll::Ready(drop(child.as_mut().poll(context)))).await;
            drop(child);
            given.touch();
            Ok(given)
        };
        begin(task(inside), root);
        world.threads.join();
        assert_eq!(report.get(), Ended::Value(5));
        seen.note(if report.here() { "here" } else { "there" });
        assert_eq!(children.alive(), 0, "the value stayed with the future");
        drop(away.lock().expect("nobody panicked").take());
        world.end();
    });
}

/// The await of a task on a loop is woken twice, once with and once without effect; then the loop is dropped. Covers the second
/// wake coming before the end, with one more poll or too late for it.
#[test]
fn wake_ups_race_with_the_end_of_a_task_on_a_loop() {
    explore(2, &["one poll", "two polls", "three polls"], |seen| {
        let world = World::default();
        let event = Event::default();
        let polls = Arc::new(AtomicUsize::new(0));
        let run_loop = RunLoop::new();
        let (value, threads, counted) = (world.census.value(5), world.threads.clone(), polls.clone());
        let inside = async move {
            let mut spawned = false;
            poll_fn(|context| {
                counted.fetch_add(1, SeqCst);
                if !std::mem::replace(&mut spawned, true) {
                    let (event, waker) = (event.clone(), context.waker().clone());
                    threads.spawn(move || waker.wake());
                    threads.spawn(move || event.happen());
                }
                let polled = event.poll(context);
                value.touch();
                polled
            })
            .await;
            Ok(value)
        };
        let value = run_loop.run_until(task(inside)).unwrap();
        drop(run_loop);
        assert_eq!(value.read(), 5);
        drop(value);
        world.end();
        seen.note(match polls.load(SeqCst) {
            1 => "one poll",
            2 => "two polls",
            3 => "three polls",
            other => panic!("{other}"),
        });
    });
}

/// Read from the environment, and dropped with the context that contains it.
#[derive(Clone)]
struct Kept(Watched);

impl FromEnv for Kept {
    fn from_env<N: Env>(env: &N) -> Self {
        env.get().expect("it was written")
    }
}

/// A child with a context of its own completes on another thread or here. The context is dropped by then, and not used
/// afterwards.
#[test]
fn a_context_of_its_own_goes_before_its_task_completes() {
    race(2, &["here", "there"], |world, root, report| {
        let (remote, given, census) = (world.remote(6), Kept(world.census.value(1)), world.census.clone());
        let inside = async move {
            let outside = census.alive();
            let inside = async move {
                let Ok(kept) = read_env(Get::<Kept>::new()).await;
                assert_eq!(kept.expect("the context has it").0.read(), 1);
                awaited(remote).await
            };
            let child = Task::builder().context::<Providing<Kept>>().try_task(Sendable(inside));
            let result = child.await;
            // The operation that it awaited is destroyed too, and its result is owned here.
            assert_eq!(census.alive(), outside, "the context is still there");
            result
        };
        submit(
            task(inside)
                .write_env(WithScheduler(InlineScheduler))
                .write_env(With(given)),
            root,
        );
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        if report.here() { "here" } else { "there" }
    });
}

/// A future ends before its await does: its context stays alive until the await has completed.
#[test]
fn a_context_of_its_own_stays_for_an_await_that_was_let_go_of() {
    explore(2, &["here", "there"], |seen| {
        let world = World::default();
        let (root, report) = world.root();
        let (remote, value, given) = (world.remote(6), world.census.value(5), Kept(world.census.value(1)));
        let asks = remote.let_value(|number| {
            let kept = read_env(Get::<Kept>::new());
            kept.then(move |kept| (number, kept)).infallible_into()
        });
        let (away, heard) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        let (kept, hears) = (away.clone(), heard.clone());
        let inside = async move {
            let asks = asks.then(move |(_, kept): (Watched, Option<Kept>)| {
                *hears.lock().expect("nobody panicked") = kept.map(|Kept(value)| value.read());
            });
            let mut sender = Some(Box::pin(SenderFuture::new(asks)));
            poll_fn(|context| {
                let mut sender = sender.take().expect("polled once");
                if sender.as_mut().poll(context).is_pending() {
                    *kept.lock().expect("nobody panicked") = Some(sender);
                }
                Poll::Ready(())
            })
            .await;
            Ok(value)
        };
        let own: Task<Watched, Failure, Providing<Kept>> =
            Task::builder().context::<Providing<Kept>>().try_task(Sendable(inside));
        submit(
            own.write_env(WithScheduler(InlineScheduler)).write_env(With(given)),
            root,
        );
        world.threads.join();
        assert_eq!(report.get(), Ended::Value(5));
        assert_eq!(*heard.lock().expect("nobody panicked"), Some(1));
        seen.note(if report.here() { "here" } else { "there" });
        drop(away.lock().expect("nobody panicked").take());
        world.end();
    });
}

/// An allocator whose memory is watched: users of the task read it, and the freeing thread drops it.
#[derive(Clone)]
struct Memory(Watched);

// SAFETY: forwards to the global allocator.
unsafe impl Allocator for Memory {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        Global.allocate(layout)
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { Global.deallocate(memory, layout) };
    }
}

impl World {
    /// A task in watched memory, which reads that last, when other threads know it.
    fn task_in_memory(
        &self,
        future: impl Future<Output = Result<Watched, Failure>> + 'static,
    ) -> Task<Watched, Failure, InAllocator<Memory>> {
        let future = async move {
            let result = future.await;
            let Ok(memory) = read_env(Get::<Memory>::new()).await;
            assert_eq!(memory.expect("it is in there").0.read(), 9);
            result
        };
        Task::try_new_in(Sendable(future), Memory(self.census.value(9)))
    }
}

/// The memory is freed once, by the last of its owner and two wakers on three threads, only one of which wakes. Every other
/// access happens before.
#[test]
fn the_memory_goes_with_the_last_waker() {
    race(3, &["done"], |world, root, report| {
        let (value, threads) = (world.census.value(5), world.threads.clone());
        let inside = async move {
            poll_fn(|context| {
                let (wakes, drops) = (context.waker().clone(), context.waker().clone());
                threads.spawn(move || wakes.wake());
                threads.spawn(move || drop(drops));
                Poll::Ready(())
            })
            .await;
            Ok(value)
        };
        let task = world.task_in_memory(inside);
        submit(task.write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(5));
        "done"
    });
}

/// A task that stops drops a child that is busy on another thread. It is done after that child, which frees itself.
#[test]
fn a_child_that_a_stopped_task_let_go_of_frees_itself() {
    race(2, &["here", "there"], |world, root, report| {
        let (remote, stops) = (world.remote(6), world.remote_of(Completion::Stopped));
        let child = world.task_in_memory(async move { awaited(remote).await });
        let inside = async move {
            let mut child = Box::pin(child.into_future());
            let mut stops = Box::pin(awaited(stops));
            poll_fn(|context| {
                let _ = child.as_mut().poll(context);
                stops.as_mut().poll(context)
            })
            .await
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Stopped);
        if report.here() { "here" } else { "there" }
    });
}

/// A stopped task drops a busy child while another thread drops a waker of the child, which has no owner and is not done.
#[test]
fn a_child_that_a_stopped_task_let_go_of_outlives_its_waker() {
    race(2, &["here", "there"], |world, root, report| {
        let (stops, threads) = (world.remote_of(Completion::Stopped), world.threads.clone());
        let child = world.task_in_memory(poll_fn(move |context| {
            let waker = context.waker().clone();
            threads.spawn(move || drop(waker));
            Poll::Pending
        }));
        let inside = async move {
            let mut child = Box::pin(child.into_future());
            let mut stops = Box::pin(awaited(stops));
            poll_fn(|context| {
                let _ = child.as_mut().poll(context);
                stops.as_mut().poll(context)
            })
            .await
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Stopped);
        if report.here() { "here" } else { "there" }
    });
}
