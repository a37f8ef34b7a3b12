//! Helpers shared by the tests: an allocator that counts, threads with small stacks, values that count their drops.
#![allow(dead_code, unreachable_pub, reason = "every test file uses some of it")]

pub mod everywhere;
pub mod hostile;
pub mod tasks;
pub mod touchy;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::ffi::OsStr;
use std::io::Write as _;
use std::panic::Location;
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use bowline::scheduler::{PoolScheduler, RunLoop, RunLoopScheduler, TaskScheduler, ThreadPool};
use bowline::task::{self, Report};
use bowline::{Completes, EmptyEnv, Env, Panic, Receiver, Sender, Transfer, just_from, just_stopped, never};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static CREW: Cell<Option<&'static AtomicUsize>> = const { Cell::new(None) };
    static PAUSE: Cell<Option<Pause>> = const { Cell::new(None) };
}

/// The number of allocations before a pause, and the function that pauses.
type Pause = (usize, fn());

/// The allocated bytes of the process.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// An allocator that counts the allocations of each thread, those of a crew of threads together, and the bytes of all.
struct Counting;

fn count() {
    // A thread that is ending has dropped its counter, and no test reads it.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
    if let Ok(Some(crew)) = CREW.try_with(Cell::get) {
        crew.fetch_add(1, Ordering::SeqCst);
    }
    if let Ok(Some((left, pause))) = PAUSE.try_with(Cell::get) {
        PAUSE.set(left.checked_sub(1).map(|left| (left, pause)));
        if left == 0 {
            pause();
        }
    }
}

/// Calls `pause` in the allocation of this thread that comes after so many others, as a slow allocator or a page fault may pause it
/// there. `pause` allocates nothing.
pub fn pause_in_allocation(after: usize, pause: fn()) {
    PAUSE.set(Some((after, pause)));
}

/// Ends [`pause_in_allocation`]. Returns whether the thread has paused.
pub fn has_paused() -> bool {
    PAUSE.take().is_none()
}

/// A counter of the allocations of several threads, each from the time it joined.
#[derive(Clone, Copy, Debug)]
pub struct CrewAllocations(&'static AtomicUsize);

impl CrewAllocations {
    pub fn new() -> Self {
        // A thread of the crew may outlive the test, so the counter is not on a stack.
        CrewAllocations(for_good(AtomicUsize::new(0)))
    }

    /// Counts the calling thread from now on.
    pub fn join(&self) {
        CREW.with(|crew| crew.set(Some(self.0)));
    }

    /// Returns the number of allocations of the crew so far.
    pub fn so_far(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns the number of allocations of the crew while `f` runs.
    pub fn during<T>(&self, f: impl FnOnce() -> T) -> (T, usize) {
        let before = self.so_far();
        let result = f();
        (result, self.so_far() - before)
    }
}

/// Calls `count` until it returns `expected`, but only a few times. Returns the last number. Whatever the schedule, each thread allocates
/// what it needs once in one of the first calls.
pub fn settles_at(expected: usize, count: impl FnMut() -> usize) -> usize {
    let mut last = expected;
    for number in std::iter::repeat_with(count).take(20) {
        last = number;
        if number == expected {
            break;
        }
    }
    last
}

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        ALLOCATED.fetch_add(size.wrapping_sub(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of allocations of this thread while `f` runs.
pub fn allocations<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATIONS.with(Cell::get);
    let result = f();
    (result, ALLOCATIONS.with(Cell::get) - before)
}

/// Returns the number of bytes that the process has allocated and not freed.
pub fn allocated_bytes() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}

/// Returns the number of allocations of this thread so far.
pub fn allocations_so_far() -> usize {
    ALLOCATIONS.with(Cell::get)
}

/// The factor by which stacks are larger under a sanitizer. Its frames are several times as large, and its runtime uses part of
/// the stack; other runs check the real sizes. Set by `scripts/sanitizers`.
const STACK_SCALE: usize = if cfg!(sanitized) { 16 } else { 1 };

/// The stack size that must suffice for a million rounds.
pub const SMALL_STACK: usize = 64 * 1024 * STACK_SCALE;

/// The stack size that must suffice for nests a hundred thousand deep.
pub const DEEP_STACK: usize = 256 * 1024 * STACK_SCALE;

/// The rounds of a stack test: enough to overflow any stack if a round kept some of it.
pub const ROUNDS: usize = if cfg!(sanitized) { 100_000 } else { 1_000_000 };

/// Runs `f` on a thread with a stack of `bytes`, and resumes its panic.
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
        // Ends the loop also when `f` panics.
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

/// Takes a lock that several threads contend for.
///
/// A `Mutex` waits inside the standard library, which ThreadSanitizer does not instrument; so under it this spins.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    while cfg!(sanitized) {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(_) => thread::yield_now(),
        }
    }
    mutex.lock().expect("nobody panicked while it was held")
}

/// A guard that keeps a worker of a pool busy until it is dropped.
#[derive(Debug)]
pub struct Held {
    _release: mpsc::Sender<()>,
}

/// Occupies a worker of the pool, and returns once it is occupied.
pub fn hold(scheduler: PoolScheduler) -> Held {
    let (arrived, arrives) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    bowline::execute(scheduler, move || {
        arrived.send(()).expect("somebody waits");
        // Returns when the sender is dropped.
        let _ = released.recv();
    });
    arrives.recv().expect("the job runs");
    Held { _release: release }
}

/// Returns the message of the panic that `f` ends with.
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

/// A counter of the values that are alive.
#[derive(Clone, Default, Debug)]
pub struct Census(Arc<AtomicUsize>);

/// A value that a [`Census`] counts. Not `Clone`: it stands for values that can only be moved.
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

/// Returns a sender that completes with a panic.
pub fn just_panic<T, E>(message: &'static str) -> impl Sender<Value = T, Error = E> + Clone + Send {
    just_from(move || -> T { panic!("{message}") }).infallible_into()
}

/// Returns a predicate for `repeat_until` that is true the millionth time.
pub fn million<T>() -> impl FnMut(&T) -> bool + Send {
    let mut left = ROUNDS;
    move |_| {
        left -= 1;
        left == 0
    }
}

/// A random number generator, deterministic for a seed.
#[derive(Debug)]
pub struct XorShift(u64);

impl XorShift {
    pub fn new(seed: u64) -> Self {
        // Never zero, and spread out, so that neighbouring seeds differ.
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

/// The message of [`quiet_panic`].
pub const PANIC: &str = "a panic of the stress test";

/// Panics without calling the panic hook.
pub fn quiet_panic() -> ! {
    std::panic::resume_unwind(Box::new(PANIC))
}

/// Returns a number from the environment of the process.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is not a number: {text}"))
    })
}

/// Returns where a sender declares that it completes.
pub fn completes<S: Sender>(_: &S) -> Completes {
    S::COMPLETES
}

/// An inline scheduler that counts its handles: `Arc::strong_count` of its field, less one.
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

/// Runs a test of the caller's file again, in a process of its own with additional environment variables.
///
/// `test` is the name of the function. The harness prefixes it with its module, which is named like the file.
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

/// Runs `f` in a process of its own, expects it to abort, and returns its standard error. `test` is the name of the calling
/// test, which is what the process runs.
#[track_caller]
pub fn aborts(test: &str, f: impl FnOnce()) -> String {
    aborts_with(test, &[], f)
}

/// Runs `f` like [`aborts`], with additional environment variables.
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

/// A guard of the process-wide report hook. One test at a time holds it; its drop resets the hook.
///
/// Tests that run concurrently may be reported too, so the hook must recognize its own reports.
#[derive(Debug)]
pub struct ReportHook {
    _alone: MutexGuard<'static, ()>,
}

impl ReportHook {
    /// Waits until no other test holds the hook, and sets it.
    pub fn set(hook: impl Fn(&Report<'_>) + Send + Sync + 'static) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        // A test that panicked while it held the hook has reset it by unwinding.
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

/// The completion of a [`Record`].
#[derive(Debug, PartialEq)]
pub enum Recorded<T, E> {
    Value(T),
    Error(E),
    Stopped,
    Panicked(String),
    /// Dropped without a completion.
    Dropped,
}

/// A receiver that sends its completion down a channel, and offers the environment it was given.
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
            // The test may have dropped the other end.
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
/// A scope waits for its threads inside the standard library, which is not instrumented. So each thread of a scope adds to a
/// counter when it ends. The waiting thread does the same afterwards, so the work of the threads happens before.
pub mod thread {
    use std::sync::atomic::{AtomicUsize, Ordering};
    pub use std::thread::*;

    static ENDS: AtomicUsize = AtomicUsize::new(0);

    /// Counts also when dropped by unwinding.
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

/// A watchdog that ends the process when a test hangs, and prints the step that hung.
#[derive(Debug)]
pub struct Watchdog {
    tells: mpsc::Sender<String>,
}

impl Watchdog {
    /// Creates a watchdog for steps that each take less than `limit`.
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

    /// Begins the next step.
    pub fn step(&self, name: impl Into<String>) {
        self.tells.send(name.into()).expect("the watchdog runs");
    }
}

/// Leaks a value, reachable for a leak detector.
pub fn for_good<T: Sync>(value: T) -> &'static T {
    let value: &'static T = Box::leak(Box::new(value));
    keep(value);
    value
}

/// Leaks a pinned box, reachable for a leak detector.
pub fn forget<T>(value: Pin<Box<T>>) {
    keep(&raw const *value);
    std::mem::forget(value);
}

fn keep<T>(value: *const T) {
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    kept.push(value.expose_provenance());
}

/// Calls `f` with the scheduler of a run loop that another thread drives, then with those of pools of 1, 2 and 8 workers.
pub fn on_loop_and_pools(f: impl Fn(TaskScheduler<'static>)) {
    let run_loop = for_good(RunLoop::new());
    thread::scope(|scope| {
        scope.spawn(|| run_loop.run());
        // Ends the loop also when `f` panics.
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

/// A sender that completes only when it is asked to stop, and sets the flag then.
pub fn notes_its_stop(stopped: &Arc<AtomicBool>) -> impl Sender<Value = i32, Error = Infallible> + Send + use<> {
    let stopped = stopped.clone();
    never().let_stopped(move || {
        stopped.store(true, Ordering::SeqCst);
        just_stopped()
    })
}

/// Returns a pool whose threads are counted until they end.
pub fn census_pool(workers: usize, census: &Census) -> ThreadPool {
    thread_local!(static PRESENT: RefCell<Option<Counted>> = const { RefCell::new(None) });
    let counted = census.clone();
    ThreadPool::builder()
        .threads(workers)
        .on_start(move |_| PRESENT.with(|present| *present.borrow_mut() = Some(counted.value())))
        .build()
        .expect("a pool")
}

/// The numbers of jobs, in the order in which they ran.
pub type Order = Arc<Mutex<Vec<usize>>>;

/// Returns a job that adds its number to the order.
pub fn note(order: &Order, n: usize) -> impl FnOnce() + Send + 'static {
    let order = order.clone();
    move || lock(&order).push(n)
}

/// Takes the numbers that were noted.
pub fn taken(order: Order) -> Vec<usize> {
    std::mem::take(&mut lock(&order))
}
