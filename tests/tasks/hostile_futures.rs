//! Every future of the crate under everything that safe code may do to it. It is forgotten, dropped in flight, moved out of a
//! scope, sent to another task, polled with other wakers, or dropped inside its own completion. In every case the task ends,
//! nothing leaks, and no thread stays blocked.

use std::any::Any;
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, RunLoop, ThreadPool, Timer};
use bowline::stop::StopSource;
use bowline::task::{self, AllResults, LocalTask, SenderFuture, SpawnOptions, Task, TaskGroup};
use bowline::task_local;
use futures_util::StreamExt as _;
use futures_util::future::select;
use futures_util::stream::FuturesUnordered;

use crate::common::everywhere::Place;
use crate::common::tasks::hops;
use crate::common::{self, Census, Watchdog, lock, thread};

task_local! { static KEY: u32; }

const HOUR: Duration = Duration::from_secs(3600);

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
/// A value that must stay in the task while the work is used.
type Kept = Option<Pin<Box<dyn Any + Send>>>;
type Making = Pin<Box<dyn Future<Output = (Work, Kept)> + Send>>;

/// The fixtures of one case.
#[derive(Clone)]
struct World {
    census: Census,
    /// Other threads.
    elsewhere: PoolScheduler,
    /// Stops what belongs to no task.
    end: StopSource,
    /// The future that is dropped by the completion of its own await.
    slot: Arc<Mutex<Option<Work>>>,
    /// Set when a leaf has completed.
    completed: Arc<AtomicBool>,
}

impl World {
    fn new(elsewhere: PoolScheduler) -> Self {
        World {
            census: Census::new(),
            elsewhere,
            end: StopSource::new(),
            slot: Arc::default(),
            completed: Arc::default(),
        }
    }

    /// Returns the callback of a leaf's completion, counted as long as it exists.
    fn completion(&self) -> impl Fn() + Clone + Send + Sync + 'static {
        let (slot, completed, value) = (self.slot.clone(), self.completed.clone(), Arc::new(self.census.value()));
        move || {
            let _value = &value;
            let dropped = lock(&slot).take();
            drop(dropped);
            completed.store(true, SeqCst);
        }
    }
}

/// The innermost operation that all the futures wait for.
trait Leaf: 'static {
    const NAME: &'static str;
    /// Whether it completes without a stop.
    const ENDS: bool;

    fn sender(world: &World) -> impl Sender<Value = (), Error = Infallible> + Send + 'static;

    fn future(world: &World) -> impl Future<Output = ()> + Send + 'static {
        let future = SenderFuture::new(Self::sender(world));
        async move {
            let Ok(()) = future.await;
        }
    }
}

/// A leaf that completes only by a stop.
struct Never;

impl Leaf for Never {
    const NAME: &'static str = "what only stops";
    const ENDS: bool = false;

    fn sender(world: &World) -> impl Sender<Value = (), Error = Infallible> + Send + 'static {
        let completion = world.completion();
        never::<(), Infallible>().let_stopped(move || {
            completion();
            just_stopped()
        })
    }
}

/// A leaf that completes on another thread, and ignores stops.
struct Deaf;

impl Leaf for Deaf {
    const NAME: &'static str = "what does not stop";
    const ENDS: bool = true;

    fn sender(world: &World) -> impl Sender<Value = (), Error = Infallible> + Send + 'static {
        let completion = world.completion();
        world.elsewhere.schedule().unstoppable().then(move |()| completion())
    }
}

/// A leaf that completes on the thread of a timer, or by a stop.
struct Timed;

impl Leaf for Timed {
    const NAME: &'static str = "a timer";
    const ENDS: bool = true;

    fn sender(world: &World) -> impl Sender<Value = (), Error = Infallible> + Send + 'static {
        let (ends, stops) = (world.completion(), world.completion());
        Timer::global()
            .schedule_after(Duration::from_micros(50))
            .then(move |()| ends())
            .let_stopped(move || {
                stops();
                just_stopped()
            })
    }
}

/// A future of the crate, and its properties.
struct Kind {
    name: &'static str,
    /// Creates one in its task.
    make: fn(World) -> Making,
    /// Whether a poll in another task is refused while it is in flight. A handle of a group may be used anywhere, so its future
    /// is refused only where it waits as a sender.
    refused: Option<bool>,
    /// Whether a cancellation of the task reaches the leaf.
    cancelled: bool,
}

fn made(work: impl Future<Output = ()> + Send + 'static) -> Making {
    let work: Work = Box::pin(work);
    Box::pin(std::future::ready((work, None)))
}

/// Opens a group with a child in it, and creates a future of that group.
fn of_a_group<L: Leaf, F>(world: World, make: impl FnOnce(TaskGroup<()>) -> F + Send + 'static) -> Making
where
    F: Future<Output = ()> + Send + 'static,
{
    Box::pin(async move {
        let place = Arc::new(Mutex::new(None));
        let (child, gives) = (L::future(&world), place.clone());
        let mut group = Box::pin(task::group(async move |group| {
            group.set_limit(1);
            group.try_spawn(child).expect("it is open");
            *lock(&gives) = Some(group);
            std::future::pending::<()>().await;
        }));
        let pending = poll_fn(|cx| Poll::Ready(group.as_mut().poll(cx).is_pending())).await;
        assert!(pending);
        let handle = lock(&place).take().expect("the body has run");
        let work: Work = Box::pin(make(handle));
        let kept: Pin<Box<dyn Any + Send>> = group;
        (work, Some(kept))
    })
}

/// Awaits a future and drops its output.
async fn ignored<F: Future>(future: F) {
    drop(future.await);
}

fn kinds<L: Leaf>() -> Vec<Kind> {
    let plain = |name, make| Kind {
        name,
        make,
        refused: Some(true),
        cancelled: true,
    };
    let handle = |name, make| Kind {
        name,
        make,
        refused: None,
        cancelled: true,
    };
    vec![
        plain("SenderFuture", |world| made(L::future(&world))),
        plain("SenderFuture of two", |world| {
            let both = when_all((L::sender(&world), L::sender(&world)));
            made(ignored(SenderFuture::new(both)))
        }),
        plain("TaskFuture", |world| {
            made(ignored(Task::new(L::future(&world)).into_future()))
        }),
        plain("TaskFuture in a TaskFuture", |world| {
            let inner = Task::new(L::future(&world));
            made(ignored(Task::new(ignored(inner.into_future())).into_future()))
        }),
        plain("GroupFuture that waits for a child", |world| {
            let child = L::future(&world);
            made(task::group(async move |group| {
                group.try_spawn(child).expect("it is open");
                group.next().await;
            }))
        }),
        plain("GroupFuture that waits for something else", |world| {
            let (child, own) = (L::future(&world), L::future(&world));
            made(task::discarding_group(async move |group| {
                group.try_spawn(child).expect("it is open");
                own.await;
            }))
        }),
        handle("Next", |world| {
            of_a_group::<L, _>(world, async |group| ignored(group.next()).await)
        }),
        handle("NextEnded", |world| {
            of_a_group::<L, _>(world, async |group| ignored(group.next_ended()).await)
        }),
        handle("WaitForAll", |world| {
            of_a_group::<L, _>(world, |group| group.wait_for_all())
        }),
        handle("SpawnWhenReady", |world| {
            // The future owns its child until it spawns it, even when forgotten.
            of_a_group::<L, _>(world, |group| ignored(group.spawn_when_ready(hops(1))))
        }),
        handle("SpawnWhenReadyWith", |world| {
            let options = SpawnOptions::new().cancellable();
            of_a_group::<L, _>(world, |group| ignored(group.spawn_when_ready_with(options, hops(1))))
        }),
        handle("Ready", |world| {
            of_a_group::<L, _>(world, |group| ignored(group.ready()))
        }),
        handle("NextUntil", |world| {
            let deadline = Instant::now() + Duration::from_secs(3600);
            of_a_group::<L, _>(world, async move |group| ignored(group.next_until(deadline)).await)
        }),
        plain("GroupFuture that waits for a child with a handle", |world| {
            let child = L::future(&world);
            made(task::group(async move |group| {
                let options = SpawnOptions::new().cancellable();
                let _handle = group.try_spawn_with(options, child).expect("it is open");
                group.next().await;
            }))
        }),
        plain("Gather", |world| {
            let children = [L::future(&world), L::future(&world)];
            made(ignored(task::gather(AllResults::new(), children)))
        }),
        Kind {
            // It continues, whatever happens to the handle.
            cancelled: false,
            ..plain("Handle", |world| {
                let options = SpawnOptions::new().scheduler(world.elsewhere);
                let sender = L::sender(&world).write_env(WithStopToken(world.end.token()));
                made(ignored(task::detach_with(options, ignored(SenderFuture::new(sender)))))
            })
        },
        plain("AsyncLet", |world| {
            Box::pin(async move {
                let work: Work = Box::pin(task::let_async(L::future(&world)));
                (work, None)
            })
        }),
        Kind {
            cancelled: false,
            ..plain("Shield", |world| made(task::shield(L::future(&world))))
        },
        plain("WithDeadline", |world| {
            made(ignored(task::with_timeout(HOUR, L::future(&world))))
        }),
        plain("TaskLocalFuture", |world| made(KEY.scope(1, L::future(&world)))),
        plain("WithCancellationHandler", |world| {
            let value = world.census.value();
            made(task::with_cancellation_handler(move || drop(value), L::future(&world)))
        }),
        plain("WithEscalationHandler", |world| {
            made(task::with_escalation_handler(|_, _| {}, L::future(&world)))
        }),
    ]
}

/// Polls the future once. Returns `None` if it was ready.
async fn begun<F: Future + Unpin>(mut work: F) -> Option<F> {
    let pending = poll_fn(|cx| Poll::Ready(Pin::new(&mut work).poll(cx).is_pending())).await;
    pending.then_some(work)
}

/// The result of polling a future that was sent to another task.
#[derive(Debug, PartialEq)]
enum Polled {
    Ready,
    Pending,
    Panicked(String),
}

async fn poll_there<F: Future + Unpin>(work: &mut F) -> Polled {
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut *work).poll(cx).is_ready()));
        Poll::Ready(match polled {
            Ok(true) => Polled::Ready,
            Ok(false) => Polled::Pending,
            Err(payload) => Polled::Panicked(match payload.downcast::<&'static str>() {
                Ok(message) => (*message).to_owned(),
                Err(payload) => *payload.downcast::<String>().expect("a message"),
            }),
        })
    })
    .await
}

/// The treatment of a future in the task where it began.
#[derive(Clone, Copy, Debug)]
enum Fate {
    NeverPolled,
    Forgotten,
    Dropped,
    DroppedLater,
    MovedOutOfAScope,
    DroppedInAScope,
    Awaited,
    WithAnotherWaker,
    ForgottenWithAnotherWaker,
    DroppedWithAnotherWaker,
    MovedToAnotherWaker,
}

const FATES: [Fate; 11] = [
    Fate::NeverPolled,
    Fate::Forgotten,
    Fate::Dropped,
    Fate::DroppedLater,
    Fate::MovedOutOfAScope,
    Fate::DroppedInAScope,
    Fate::Awaited,
    Fate::WithAnotherWaker,
    Fate::ForgottenWithAnotherWaker,
    Fate::DroppedWithAnotherWaker,
    Fate::MovedToAnotherWaker,
];

impl Fate {
    /// Applies a fate. `ends` says whether the future becomes ready some time.
    async fn meet<F: Future<Output = ()> + Unpin>(self, work: F, ends: bool) {
        match self {
            Fate::NeverPolled => drop(work),
            Fate::Forgotten => {
                if let Some(work) = begun(work).await {
                    common::forget(Box::pin(work));
                }
            }
            Fate::Dropped => drop(begun(work).await),
            Fate::DroppedLater => {
                let _ = select(work, Box::pin(hops(3))).await;
            }
            Fate::MovedOutOfAScope => {
                let inside = task::shield(KEY.scope(7, task::with_timeout(HOUR, begun(work))));
                let moved = inside.await.expect("there is time");
                hops(1).await;
                match moved {
                    Some(work) if ends => work.await,
                    moved => drop(moved),
                }
            }
            Fate::DroppedInAScope => {
                let inside = async {
                    let _ = select(work, Box::pin(hops(3))).await;
                };
                let inside = task::shield(KEY.scope(7, task::with_timeout(HOUR, inside)));
                inside.await.expect("there is time");
            }
            Fate::Awaited => {
                if ends {
                    work.await;
                }
            }
            Fate::WithAnotherWaker => {
                let mut all: FuturesUnordered<F> = [work].into_iter().collect();
                if ends {
                    assert_eq!(all.next().await, Some(()));
                } else {
                    let _ = select(all.next(), Box::pin(hops(3))).await;
                }
            }
            Fate::ForgottenWithAnotherWaker => {
                let mut all: FuturesUnordered<F> = [work].into_iter().collect();
                let ready = poll_fn(|cx| Poll::Ready(all.poll_next_unpin(cx).is_ready())).await;
                if !ready {
                    common::forget(Box::pin(all));
                }
            }
            Fate::DroppedWithAnotherWaker => {
                let mut all: FuturesUnordered<F> = [work].into_iter().collect();
                poll_fn(|cx| {
                    let _ = all.poll_next_unpin(cx);
                    Poll::Ready(())
                })
                .await;
                drop(all);
            }
            Fate::MovedToAnotherWaker => {
                let Some(work) = begun(work).await else { return };
                let mut all: FuturesUnordered<F> = [work].into_iter().collect();
                if ends {
                    assert_eq!(all.next().await, Some(()));
                } else {
                    let _ = select(all.next(), Box::pin(hops(3))).await;
                }
            }
        }
    }
}

/// Runs a test on a run loop, and on pools of one and two workers, with other threads available.
fn everywhere(test: impl Fn(&Place, &str, PoolScheduler)) {
    let elsewhere = ThreadPool::new(1);
    test(&Place::Loop(RunLoop::new()), "a run loop", elsewhere.scheduler());
    for workers in [1, 2] {
        test(
            &Place::Pool(ThreadPool::new(workers)),
            &format!("a pool of {workers}"),
            elsewhere.scheduler(),
        );
    }
}

/// Runs a test of each kind over each leaf, on each scheduler, and asserts that nothing leaks.
fn of_each(test: impl Fn(&Place, &Kind, bool, &World)) {
    fn over<L: Leaf>(dog: &Watchdog, test: &impl Fn(&Place, &Kind, bool, &World)) {
        everywhere(|place, where_, elsewhere| {
            for kind in kinds::<L>() {
                let name = format!("{} over {}, on {where_}", kind.name, L::NAME);
                dog.step(&name);
                let world = World::new(elsewhere);
                test(place, &kind, L::ENDS, &world);
                let dropped = lock(&world.slot).take();
                drop(dropped);
                // Ends what belongs to no task.
                world.end.request_stop();
                while kind.name == "Handle" && world.census.alive() != 0 {
                    thread::yield_now();
                }
                assert_eq!(world.census.alive(), 0, "{name}");
            }
        });
    }

    let dog = Watchdog::new(Duration::from_secs(20));
    over::<Never>(&dog, &test);
    over::<Deaf>(&dog, &test);
    over::<Timed>(&dog, &test);
}

/// Tests a fate in a task that can be stopped, but is not.
fn meets(fate: Fate) {
    of_each(|place, kind, ends, world| {
        let source = StopSource::new();
        let making = (kind.make)(world.clone());
        let task = Task::new(async move {
            let (work, kept) = making.await;
            fate.meet(work, ends).await;
            drop(kept);
        });
        let outcome = place.run(task.write_env(WithStopToken(source.token())));
        assert!(outcome.is_value(), "{} is {fate:?}", kind.name);
        assert!(lock(&world.slot).is_none());
    });
}

macro_rules! fates {
    ($($name:ident: $fate:ident;)*) => {$(
        #[test]
        fn $name() {
            meets(Fate::$fate);
        }
    )*};
}

fates! {
    never_polled: NeverPolled;
    forgotten_it_is_stopped_with_its_task: Forgotten;
    dropped_in_flight: Dropped;
    dropped_in_a_later_poll: DroppedLater;
    moved_out_of_a_scope_it_goes_on: MovedOutOfAScope;
    dropped_in_a_scope: DroppedInAScope;
    awaited: Awaited;
    polled_with_another_waker_it_goes_on: WithAnotherWaker;
    forgotten_with_another_waker: ForgottenWithAnotherWaker;
    dropped_with_another_waker: DroppedWithAnotherWaker;
    begun_and_moved_to_another_waker_it_goes_on: MovedToAnotherWaker;
}

/// The task is stopped while the future is in flight.
#[test]
fn cancelled_with_its_task() {
    of_each(|place, kind, ends, world| {
        if !ends && !kind.cancelled {
            return;
        }
        for other_waker in [false, true] {
            let source = StopSource::new();
            let (making, canceller) = ((kind.make)(world.clone()), source.clone());
            let task = Task::new(async move {
                let (work, _kept) = making.await;
                let work = begun(work).await;
                canceller.request_stop();
                let Some(work) = work else { return };
                if other_waker {
                    let mut all: FuturesUnordered<Work> = [work].into_iter().collect();
                    all.next().await;
                } else {
                    work.await;
                }
            });
            // Stopped, or with a value that came before.
            let _ = place.run(task.write_env(WithStopToken(source.token())));
        }
    });
}

/// Begun in a scope, it is awaited outside when the task is stopped.
#[test]
fn cancelled_with_its_task_outside_of_the_scope_where_it_began() {
    of_each(|place, kind, ends, world| {
        if !ends && !kind.cancelled {
            return;
        }
        let source = StopSource::new();
        let (making, canceller) = ((kind.make)(world.clone()), source.clone());
        let task = Task::new(async move {
            let (work, _kept) = making.await;
            let moved = KEY.scope(7, task::with_timeout(HOUR, begun(work))).await;
            canceller.request_stop();
            if let Some(work) = moved.expect("there is time") {
                work.await;
            }
        });
        // Stopped, or with a value that came before.
        let _ = place.run(task.write_env(WithStopToken(source.token())));
    });
}

/// The task panics while the future is in flight.
#[test]
fn dropped_by_a_panic_of_its_task() {
    of_each(|place, kind, _, world| {
        let making = (kind.make)(world.clone());
        let task = Task::new(async move {
            let (work, _kept) = making.await;
            let _work = begun(work).await;
            common::quiet_panic();
        });
        assert_eq!(common::panic_message(|| place.run(task)), common::PANIC);
    });
}

/// The task where it began continues until the other has polled and dropped it.
#[test]
fn sent_to_another_task_and_polled_there_it_is_refused() {
    of_each(|place, kind, ends, world| {
        let (making, refused) = ((kind.make)(world.clone()), kind.refused);
        let (sends, receives) = async_channel::bounded(1);
        let (ends_now, ended) = async_channel::bounded::<()>(1);
        let name = kind.name;
        let first = Task::new(async move {
            let (work, _kept) = making.await;
            let work = begun(work).await;
            sends.send(work).await.expect("the other task waits");
            // Closed when the other task has finished with it.
            let _ = ended.recv().await;
        });
        let other = Task::new(async move {
            let _ends_now = ends_now;
            let Some(mut work) = receives.recv().await.expect("it is sent") else {
                return;
            };
            match poll_there(&mut work).await {
                Polled::Panicked(message) => {
                    assert_ne!(refused, Some(false), "{name}: {message}");
                    assert!(message.contains(" was sent "), "{name}: {message}");
                    assert!(message.contains(": await it in the "), "{name}: {message}");
                }
                Polled::Pending => assert_ne!(refused, Some(true), "{name} is polled in another task"),
                // It had completed.
                Polled::Ready => assert!(ends, "{name} gives something"),
            }
            drop(work);
        });
        place.run(when_all((first, other))).unwrap();
    });
}

/// It may end in any way, but does not hang.
#[test]
fn polled_in_another_task_when_its_own_has_ended() {
    of_each(|place, kind, _, world| {
        let making = (kind.make)(world.clone());
        let first = Task::new(async move {
            let (work, _kept) = making.await;
            begun(work).await
        });
        let Some(mut work) = place.run(first).unwrap() else {
            return;
        };
        let name = kind.name;
        let other = Task::new(async move {
            if let Polled::Panicked(message) = poll_there(&mut work).await {
                assert!(message.contains(" was sent "), "{name}: {message}");
            }
            drop(work);
        });
        // If it was stopped, it stops the awaiting task.
        let _ = place.run(other);
    });
}

/// The scope that it leaves last is in a scope of the outer task, which is in another one.
#[test]
fn dropped_when_its_own_task_and_the_nested_scopes_around_that_have_ended() {
    of_each(|place, kind, _, world| {
        for drops in [false, true] {
            let making = (kind.make)(world.clone());
            let inner = Task::new(async move {
                let (work, _kept) = making.await;
                begun(work).await
            });
            let outer = Task::new(async move {
                let nested = task::shield(KEY.scope(7, task::with_timeout(HOUR, inner)));
                nested.await.expect("there is time").unwrap()
            });
            let work = place.run(outer).unwrap();
            if drops {
                let other = Task::new(async move { drop(work) });
                place.run(other).unwrap();
            }
        }
    });
}

#[test]
fn sent_to_another_task_and_dropped_there() {
    of_each(|place, kind, _, world| {
        for wait in [false, true] {
            let making = (kind.make)(world.clone());
            let (sends, receives) = async_channel::bounded(1);
            let (ends_now, ended) = async_channel::bounded::<()>(1);
            let first = Task::new(async move {
                let (work, _kept) = making.await;
                let work = begun(work).await;
                sends.send(work).await.expect("the other task waits");
                if wait {
                    // Closed when the other task has dropped it.
                    let _ = ended.recv().await;
                }
            });
            let other = Task::new(async move {
                let _ends_now = ends_now;
                drop(receives.recv().await.expect("it is sent"));
            });
            place.run(when_all((first, other))).unwrap();
        }
    });
}

#[test]
fn dropped_on_a_thread_of_its_own() {
    of_each(|place, kind, _, world| {
        let making = (kind.make)(world.clone());
        let (sends, receives) = std::sync::mpsc::channel();
        let first = Task::new(async move {
            let (work, _kept) = making.await;
            let work = begun(work).await;
            sends.send(work).expect("the thread waits");
            hops(2).await;
        });
        thread::scope(|scope| {
            scope.spawn(move || drop(receives.recv().expect("it is sent")));
            place.run(first).unwrap();
        });
    });
}

/// The await completes and drops the future meanwhile: normally, by a stop of the task, or by the task's end.
#[test]
fn dropped_inside_its_own_completion() {
    of_each(|place, kind, ends, world| {
        for cancel in [false, true] {
            let source = StopSource::new();
            let (making, canceller, own) = ((kind.make)(world.clone()), source.clone(), world.clone());
            world.completed.store(false, SeqCst);
            let task = Task::new(async move {
                let (work, _kept) = making.await;
                let Some(work) = begun(work).await else { return };
                *lock(&own.slot) = Some(work);
                if cancel {
                    canceller.request_stop();
                } else {
                    while ends && !own.completed.load(SeqCst) {
                        hops(1).await;
                    }
                }
            });
            // Stopped, or with a value.
            let _ = place.run(task.write_env(WithStopToken(source.token())));
            let left = lock(&world.slot).take();
            drop(left);
        }
    });
}

/// A local task is polled only by its own thread, so there is one scheduler.
#[test]
fn local_tasks_meet_the_same_fates() {
    fn local<L: Leaf>(dog: &Watchdog) {
        let elsewhere = ThreadPool::new(1);
        for fate in FATES {
            dog.step(format!("LocalTaskFuture over {} is {fate:?}", L::NAME));
            let world = World::new(elsewhere.scheduler());
            let leaf = L::future(&world);
            let kept = Rc::new(world.census.value());
            let task = LocalTask::new(async move {
                let child = LocalTask::new(async move {
                    let _kept = kept;
                    leaf.await;
                });
                fate.meet(Box::pin(ignored(child.into_future())), L::ENDS).await;
            });
            RunLoop::new().run_until(task).unwrap();
            assert_eq!(world.census.alive(), 0, "{fate:?} over {}", L::NAME);
        }
    }

    let dog = Watchdog::new(Duration::from_secs(20));
    local::<Never>(&dog);
    local::<Deaf>(&dog);
    local::<Timed>(&dog);
}

#[test]
fn a_local_task_that_is_sent_to_another_task_of_its_thread_is_refused() {
    for ended in [false, true] {
        for drops in [false, true] {
            let census = Census::new();
            let kept = Rc::new(census.value());
            let slot = Rc::new(RefCell::new(None));
            let (puts, takes) = (slot.clone(), slot);
            let first = async move {
                let child = LocalTask::new(async move {
                    let _kept = kept;
                    std::future::pending::<()>().await;
                });
                let child = begun(Box::pin(ignored(child.into_future()))).await;
                *puts.borrow_mut() = child;
                while !ended && puts.borrow().is_some() {
                    hops(1).await;
                }
            };
            let other = async move {
                let mut child = loop {
                    let sent = takes.borrow_mut().take();
                    match sent {
                        Some(child) => break child,
                        None => hops(1).await,
                    }
                };
                hops(5).await;
                if !drops && let Polled::Panicked(message) = poll_there(&mut child).await {
                    assert!(message.contains(" was sent "), "{message}");
                }
                drop(child);
            };
            let run_loop = RunLoop::new();
            run_loop
                .run_until(LocalTask::new(async move {
                    let both = (LocalTask::new(first), LocalTask::new(other).stopped_as_option());
                    let (first, other) = (both.0.into_future(), both.1.into_future());
                    let (first, _) = futures_util::future::join(first, other).await;
                    first.unwrap();
                }))
                .unwrap();
            assert_eq!(census.alive(), 0);
        }
    }
}
