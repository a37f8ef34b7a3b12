//! What the tests share: an allocator that counts, threads with small stacks, values that tell when they are dropped.
#![allow(dead_code, unreachable_pub, reason = "every test file uses some of it")]

pub mod everywhere;
pub mod hostile;
pub mod tasks;
pub mod touchy;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::OsStr;
use std::io::Write as _;
use std::panic::Location;
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use bowline::scheduler::{PoolScheduler, RunLoop, RunLoopScheduler, TaskScheduler, ThreadPool};
use bowline::task::{self, Report};
use bowline::{Completes, EmptyEnv, Env, Panic, Receiver, Sender, Transfer, just_from};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static CREW: Cell<Option<&'static AtomicUsize>> = const { Cell::new(None) };
}

/// Counts the allocations of each thread, and those of the threads of a crew together.
struct Counting;

fn count() {
    // A thread that is ending has no counter any more, and nobody who asks.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
    if let Ok(Some(crew)) = CREW.try_with(Cell::get) {
        crew.fetch_add(1, Ordering::SeqCst);
    }
}

/// Counts what several threads allocate, each from the time it joined.
#[derive(Clone, Copy, Debug)]
pub struct CrewAllocations(&'static AtomicUsize);

impl CrewAllocations {
    pub fn new() -> Self {
        // A thread of the crew may end after the test, so they are not on anybody's stack.
        CrewAllocations(for_good(AtomicUsize::new(0)))
    }

    /// The calling thread is counted from now on.
    pub fn join(&self) {
        CREW.with(|crew| crew.set(Some(self.0)));
    }

    /// How often the crew has allocated so far.
    pub fn so_far(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// How often the crew allocates while `f` runs.
    pub fn during<T>(&self, f: impl FnOnce() -> T) -> (T, usize) {
        let before = self.so_far();
        let result = f();
        (result, self.so_far() - before)
    }
}

// SAFETY: every call goes to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread allocates while `f` runs.
pub fn allocations<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATIONS.with(Cell::get);
    let result = f();
    (result, ALLOCATIONS.with(Cell::get) - before)
}

/// How often this thread has allocated so far.
pub fn allocations_so_far() -> usize {
    ALLOCATIONS.with(Cell::get)
}

/// How much larger stacks are under a sanitizer, whose frames are several times as large and whose runtime takes some
/// of the stack for itself. That the sizes hold is for the other runs to show. Set by `scripts/sanitizers`.
const STACK_SCALE: usize = if cfg!(sanitized) { 16 } else { 1 };

/// The stack in which a million rounds must fit.
pub const SMALL_STACK: usize = 64 * 1024 * STACK_SCALE;

/// The stack in which nests a hundred thousand deep must fit.
pub const DEEP_STACK: usize = 256 * 1024 * STACK_SCALE;

/// The rounds of a stack test: enough to fill any stack, should a round keep some of it.
pub const ROUNDS: usize = if cfg!(sanitized) { 100_000 } else { 1_000_000 };

/// Runs `f` on a thread with a stack of `bytes`, and passes its panic on.
pub fn with_stack<T: Send>(bytes: usize, f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let worker = thread::Builder::new()
            .stack_size(bytes)
            .spawn_scoped(scope, f)
            .expect("a thread");
        match worker.join() {
            Ok(result) => result,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    })
}

/// Runs `f` while another thread drives a run loop.
pub fn with_loop<T>(f: impl FnOnce(RunLoopScheduler<'_>) -> T) -> T {
    let run_loop = RunLoop::new();
    thread::scope(|scope| {
        scope.spawn(|| run_loop.run());
        // The loop ends also when `f` panics.
        struct Finish<'a>(&'a RunLoop);
        impl Drop for Finish<'_> {
            fn drop(&mut self) {
                self.0.finish();
            }
        }
        let _finish = Finish(&run_loop);
        f(run_loop.scheduler())
    })
}

/// Takes a lock that several threads want at once.
///
/// The half of a `Mutex` that waits is in the standard library, where ThreadSanitizer does not see it: there it is tried
/// again and again.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    while cfg!(sanitized) {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(_) => thread::yield_now(),
        }
    }
    mutex.lock().expect("nobody panicked while it was held")
}

/// Keeps a worker of a pool busy until it is dropped.
#[derive(Debug)]
pub struct Held {
    _release: mpsc::Sender<()>,
}

/// Keeps a worker of the pool busy, and returns once it is.
pub fn hold(scheduler: PoolScheduler) -> Held {
    let (arrived, arrives) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    bowline::execute(scheduler, move || {
        arrived.send(()).expect("somebody waits");
        // It ends when the other side is dropped.
        let _ = released.recv();
    });
    arrives.recv().expect("the job runs");
    Held { _release: release }
}

/// The message of the panic that `f` ends with.
pub fn panic_message<T>(f: impl FnOnce() -> T) -> String {
    let payload = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        Ok(_) => panic!("it did not panic"),
        Err(payload) => payload,
    };
    match payload.downcast::<&'static str>() {
        Ok(message) => (*message).to_owned(),
        Err(payload) => *payload.downcast::<String>().expect("a message"),
    }
}

/// Counts how many of its values are alive.
#[derive(Clone, Default, Debug)]
pub struct Census(Arc<AtomicUsize>);

/// A value that a [`Census`] counts. Not `Clone`: it stands for what can only be moved.
#[derive(Debug)]
pub struct Counted(Arc<AtomicUsize>);

impl Census {
    pub fn new() -> Self {
        Census::default()
    }

    pub fn value(&self) -> Counted {
        self.0.fetch_add(1, Ordering::SeqCst);
        Counted(self.0.clone())
    }

    pub fn alive(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A sender that completes with a panic.
pub fn just_panic<T, E>(message: &'static str) -> impl Sender<Value = T, Error = E> + Clone + Send {
    just_from(move || -> T { panic!("{message}") }).infallible_into()
}

/// A predicate for `repeat_until` that is true the millionth time.
pub fn million<T>() -> impl FnMut(&T) -> bool + Send {
    let mut left = ROUNDS;
    move |_| {
        left -= 1;
        left == 0
    }
}

/// Random numbers, the same everywhere for a seed.
#[derive(Debug)]
pub struct XorShift(u64);

impl XorShift {
    pub fn new(seed: u64) -> Self {
        // Never zero, and spread out, so that neighbouring seeds do not look alike.
        XorShift((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }
}

/// What [`quiet_panic`] panics with.
pub const PANIC: &str = "a panic of the stress test";

/// Ends as a panic does, without the panic hook's report.
pub fn quiet_panic() -> ! {
    std::panic::resume_unwind(Box::new(PANIC))
}

/// A number from the environment of the process.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is not a number: {text}"))
    })
}

/// Where a sender says that it completes.
pub fn completes<S: Sender>(_: &S) -> Completes {
    S::COMPLETES
}

/// A scheduler of right here that counts its handles: `Arc::strong_count` of what it was made of, less one.
#[derive(Clone, Debug)]
pub struct HandleScheduler(pub Arc<()>);

impl PartialEq for HandleScheduler {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl bowline::Scheduler for HandleScheduler {
    type Schedule = bowline::scheduler::InlineSchedule;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> Self::Schedule {
        bowline::scheduler::InlineScheduler.schedule()
    }

    fn identity(&self) -> bowline::Identity {
        bowline::Identity::of_address(&*self.0)
    }
}

/// Runs a test of the caller's file once more, in a process of its own with more in its environment.
///
/// `test` is the name of the function. The harness knows it by its module too, which is the file it is in.
#[track_caller]
pub fn in_own_process(test: &str, variables: &[(&str, &str)]) -> Output {
    let file = Path::new(Location::caller().file());
    let module = file.file_stem().and_then(OsStr::to_str).expect("the name of a file");
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", &format!("{module}::{test}"), "--nocapture"])
        .envs(variables.iter().copied())
        .output()
        .expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("running 1 test"), "there is no such test: {output:?}");
    output
}

/// Runs `test`, a function of the caller's file, in a process of its own, and expects it to pass.
#[track_caller]
pub fn passes_in_own_process(test: &str, variables: &[(&str, &str)]) {
    let output = in_own_process(test, variables);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{variables:?}: {output:?}"
    );
}

/// Runs `f` in a process of its own, expects it to abort, and returns what it said. `test` is the name of the test that
/// calls this, which is what the process runs.
#[track_caller]
pub fn aborts(test: &str, f: impl FnOnce()) -> String {
    aborts_with(test, &[], f)
}

/// [`aborts`], in a process with more in its environment.
#[track_caller]
pub fn aborts_with(test: &str, variables: &[(&str, &str)], f: impl FnOnce()) -> String {
    const INSIDE: &str = "BOWLINE_ABORTS";
    if std::env::var_os(INSIDE).is_some() {
        f();
        std::process::exit(0);
    }
    let output = in_own_process(test, &[&[(INSIDE, "1")], variables].concat());
    assert_eq!(output.status.code(), None, "it ended by itself: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Holds the report hook, of which a process has one: one test at a time sets it. It is reset at the end.
///
/// Tests that run beside the one that holds it may be reported too, so the hook tells its own reports from others.
#[derive(Debug)]
pub struct ReportHook {
    _alone: MutexGuard<'static, ()>,
}

impl ReportHook {
    /// Waits until no other test holds the hook, and sets it.
    pub fn set(hook: impl Fn(&Report<'_>) + Send + Sync + 'static) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        // A test that failed while it held the hook has reset it all the same.
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        task::set_report_hook(hook);
        ReportHook { _alone }
    }
}

impl Drop for ReportHook {
    fn drop(&mut self) {
        task::reset_report_hook();
    }
}

/// What a [`Record`] was completed with.
#[derive(Debug, PartialEq)]
pub enum Recorded<T, E> {
    Value(T),
    Error(E),
    Stopped,
    Panicked(String),
    /// It was dropped without any of them.
    Dropped,
}

/// A receiver that sends what it is completed with down a channel, and offers the environment it was given.
pub struct Record<T, E, N = EmptyEnv> {
    sender: Option<mpsc::Sender<Recorded<T, E>>>,
    env: N,
}

impl<T, E> Record<T, E> {
    pub fn new() -> (Self, mpsc::Receiver<Recorded<T, E>>) {
        Record::in_env(EmptyEnv)
    }
}

impl<T, E, N> Record<T, E, N> {
    pub fn in_env(env: N) -> (Self, mpsc::Receiver<Recorded<T, E>>) {
        let (sender, receiver) = mpsc::channel();
        let record = Record {
            sender: Some(sender),
            env,
        };
        (record, receiver)
    }

    fn send(&mut self, recorded: Recorded<T, E>) -> Transfer {
        if let Some(sender) = self.sender.take() {
            // A test that does not listen any more does not mind.
            let _ = sender.send(recorded);
        }
        Transfer::none()
    }
}

impl<T: Send, E: Send, N: Env> Receiver<T, E> for Record<T, E, N> {
    type Env = N;

    fn env(&self) -> N {
        self.env.clone()
    }

    fn set_value(mut self, value: T) -> Transfer {
        self.send(Recorded::Value(value))
    }

    fn set_error(mut self, error: E) -> Transfer {
        self.send(Recorded::Error(error))
    }

    fn set_stopped(mut self) -> Transfer {
        self.send(Recorded::Stopped)
    }

    fn set_panicked(mut self, payload: Panic) -> Transfer {
        let message = payload.message().unwrap_or("no text").to_owned();
        self.send(Recorded::Panicked(message))
    }
}

impl<T, E, N> Drop for Record<T, E, N> {
    fn drop(&mut self) {
        self.send(Recorded::Dropped).run();
    }
}

/// [`std::thread`], with scopes whose end ThreadSanitizer sees.
///
/// A scope waits for its threads inside the standard library, which is not instrumented. So every thread of a scope adds
/// to a counter when it ends, and whoever waited for them after that: what happened in them happened before.
pub mod thread {
    use std::sync::atomic::{AtomicUsize, Ordering};
    pub use std::thread::*;

    static ENDS: AtomicUsize = AtomicUsize::new(0);

    /// Counts, also when it is dropped by unwinding.
    struct End;

    impl Drop for End {
        fn drop(&mut self) {
            ENDS.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// [`std::thread::Scope`].
    pub struct Scope<'scope, 'env> {
        scope: &'scope std::thread::Scope<'scope, 'env>,
    }

    impl<'scope> Scope<'scope, '_> {
        pub fn spawn<F, T>(&self, f: F) -> ScopedJoinHandle<'scope, T>
        where
            F: FnOnce() -> T + Send + 'scope,
            T: Send + 'scope,
        {
            self.scope.spawn(|| {
                let _end = End;
                f()
            })
        }
    }

    /// [`std::thread::scope`].
    pub fn scope<'env, F, T>(f: F) -> T
    where
        F: for<'scope> FnOnce(&Scope<'scope, 'env>) -> T,
    {
        let _end = End;
        std::thread::scope(|scope| f(&Scope { scope }))
    }
}

/// Ends the process when a test hangs, with the name of what it was doing.
#[derive(Debug)]
pub struct Watchdog {
    tells: mpsc::Sender<String>,
}

impl Watchdog {
    /// Every step takes less than `limit`.
    pub fn new(limit: Duration) -> Self {
        let (tells, told) = mpsc::channel::<String>();
        let test = thread::current().name().unwrap_or("a test").to_owned();
        thread::spawn(move || {
            let mut step = "the beginning".to_owned();
            loop {
                match told.recv_timeout(limit) {
                    Ok(next) => step = next,
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        // Not by a panic: the thread that hangs would not see it.
                        let _ = writeln!(std::io::stderr(), "{test} hangs for {limit:?}: {step}");
                        std::process::abort();
                    }
                }
            }
        });
        Watchdog { tells }
    }

    /// The next step begins.
    pub fn step(&self, name: impl Into<String>) {
        self.tells.send(name.into()).expect("the watchdog runs");
    }
}

/// A value that is never gone, and that a search for leaks finds.
pub fn for_good<T: Sync>(value: T) -> &'static T {
    let value: &'static T = Box::leak(Box::new(value));
    keep(value);
    value
}

/// Forgets what is in a box, in a way that a search for leaks finds.
pub fn forget<T>(value: Pin<Box<T>>) {
    keep(&raw const *value);
    std::mem::forget(value);
}

fn keep<T>(value: *const T) {
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    kept.push(value.expose_provenance());
}

/// Calls `f` with a scheduler of a run loop that another thread drives, then with that of a pool of 1, of 2 and of 8
/// workers.
pub fn on_loop_and_pools(f: impl Fn(TaskScheduler<'static>)) {
    let run_loop = for_good(RunLoop::new());
    thread::scope(|scope| {
        scope.spawn(|| run_loop.run());
        // The loop ends also when `f` panics.
        struct Finish(&'static RunLoop);
        impl Drop for Finish {
            fn drop(&mut self) {
                self.0.finish();
            }
        }
        let _finish = Finish(run_loop);
        f(TaskScheduler::new(run_loop.scheduler()));
    });
    for workers in [1, 2, 8] {
        let pool = ThreadPool::new(workers);
        f(TaskScheduler::new(pool.scheduler()));
    }
}

/// A value whose destructor panics.
pub struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a destructor panics");
    }
}
