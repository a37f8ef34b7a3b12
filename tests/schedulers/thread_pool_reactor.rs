//! The reactor of a `ThreadPool`: what an idle worker waits in.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, Reactor, ThreadPool};
use bowline::task::{Handle, SpawnOptions};

/// A reactor whose events are closures, called by the thread that waits.
#[derive(Default)]
struct Events {
    state: Mutex<State>,
    changed: Condvar,
    inside: AtomicUsize,
    waits: AtomicUsize,
    looks: AtomicUsize,
}

#[derive(Default)]
struct State {
    interrupted: bool,
    due: Vec<Box<dyn FnOnce() + Send>>,
}

impl Events {
    fn post(&self, event: impl FnOnce() + Send + 'static) {
        lock(&self.state).due.push(Box::new(event));
        self.changed.notify_all();
    }

    /// Waits until a worker is in `wait`.
    fn until_attended(&self) {
        while self.inside.load(SeqCst) == 0 {
            thread::yield_now();
        }
    }
}

impl Reactor for Events {
    fn wait(&self, limit: Option<Duration>) {
        assert_eq!(self.inside.fetch_add(1, SeqCst), 0, "one worker at a time");
        let counter = if limit == Some(Duration::ZERO) {
            &self.looks
        } else {
            &self.waits
        };
        counter.fetch_add(1, SeqCst);
        let quiet = |state: &mut State| !state.interrupted && state.due.is_empty();
        let limit = limit.unwrap_or(Duration::MAX);
        let waited = self.changed.wait_timeout_while(lock(&self.state), limit, quiet);
        let mut state = waited.unwrap().0;
        state.interrupted = false;
        let due = std::mem::take(&mut state.due);
        drop(state);
        due.into_iter().for_each(|event| event());
        self.inside.fetch_sub(1, SeqCst);
    }

    fn interrupt(&self) {
        lock(&self.state).interrupted = true;
        self.changed.notify_all();
    }
}

/// The events, with a function that follows each interrupt.
struct Answering {
    events: Arc<Events>,
    answer: Box<dyn Fn() + Send + Sync>,
}

impl Reactor for Answering {
    fn wait(&self, limit: Option<Duration>) {
        self.events.wait(limit);
    }

    fn interrupt(&self) {
        self.events.interrupt();
        (self.answer)();
    }
}

/// Creates a pool of two threads that calls a function after each interrupt.
fn answering(answer: impl Fn() + Send + Sync + 'static) -> (ThreadPool, Arc<Events>) {
    answering_with(2, answer)
}

fn answering_with(threads: usize, answer: impl Fn() + Send + Sync + 'static) -> (ThreadPool, Arc<Events>) {
    let events = Arc::new(Events::default());
    let reactor = Answering {
        events: events.clone(),
        answer: Box::new(answer),
    };
    (
        ThreadPool::builder().threads(threads).reactor(reactor).build().unwrap(),
        events,
    )
}

fn pool_with(threads: usize) -> (ThreadPool, Arc<Events>) {
    let events = Arc::new(Events::default());
    let pool = ThreadPool::builder().threads(threads).reactor(events.clone()).build();
    (pool.unwrap(), events)
}

/// Runs a task that an event wakes. Returns the names of the threads that called the event and resumed the task.
fn woken_by_an_event(pool: &ThreadPool, events: &Arc<Events>) -> (String, String) {
    let (send, receive) = mpsc::channel();
    let (mut posted, here) = (false, events.clone());
    let fired = Arc::new(AtomicBool::new(false));
    let task = Task::new(poll_fn(move |context| {
        if fired.load(SeqCst) {
            return Poll::Ready(name());
        }
        if !std::mem::replace(&mut posted, true) {
            let (waker, send, fired): (Waker, _, _) = (context.waker().clone(), send.clone(), fired.clone());
            here.post(move || {
                fired.store(true, SeqCst);
                send.send(name()).unwrap();
                waker.wake();
            });
        }
        Poll::Pending
    }));
    let resumed = sync_wait(starts_on(pool.scheduler(), task)).unwrap();
    (receive.recv().unwrap(), resumed)
}

fn name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

#[test]
fn a_worker_calls_the_events_and_runs_what_they_wake() {
    let (pool, events) = pool_with(1);
    for _ in 0..100 {
        let (called, resumed) = woken_by_an_event(&pool, &events);
        assert_eq!((called.as_str(), resumed.as_str()), ("bowline-0", "bowline-0"));
    }
}

#[test]
fn a_job_from_elsewhere_interrupts_the_wait() {
    for threads in [1, 2, 3] {
        let (pool, events) = pool_with(threads);
        for n in 0..200 {
            if n % 2 == 0 {
                events.until_attended();
            }
            assert_eq!(sync_wait(pool.scheduler().schedule().then(move |()| n)).unwrap(), n);
        }
        drop(pool);
        assert_eq!(events.inside.load(SeqCst), 0);
    }
}

#[test]
fn one_worker_at_a_time_waits_under_load() {
    let (pool, events) = pool_with(3);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..300 {
                    woken_by_an_event(&pool, &events);
                }
            });
        }
    });
    drop(pool);
    assert_eq!(events.inside.load(SeqCst), 0);
}

#[test]
fn a_busy_worker_looks_for_events() {
    let (pool, events) = pool_with(1);
    let called = Arc::new(AtomicBool::new(false));
    events.until_attended();
    let (seen, post) = (called.clone(), events.clone());
    let work = Task::new(async move {
        // From here on the worker has a job at all times.
        post.post(move || seen.store(true, SeqCst));
        let mut rounds = 0;
        while !called.load(SeqCst) {
            task::yield_now().await;
            rounds += 1;
        }
        rounds
    });
    let rounds = sync_wait(starts_on(pool.scheduler(), work)).unwrap();
    assert!(rounds > 0 && rounds <= 130, "{rounds}");
    assert!(events.looks.load(SeqCst) > 0);
}

#[test]
fn an_event_counts_as_no_thread_of_the_pool() {
    let (pool, events) = pool_with(1);
    let pool = Arc::new(pool);
    let (send, receive) = mpsc::channel();
    let here = pool.clone();
    events.post(move || send.send(here.worker_index()).unwrap());
    assert_eq!(receive.recv().unwrap(), None);
}

#[test]
fn a_thread_that_comes_out_of_a_wait_takes_the_seat_of_the_one_that_waits() {
    let (pool, events) = pool_with(1);
    for _ in 0..50 {
        // The spare thread runs the inner job, and then waits for events on the seat.
        let sum = pool.install(|| {
            let inner = sync_wait(starts_on(pool.scheduler(), just(1))).unwrap();
            let (a, b) = bowline::join(|| inner, || 2);
            a + b
        });
        assert_eq!(sum, 3);
        woken_by_an_event(&pool, &events);
    }
}

#[test]
fn a_pool_may_be_dropped_by_an_event() {
    let (pool, events) = pool_with(2);
    let (send, receive) = mpsc::channel();
    events.post(move || {
        drop(pool);
        send.send(()).unwrap();
    });
    receive.recv().unwrap();
    // The threads end on their own, and with them the last use of the reactor.
    while Arc::strong_count(&events) > 1 {
        thread::yield_now();
    }
}

/// A reactor that panics.
#[derive(Default)]
struct Broken {
    waits: AtomicUsize,
    interrupts: AtomicUsize,
}

impl Reactor for Broken {
    fn wait(&self, _: Option<Duration>) {
        self.waits.fetch_add(1, SeqCst);
        quiet_panic();
    }

    fn interrupt(&self) {
        self.interrupts.fetch_add(1, SeqCst);
        quiet_panic();
    }
}

#[test]
fn workers_sleep_without_a_reactor_that_panics() {
    let reactor = Arc::new(Broken::default());
    let pool = ThreadPool::builder()
        .threads(2)
        .reactor(reactor.clone())
        .build()
        .unwrap();
    for n in 0..100 {
        assert_eq!(sync_wait(pool.scheduler().schedule().then(move |()| n)).unwrap(), n);
    }
    // A worker that found a job each time rests at the end.
    while reactor.waits.load(SeqCst) == 0 {
        thread::yield_now();
    }
    drop(pool);
    assert_eq!(reactor.waits.load(SeqCst), 1);
}

/// A reactor that returns at once.
struct Restless;

impl Reactor for Restless {
    fn wait(&self, _: Option<Duration>) {
        thread::yield_now();
    }

    fn interrupt(&self) {}
}

#[test]
fn a_wait_may_return_early() {
    let pool = ThreadPool::builder().threads(2).reactor(Restless).build().unwrap();
    for n in 0..100 {
        assert_eq!(sync_wait(pool.scheduler().schedule().then(move |()| n)).unwrap(), n);
    }
}

#[test]
fn an_interrupt_may_queue_a_job_at_the_end_of_the_pool() {
    for _ in 0..50 {
        let scheduler = Arc::new(OnceLock::<PoolScheduler>::new());
        let (closing, queued) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (send, receive) = mpsc::channel();
        let (pool, events) = answering({
            let (scheduler, closing, queued) = (scheduler.clone(), closing.clone(), queued.clone());
            move || {
                if closing.load(SeqCst) {
                    queued.fetch_add(1, SeqCst);
                    let send = send.clone();
                    let job = scheduler
                        .get()
                        .unwrap()
                        .schedule()
                        .then(move |()| send.send(()).unwrap());
                    start_detached(job);
                }
            }
        });
        scheduler.set(pool.scheduler()).unwrap();
        events.until_attended();
        thread::sleep(Duration::from_millis(1));
        closing.store(true, SeqCst);
        drop(pool);
        for _ in 0..queued.load(SeqCst) {
            receive.recv_timeout(Duration::from_secs(60)).expect("the job was lost");
        }
    }
}

#[test]
fn an_interrupt_may_wait_for_work_of_another_pool() {
    let other = Arc::new(ThreadPool::new(1));
    for _ in 0..20 {
        let (pool, events) = answering({
            let other = other.clone();
            move || assert_eq!(sync_wait(other.scheduler().schedule().then(|()| 1)).unwrap(), 1)
        });
        events.until_attended();
        let sum = pool.install(|| {
            let (a, (b, c)) = bowline::join(|| 1, || bowline::join(|| 2, || 3));
            a + b + c
        });
        assert_eq!(sum, 6);
        events.until_attended();
        drop(pool);
    }
}

#[test]
fn an_interrupt_counts_as_no_task_and_no_thread_of_the_pool() {
    for _ in 0..50 {
        let this = Arc::new(OnceLock::<Arc<ThreadPool>>::new());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (pool, events) = answering({
            let (this, seen) = (this.clone(), seen.clone());
            move || {
                let index = this.get().and_then(|pool| pool.worker_index());
                lock(&seen).push((index, task::current().is_some()));
            }
        });
        let pool = Arc::new(pool);
        _ = this.set(pool.clone());
        events.until_attended();
        thread::sleep(Duration::from_millis(1));
        let scheduler = pool.scheduler();
        let spawns = Task::new(async move {
            for _ in 0..4 {
                start_detached(scheduler.schedule());
            }
        });
        sync_wait(starts_on(scheduler, spawns)).unwrap();
        let seen = lock(&seen);
        assert!(seen.iter().all(|seen| *seen == (None, false)), "{seen:?}");
    }
}

#[test]
fn an_interrupt_may_raise_a_task_that_is_being_raised() {
    thread_local! {
        static RAISED: RefCell<Option<Arc<Handle<()>>>> = const { RefCell::new(None) };
    }
    let seen = Arc::new(AtomicUsize::new(0));
    let (pool, events) = answering({
        let seen = seen.clone();
        move || {
            if let Some(handle) = RAISED.take() {
                handle.raise(Priority::UserInteractive);
                seen.fetch_add(1, SeqCst);
            }
        }
    });
    let scheduler = pool.scheduler();
    for _ in 0..500 {
        if seen.load(SeqCst) > 2 {
            break;
        }
        let (send, receive) = mpsc::channel();
        let (raised, events) = (Arc::new(AtomicBool::new(false)), events.clone());
        let is_raised = raised.clone();
        start_detached(starts_on(
            scheduler,
            Task::new(async move {
                // After some jobs from the slot, another one there wakes no worker.
                for _ in 0..3 {
                    scheduler.schedule().await;
                }
                events.until_attended();
                let options = SpawnOptions::new().scheduler(scheduler);
                send.send(Arc::new(task::detach_with(options, async {}))).unwrap();
                while !is_raised.load(SeqCst) {
                    std::hint::spin_loop();
                }
            }),
        ));
        let handle = receive.recv().unwrap();
        RAISED.set(Some(handle.clone()));
        handle.raise(Priority::UserInitiated);
        RAISED.take();
        raised.store(true, SeqCst);
        while !handle.is_finished() {
            thread::yield_now();
        }
    }
}

/// A group queues the children that it stops in batches. A reactor is interrupted when all of a batch are queued: it may raise them, which
/// waits until each of them is.
#[test]
fn an_interrupt_may_raise_children_that_are_being_stopped() {
    const CHILDREN: usize = 40;
    thread_local! {
        static RAISED: RefCell<Option<Arc<Handle<()>>>> = const { RefCell::new(None) };
    }
    let seen = Arc::new(AtomicUsize::new(0));
    // The only worker is in the reactor whenever it has no job, so what queues one interrupts it.
    let (pool, events) = answering_with(1, {
        let seen = seen.clone();
        move || {
            if let Some(handle) = RAISED.take() {
                handle.raise(Priority::UserInteractive);
                seen.fetch_add(1, SeqCst);
            }
        }
    });
    let scheduler = pool.scheduler();
    for _ in 0..500 {
        if seen.load(SeqCst) > 2 {
            break;
        }
        let begun = Arc::new(AtomicUsize::new(0));
        let options = SpawnOptions::new().scheduler(scheduler).priority(Priority::Background);
        let spawns = task::group({
            let begun = begun.clone();
            async move |group| {
                for _ in 0..CHILDREN {
                    let begun = begun.clone();
                    group.spawn(async move {
                        begun.fetch_add(1, SeqCst);
                        never::<(), ()>().await
                    });
                }
            }
        });
        let handle = Arc::new(task::detach_with(options, spawns));
        while begun.load(SeqCst) < CHILDREN {
            thread::yield_now();
        }
        events.until_attended();
        RAISED.set(Some(handle.clone()));
        handle.cancel();
        RAISED.take();
        while !handle.is_finished() {
            thread::yield_now();
        }
    }
    assert_ne!(seen.load(SeqCst), 0);
}
