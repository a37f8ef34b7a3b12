//! Ends work at each of its awaits: a run for the first one, a run for the second one, and so on, and a run to the end.
//!
//! A [`Scenario`] awaits futures of another crate by [`Run::wait`]. What such an await waits for comes after the suspension, or never if
//! the run ends there. So each await suspends in every run, and no run depends on the time. An await that does not suspend fails the test.
//!
//! A run is ended [by](By) a stop or by a deadline. The deadline's timer is served by a run loop that is driven at the suspension and
//! not before. After each run the work and its locals have been dropped, and a check looks for what was lost.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses some of it")]

pub mod of_smol;
pub mod of_tokio;

use std::convert::Infallible;
use std::future::{Future, IntoFuture, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bowline::Outcome;
use bowline::scheduler::{RunLoop, Timer};
use bowline::stop::{SharedStopToken, StopSource};
use bowline::task::{self, DeadlineExceeded, LocalTask, Reason, SpawnOptions, Task, TaskError};
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Handle};

/// Time that never passes in a test.
pub const HOUR: Duration = Duration::from_secs(3600);

/// A free port of this machine alone.
pub const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The bytes of a write that suspends: more than the buffers of a connection hold.
pub const FLOOD: usize = 32 << 20;

/// The work of one run.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The work of one run, and what ends it.
pub type Whole = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// The work of one run, and what must hold after it.
pub type Made = (Work, Box<dyn FnOnce(End)>);

/// Work that waits for futures of another crate.
#[derive(Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// The awaits, in order.
    pub awaits: &'static [&'static str],
    pub make: fn(Run) -> Made,
}

/// The await at which a run was ended, or `None` if it ran to its end.
pub type End = Option<&'static str>;

/// How a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Finished,
    Cancelled,
    Late,
}

/// Makes the scenario's work and its check.
pub fn made(work: impl Future<Output = ()> + Send + 'static, check: impl FnOnce(End) + 'static) -> Made {
    (Box::pin(work), Box::new(check))
}

/// A run of a scenario.
#[derive(Clone)]
pub struct Run(Arc<RunState>);

struct RunState {
    /// The suspension at which the run is ended; beyond the last one for a run to the end.
    ends_at: usize,
    /// Whether another thread ends it.
    elsewhere: bool,
    /// The awaits that have suspended.
    suspended: Mutex<Vec<&'static str>>,
    /// Ends the run.
    end: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The clock of the deadline.
    clock: RunLoop,
    /// The number of awaited futures, and of locals of the work, that have not been dropped.
    alive: AtomicUsize,
    /// Whether the deadline had passed before the work began.
    began_late: AtomicBool,
}

/// Counts while it is not dropped.
struct Alive(Run);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.0.alive.fetch_sub(1, SeqCst);
    }
}

impl Run {
    fn new(ends_at: usize, elsewhere: bool) -> Self {
        Run(Arc::new(RunState {
            ends_at,
            elsewhere,
            suspended: Mutex::default(),
            end: Mutex::default(),
            threads: Mutex::default(),
            clock: RunLoop::new(),
            alive: AtomicUsize::new(0),
            began_late: AtomicBool::new(false),
        }))
    }

    fn alive(&self) -> Alive {
        self.0.alive.fetch_add(1, SeqCst);
        Alive(self.clone())
    }

    /// Awaits a future that suspends. If the run does not end there, `comes` makes it ready.
    pub async fn wait<F: IntoFuture>(
        &self,
        name: &'static str,
        future: F,
        comes: impl FnOnce(Pin<&mut F::IntoFuture>),
    ) -> F::Output {
        let _alive = self.alive();
        let mut future = pin!(future.into_future());
        // What would come is kept if the run ends: its drop may be a reason to continue.
        let (mut comes, mut is_first) = (Some(comes), true);
        poll_fn(|cx| {
            let polled = future.as_mut().poll(cx);
            if is_first {
                is_first = false;
                assert!(polled.is_pending(), "`{name}` does not suspend");
                if !self.ends_in(name)
                    && let Some(comes) = comes.take()
                {
                    comes(future.as_mut());
                }
            }
            polled
        })
        .await
    }

    /// Awaits a future that becomes ready by itself, perhaps at once. In the run that ends there, it is made until one suspends.
    pub async fn wait_again<F: Future>(&self, name: &'static str, mut make: impl FnMut() -> F) -> F::Output {
        let _alive = self.alive();
        let mut future = Box::pin(make());
        if lock(&self.0.suspended).len() != self.0.ends_at {
            self.ends_in(name);
            return future.await;
        }
        let mut is_first = true;
        poll_fn(|cx| {
            while is_first {
                if future.as_mut().poll(cx).is_pending() {
                    is_first = false;
                    self.ends_in(name);
                } else {
                    future.set(make());
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Notes a suspension, and ends the run if it ends there.
    fn ends_in(&self, name: &'static str) -> bool {
        let index = {
            let mut suspended = lock(&self.0.suspended);
            suspended.push(name);
            suspended.len() - 1
        };
        if index != self.0.ends_at {
            return false;
        }
        // A child may suspend before its parent has the handle that cancels it.
        let end = loop {
            if let Some(end) = lock(&self.0.end).take() {
                break end;
            }
            thread::yield_now();
        };
        if self.0.elsewhere {
            self.on_thread(|| {
                // The poll ends first, as a rule. Either order has the same result.
                thread::sleep(Duration::from_millis(1));
                end();
            });
        } else {
            end();
        }
        true
    }

    /// Sets what ends the run.
    fn ends_by(&self, end: impl FnOnce() + Send + 'static) {
        *lock(&self.0.end) = Some(Box::new(end));
    }

    /// Starts a thread that ends with the run.
    fn on_thread(&self, run: impl FnOnce() + Send + 'static) {
        lock(&self.0.threads).push(thread::spawn(run));
    }

    /// Creates a deadline whose timer fires when the run is to end, and not before.
    fn deadline(&self, after: Duration) -> (Instant, Timer) {
        let timer = Timer::on(&self.0.clock);
        let at = Instant::now() + after;
        let (run, own) = (self.clone(), timer.clone());
        self.ends_by(move || {
            // Timers complete in the order of their deadlines, so that of the run has completed when this one has.
            assert!(run.0.clock.run_until(own.schedule_at(at)).is_value());
            // Outside of a task the timer starts after the first poll of the work.
            let driver = run.clone();
            run.on_thread(move || driver.0.clock.run());
        });
        (at, timer)
    }

    /// Waits for the threads, and drops what refers to the run.
    fn join(&self) {
        drop(lock(&self.0.end).take());
        self.0.clock.finish();
        loop {
            let Some(thread) = lock(&self.0.threads).pop() else {
                return;
            };
            thread.join().expect("the thread does not panic");
        }
    }
}

/// What ends a run, and what it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A stop of the task.
    Stop,
    /// A stop of the task, in a task that it awaits.
    StopOfParent,
    /// The handle of a child.
    Handle,
    /// The group of a child.
    Group,
    /// A deadline around the work.
    Deadline,
    /// A deadline around a task that is awaited.
    DeadlineOfTask,
    /// A deadline around the group of a child.
    DeadlineOfGroup,
}

impl By {
    pub const ALL: [By; 7] = [
        By::Stop,
        By::StopOfParent,
        By::Handle,
        By::Group,
        By::Deadline,
        By::DeadlineOfTask,
        By::DeadlineOfGroup,
    ];

    fn expected(self) -> Ended {
        match self {
            By::Stop | By::StopOfParent | By::Handle | By::Group => Ended::Cancelled,
            By::Deadline | By::DeadlineOfTask | By::DeadlineOfGroup => Ended::Late,
        }
    }

    /// Makes the future of a run's task.
    fn future(self, run: &Run, work: Work, source: &StopSource, after: Duration) -> Whole {
        let run = run.clone();
        match self {
            By::Stop | By::StopOfParent => {
                let source = source.clone();
                run.ends_by(move || _ = source.request_stop());
                Box::pin(async move {
                    if self == By::Stop {
                        work.await;
                    } else {
                        Task::new(work).await.unwrap();
                    }
                    Ended::Finished
                })
            }
            By::Handle | By::Group => Box::pin(task::group(async move |group| {
                let child = group.spawn_with(SpawnOptions::new().cancellable(), work);
                if self == By::Handle {
                    run.ends_by(move || child.cancel());
                } else {
                    let group = group.clone();
                    run.ends_by(move || group.cancel_all());
                }
                let ended = ended(group.next_ended().await);
                assert!(!task::is_cancelled(), "the parent is not cancelled");
                // The end refers to the group: a run that was not ended drops it here.
                drop(lock(&run.0.end).take());
                ended
            })),
            By::Deadline => {
                let (at, timer) = run.deadline(after);
                Box::pin(async move { late(task::with_deadline(at, work).on(&timer).await) })
            }
            By::DeadlineOfTask => {
                let (at, timer) = run.deadline(after);
                Box::pin(async move { late(task::with_deadline(at, Task::new(work)).on(&timer).await) })
            }
            By::DeadlineOfGroup => {
                let (at, timer) = run.deadline(after);
                let group = task::group(async move |group| {
                    if task::is_cancelled() {
                        // A cancelled group refuses the child.
                        run.0.began_late.store(true, SeqCst);
                        return Ended::Late;
                    }
                    group.spawn(work);
                    let ended = ended(group.next_ended().await);
                    if ended == Ended::Cancelled {
                        assert_eq!(task::cancellation_reason(), Some(Reason::Deadline));
                        // A body that waits for anything else stops, too.
                        std::future::pending::<()>().await;
                    }
                    ended
                });
                Box::pin(async move {
                    let ended = task::with_deadline(at, group).on(&timer).await;
                    assert!(!task::is_cancelled(), "the deadline is that of the group alone");
                    ended.unwrap_or(Ended::Late)
                })
            }
        }
    }
}

fn ended(child: Option<Result<(), TaskError>>) -> Ended {
    match child {
        Some(Ok(())) => Ended::Finished,
        Some(Err(TaskError::Cancelled)) => Ended::Cancelled,
        other => panic!("the child has ended otherwise: {other:?}"),
    }
}

fn late<T>(limited: Result<T, DeadlineExceeded>) -> Ended {
    match limited {
        Ok(_) => Ended::Finished,
        Err(DeadlineExceeded) => Ended::Late,
    }
}

/// Runs a task somewhere, with this token in its environment, and waits for it.
pub type Place<'a> = &'a dyn Fn(Task<Ended>, SharedStopToken) -> Outcome<Ended, Infallible>;

/// Runs a local task on this thread, with this token in its environment, and waits for it.
pub type LocalPlace<'a> = &'a dyn Fn(LocalTask<Ended>, SharedStopToken) -> Outcome<Ended, Infallible>;

/// Runs a future somewhere, and waits for it.
pub type PlainPlace<'a> = &'a dyn Fn(Whole) -> Ended;

/// Ends each scenario at each await, in every way. The work is inside of the context, if there is one, and of the place's otherwise.
pub fn end_at_each(place: Place<'_>, scenarios: &[Scenario], context: Option<&Handle>) {
    end_futures_at_each(&|future, token| place(Task::new(future), token), scenarios, context);
}

/// Ends each scenario like [`end_at_each`], in local tasks.
pub fn end_local_at_each(place: LocalPlace<'_>, scenarios: &[Scenario], context: Option<&Handle>) {
    end_futures_at_each(
        &|future, token| place(LocalTask::new(future), token),
        scenarios,
        context,
    );
}

fn end_futures_at_each(
    place: &dyn Fn(Whole, SharedStopToken) -> Outcome<Ended, Infallible>,
    scenarios: &[Scenario],
    context: Option<&Handle>,
) {
    for by in By::ALL {
        each(
            scenarios,
            context,
            &format!("{by:?}"),
            by.expected(),
            |run, work, after| {
                let source = StopSource::new();
                let future = by.future(run, work, &source, after);
                match place(future, source.token()) {
                    Outcome::Value(ended) => ended,
                    Outcome::Stopped => Ended::Cancelled,
                    Outcome::Error(error) => match error {},
                }
            },
        );
    }
}

/// Ends each scenario at each await by a deadline around a plain future, outside of any task.
pub fn end_plain_at_each(place: PlainPlace<'_>, scenarios: &[Scenario], context: Option<&Handle>) {
    each(scenarios, context, "a plain future", Ended::Late, |run, work, after| {
        let (at, timer) = run.deadline(after);
        place(Box::pin(
            async move { late(task::with_deadline(at, work).on(&timer).await) },
        ))
    });
}

fn each(
    scenarios: &[Scenario],
    context: Option<&Handle>,
    by: &str,
    expected: Ended,
    start: impl Fn(&Run, Work, Duration) -> Ended,
) {
    for scenario in scenarios {
        for elsewhere in [false, true] {
            for ends_at in 0..scenario.awaits.len() {
                let ended = run_to(scenario, context, ends_at, elsewhere, &start);
                let at = scenario.awaits[ends_at];
                assert_eq!(ended, expected, "{}, ended at `{at}` by {by}", scenario.name);
            }
        }
        let ended = run_to(scenario, context, scenario.awaits.len(), false, &start);
        assert_eq!(ended, Ended::Finished, "{}, not ended by {by}", scenario.name);
    }
}

/// Runs a scenario, ends it at this await, and checks what is left.
fn run_to(
    scenario: &Scenario,
    context: Option<&Handle>,
    ends_at: usize,
    elsewhere: bool,
    start: &impl Fn(&Run, Work, Duration) -> Ended,
) -> Ended {
    let mut after = Duration::from_millis(2);
    loop {
        let run = Run::new(ends_at, elsewhere);
        let (work, check) = (scenario.make)(run.clone());
        let (local, inside) = (run.alive(), run.clone());
        let work = async move {
            let _local = local;
            inside.0.began_late.fetch_or(task::is_cancelled(), SeqCst);
            work.await;
        };
        let work = Box::pin(InContext {
            context: context.cloned(),
            work: Box::pin(work),
        });
        let ended = start(&run, work, after);
        // The locals and the awaited futures are dropped before the completion.
        assert_eq!(run.0.alive.load(SeqCst), 0, "{}: alive after its end", scenario.name);
        run.join();
        if run.0.began_late.load(SeqCst) {
            // The thread was suspended until after the deadline. The next run has more time to begin.
            after *= 2;
            continue;
        }
        let suspended = lock(&run.0.suspended).clone();
        let awaits = &scenario.awaits[..scenario.awaits.len().min(ends_at + 1)];
        assert_eq!(suspended, awaits, "{}: the awaits that have suspended", scenario.name);
        check(scenario.awaits.get(ends_at).copied());
        return ended;
    }
}

/// Work that is polled inside of a runtime's context.
struct InContext {
    context: Option<Handle>,
    work: Work,
}

impl Future for InContext {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let context = self.context.clone();
        let _context = context.as_ref().map(Handle::enter);
        self.work.as_mut().poll(cx)
    }
}

/// A value that the work uses, and the check after it. The drop of the work returns it.
#[derive(Debug)]
pub struct Lent<T>(Arc<Mutex<Option<T>>>);

impl<T> Clone for Lent<T> {
    fn clone(&self) -> Self {
        Lent(self.0.clone())
    }
}

impl<T> Lent<T> {
    pub fn new(value: T) -> Self {
        Lent(Arc::new(Mutex::new(Some(value))))
    }

    /// Creates one without a value.
    pub fn empty() -> Self {
        Lent(Arc::default())
    }

    pub fn put(&self, value: T) {
        *lock(&self.0) = Some(value);
    }

    /// Takes the value for good.
    #[track_caller]
    pub fn take(&self) -> T {
        self.try_take().expect("the work has returned it")
    }

    pub fn try_take(&self) -> Option<T> {
        lock(&self.0).take()
    }

    /// Takes the value until the borrow is dropped.
    #[track_caller]
    pub fn borrow(&self) -> Borrowed<T> {
        Borrowed {
            value: Some(self.take()),
            home: self.clone(),
        }
    }
}

/// A borrowed value.
#[derive(Debug)]
pub struct Borrowed<T> {
    value: Option<T>,
    home: Lent<T>,
}

impl<T> Deref for Borrowed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until the drop")
    }
}

impl<T> DerefMut for Borrowed<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is there until the drop")
    }
}

impl<T> Drop for Borrowed<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.home.put(value);
        }
    }
}

/// Asserts that the other side of a connection was closed. What was written before may still arrive.
pub fn assert_closed(mut peer: TcpStream) {
    peer.set_nonblocking(false).unwrap();
    // A limit that turns a hang into a failure.
    peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    match std::io::copy(&mut peer, &mut std::io::sink()) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
}

/// Listens with room for very few connections. A further one waits, until one of them is accepted.
pub fn small_listener() -> TcpListener {
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    let _context = runtime.enter();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(LOOPBACK).unwrap();
    let listener = socket.listen(1).unwrap().into_std().unwrap();
    listener.set_nonblocking(false).unwrap();
    listener
}

/// Reads the flood on a thread.
pub fn drain(mut peer: TcpStream) {
    drop(thread::spawn(move || {
        let mut peer = std::io::Read::take(&mut peer, FLOOD as u64);
        std::io::copy(&mut peer, &mut std::io::sink())
    }));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
