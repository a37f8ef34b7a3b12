//! Helpers of the models: watched values, senders that complete on threads of their own, and the set of outcomes.
#![allow(unreachable_pub, reason = "shared by the models")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::marker::PhantomPinned;
use std::panic;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once};

use bowline::stop::StopSlot;
use bowline::{Completion, EmptyEnv, Env, Operation, Panic, Receiver, Sender, Transfer};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicBool;
use loom::thread;

/// An allocator that overwrites freed memory, so that a use after free fails: `loom` itself does not watch memory.
struct Spoiling;

// SAFETY: every call is forwarded to the system allocator; freed memory is written before it is returned.
unsafe impl GlobalAlloc for Spoiling {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller frees the block, so it is exclusive here; the rest of its promise is passed on.
        unsafe {
            pointer.write_bytes(0xA5, layout.size());
            // Keeps the compiler from removing the writes above.
            System.dealloc(std::hint::black_box(pointer), layout);
        }
    }
}

#[global_allocator]
static ALLOCATOR: Spoiling = Spoiling;

thread_local! {
    /// Set when anything has panicked. The panic of a stop callback is swallowed, and `loom` reports its findings by panics.
    /// All threads of a model share one system thread.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

static WATCH_PANICS: Once = Once::new();

/// Returns the interruptions of a model that takes about a minute with so many: these if `THOROUGH_MODELS` is set, and one less otherwise.
pub fn costly(interruptions: usize) -> usize {
    match std::env::var_os("THOROUGH_MODELS") {
        Some(_) => interruptions,
        None => interruptions - 1,
    }
}

/// Explores every schedule in which threads are preempted at most `interruptions` times.
///
/// Outcomes are recorded outside of `loom`, and compared with `expected` at the end.
pub fn explore(interruptions: usize, expected: &[&'static str], model: impl Fn(&Seen) + Send + Sync + 'static) {
    let seen = Seen::default();
    check(interruptions, &seen, model);
    seen.compare(expected);
}

/// Explores a model twice: with its threads spawned in the order given, and in the reverse order.
///
/// `loom` begins with the thread that was spawned first, and looks for races from there. It remembers only the last access of
/// an atomic, so a load followed by a store hides an earlier load of another thread. One order alone would miss such a race.
pub fn explore_both_ways(
    interruptions: usize,
    expected: &[&'static str],
    model: impl Fn(&Seen, Order) + Clone + Send + Sync + 'static,
) {
    let seen = Seen::default();
    for order in [Order::AsNamed, Order::Reversed] {
        let model = model.clone();
        check(interruptions, &seen, move |seen| model(seen, order));
    }
    seen.compare(expected);
}

/// Explores a race between two parties: a sender that is started with the root, and whatever else the model runs in its
/// world. The model ends the world, and returns the outcome.
pub fn race(
    interruptions: usize,
    expected: &[&'static str],
    model: impl Fn(World, Root, Report) -> &'static str + Send + Sync + 'static,
) {
    explore(interruptions, expected, move |seen| {
        let world = World::default();
        let (root, report) = world.root();
        seen.note(model(world, root, report));
    });
}

/// The order in which threads are spawned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    AsNamed,
    Reversed,
}

fn check(interruptions: usize, seen: &Seen, model: impl Fn(&Seen) + Send + Sync + 'static) {
    WATCH_PANICS.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICKED.set(true);
            report(info);
        }));
    });
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check({
        let seen = seen.clone();
        move || {
            model(&seen);
            assert!(!PANICKED.get(), "something panicked where it was caught");
        }
    });
}

/// The outcomes that occurred.
#[derive(Clone, Default)]
pub struct Seen(Arc<Mutex<BTreeSet<&'static str>>>);

impl Seen {
    pub fn note(&self, outcome: &'static str) {
        self.0.lock().expect("nobody panicked").insert(outcome);
    }

    fn compare(&self, expected: &[&'static str]) {
        let seen = self.0.lock().expect("nobody panicked");
        assert_eq!(*seen, expected.iter().copied().collect::<BTreeSet<_>>());
    }
}

/// A counter of the values that are alive in one run of a model.
#[derive(Clone, Default)]
pub struct Census(Arc<AtomicUsize>);

impl Census {
    pub fn value(&self, number: u32) -> Watched {
        self.0.fetch_add(1, SeqCst);
        Watched {
            number: UnsafeCell::new(number),
            census: self.clone(),
        }
    }

    pub fn alive(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// A value whose accesses and drop `loom` watches: each must be ordered after the previous one.
pub struct Watched {
    number: UnsafeCell<u32>,
    census: Census,
}

// SAFETY: `loom` reports unordered accesses.
unsafe impl Sync for Watched {}

impl Watched {
    pub fn read(&self) -> u32 {
        // SAFETY: `loom` reports unordered accesses.
        self.number.with(|number| unsafe { *number })
    }
}

impl Watched {
    /// Writes the value on this thread, so that the next read must be ordered after this.
    pub fn touch(&self) {
        // SAFETY: `loom` reports unordered accesses.
        self.number.with_mut(|number| unsafe { *number += 0 });
    }
}

impl Clone for Watched {
    fn clone(&self) -> Self {
        self.census.value(self.read())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: dropped with exclusive access, which `loom` checks.
        let number = self.number.with_mut(|number| unsafe { number.replace(u32::MAX) });
        assert_ne!(number, u32::MAX, "dropped twice");
        self.census.0.fetch_sub(1, SeqCst);
    }
}

/// The threads of one run of a model, except the first.
#[derive(Clone, Default)]
pub struct Threads(Arc<Mutex<Vec<thread::JoinHandle<()>>>>);

impl Threads {
    pub fn spawn(&self, body: impl FnOnce() + 'static) {
        let handle = thread::spawn(body);
        self.0.lock().expect("nobody panicked").push(handle);
    }

    /// Spawns all, and waits until they have ended.
    pub fn run<const N: usize>(&self, order: Order, bodies: [Box<dyn FnOnce()>; N]) {
        let mut bodies = Vec::from(bodies);
        if order == Order::Reversed {
            bodies.reverse();
        }
        for body in bodies {
            self.spawn(body);
        }
        self.join();
    }

    /// Waits until all have ended.
    pub fn join(&self) {
        loop {
            let Some(handle) = self.0.lock().expect("nobody panicked").pop() else {
                return;
            };
            handle.join().expect("a thread of the model panicked");
        }
    }
}

/// The fixtures of one run of a model.
#[derive(Clone, Default)]
pub struct World {
    pub threads: Threads,
    pub census: Census,
}

impl World {
    /// Returns an unstoppable sender of `number`. It completes on a thread of its own.
    pub fn remote(&self, number: u32) -> Remote<&'static str> {
        self.remote_of(Completion::Value(self.census.value(number)))
    }

    /// Returns an unstoppable sender of any completion. It completes on a thread of its own.
    pub fn remote_of<E>(&self, completion: Completion<Watched, E>) -> Remote<E> {
        Remote {
            completion,
            world: self.clone(),
            returned: None,
        }
    }

    /// Returns a sender of `number` that a stop ends at once. It completes on a thread of its own, or on the stopping thread.
    pub fn stoppable(&self, number: u32) -> Stoppable {
        Stoppable {
            value: self.census.value(number),
            world: self.clone(),
        }
    }

    /// Returns a receiver and the report of its completion.
    pub fn root(&self) -> (Root, Report) {
        let report = Report::default();
        let root = Root {
            report: report.clone(),
            census: self.census.value(0),
        };
        (root, report)
    }

    /// Ends a run: waits for the threads, and asserts that every value was dropped.
    pub fn end(&self) {
        self.threads.join();
        assert_eq!(self.census.alive(), 0, "something was leaked");
    }
}

/// A sender created by [`World::remote`].
pub struct Remote<E> {
    completion: Completion<Watched, E>,
    world: World,
    returned: Option<Arc<AtomicBool>>,
}

impl<E> Remote<E> {
    /// Sets the flag when the receiver's completion, and the work it resumed, has returned.
    pub fn noting_its_return(self, returned: Arc<AtomicBool>) -> Self {
        Remote {
            returned: Some(returned),
            ..self
        }
    }
}

// SAFETY: the operation touches nothing after its thread has started, and is `!Unpin`.
unsafe impl<E: Send + 'static> Sender for Remote<E> {
    type Value = Watched;
    type Error = E;
    type Operation<R: Receiver<Watched, E>> = RemoteOperation<E, R>;

    fn connect<R: Receiver<Watched, E>>(self, receiver: R) -> RemoteOperation<E, R> {
        RemoteOperation {
            _memory: self.world.census.value(0),
            parts: Some((self, receiver)),
            _pinned: PhantomPinned,
        }
    }
}

pub struct RemoteOperation<E, R> {
    parts: Option<(Remote<E>, R)>,
    /// Lets `loom` see when the operation is destroyed.
    _memory: Watched,
    _pinned: PhantomPinned,
}

impl<E: Send + 'static, R: Receiver<Watched, E>> Operation for RemoteOperation<E, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: the parts are not pinned.
        let (remote, receiver) = unsafe { self.get_unchecked_mut() }.parts.take().expect("started once");
        let Remote {
            completion,
            world,
            returned,
        } = remote;
        let complete: Box<dyn FnOnce() + '_> = Box::new(move || {
            if let Completion::Value(value) = &completion {
                value.touch();
            }
            completion.deliver(receiver).run();
            if let Some(returned) = returned {
                returned.store(true, SeqCst);
            }
        });
        // SAFETY: the receiver is valid until it completes, and completing is all the thread does with it.
        let complete: Box<dyn FnOnce() + 'static> = unsafe { std::mem::transmute(complete) };
        world.threads.spawn(complete);
        Transfer::none()
    }
}

/// A sender created by [`World::stoppable`].
pub struct Stoppable {
    value: Watched,
    world: World,
}

// SAFETY: once it listens, the operation touches itself only after winning the right to complete; it is `!Unpin`.
unsafe impl Sender for Stoppable {
    type Value = Watched;
    type Error = &'static str;
    type Operation<R: Receiver<Watched, &'static str>> = StoppableOperation<R>;

    fn connect<R: Receiver<Watched, &'static str>>(self, receiver: R) -> StoppableOperation<R> {
        StoppableOperation {
            slot: StopSlot::new(StoppableOperation::<R>::stop_requested),
            _memory: self.world.census.value(0),
            value: Some(self.value),
            world: self.world,
            receiver: Some(receiver),
            completing: loom::sync::Arc::new(AtomicBool::new(false)),
            _pinned: PhantomPinned,
        }
    }
}

/// First, so that the callback finds the operation.
#[repr(C)]
pub struct StoppableOperation<R: Receiver<Watched, &'static str>> {
    slot: StopSlot<<R::Env as Env>::StopToken>,
    value: Option<Watched>,
    world: World,
    receiver: Option<R>,
    /// Set by the thread that completes. It outlives the operation, since the loser reads it later.
    completing: loom::sync::Arc<AtomicBool>,
    _memory: Watched,
    _pinned: PhantomPinned,
}

impl<R: Receiver<Watched, &'static str>> StoppableOperation<R> {
    /// # Safety
    ///
    /// `slot` is that of a started operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        let this = slot.cast::<Self>().as_ptr();
        // SAFETY: the slot is the first field; the operation waits for its release before it is destroyed.
        unsafe {
            if (*this).completing.swap(true, SeqCst) {
                slot.as_ref().release();
                return Transfer::none();
            }
            let receiver = (*this).receiver.take().expect("we complete it");
            slot.as_ref().release();
            receiver.set_stopped()
        }
    }
}

impl<R: Receiver<Watched, &'static str>> Operation for StoppableOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: only the receiver and the value are moved, and they are not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let token = this.receiver.as_ref().expect("started once").env().stop_token();
        let threads = this.world.threads.clone();
        let completing = this.completing.clone();
        let this = NonNull::from(this).as_ptr();
        // SAFETY: the slot is pinned with the operation, and left or released before the operation completes.
        if !unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*this).slot), token) } {
            // SAFETY: it does not listen, so no other thread completes it.
            return unsafe { (*this).receiver.take() }.expect("started once").set_stopped();
        }
        let complete: Box<dyn FnOnce() + '_> = Box::new(move || {
            if !completing.swap(true, SeqCst) {
                // SAFETY: this thread completes the operation, so it is alive; `leave` waits for the callback first.
                let (value, receiver) = unsafe {
                    (*this).slot.leave();
                    ((*this).value.take(), (*this).receiver.take())
                };
                if let Some(value) = &value {
                    value.touch();
                }
                receiver
                    .expect("we complete it")
                    .set_value(value.expect("kept until now"))
                    .run();
            }
        });
        // SAFETY: the receiver is valid until it completes, and completing is all the thread does with it.
        let complete: Box<dyn FnOnce() + 'static> = unsafe { std::mem::transmute(complete) };
        threads.spawn(complete);
        Transfer::none()
    }
}

/// The outermost receiver.
pub struct Root {
    report: Report,
    census: Watched,
}

/// The completion of a [`Root`], and the completing thread.
#[derive(Clone, Default)]
pub struct Report(Arc<Mutex<Vec<(Ended, thread::ThreadId)>>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The sum of the numbers.
    Value(u32),
    Error(&'static str),
    Stopped,
    Panicked,
}

impl Report {
    /// Returns the completion, after every thread has ended: there is exactly one.
    pub fn get(&self) -> Ended {
        self.only().0
    }

    /// Returns whether this thread completed it.
    pub fn here(&self) -> bool {
        self.by(thread::current().id())
    }

    /// Returns whether the given thread completed it.
    pub fn by(&self, thread: thread::ThreadId) -> bool {
        self.only().1 == thread
    }

    /// Returns whether it has completed.
    pub fn is_there(&self) -> bool {
        !self.0.lock().expect("nobody panicked").is_empty()
    }

    fn only(&self) -> (Ended, thread::ThreadId) {
        let ends = self.0.lock().expect("nobody panicked");
        assert_eq!(ends.len(), 1, "completed {} times", ends.len());
        ends[0]
    }
}

impl Root {
    fn end(self, ended: Ended) -> Transfer {
        self.census.read();
        let end = (ended, thread::current().id());
        self.report.0.lock().expect("nobody panicked").push(end);
        Transfer::none()
    }
}

/// A value that a [`Root`] can add up.
pub trait Sum {
    fn sum(&self) -> u32;
}

impl Sum for Watched {
    fn sum(&self) -> u32 {
        self.read()
    }
}

impl Sum for (Watched, Watched) {
    fn sum(&self) -> u32 {
        self.0.read() + self.1.read()
    }
}

impl Sum for () {
    fn sum(&self) -> u32 {
        0
    }
}

/// An error that a [`Root`] can name.
pub trait Name {
    fn name(&self) -> &'static str;
}

impl Name for &'static str {
    fn name(&self) -> &'static str {
        self
    }
}

impl Name for std::convert::Infallible {
    fn name(&self) -> &'static str {
        match *self {}
    }
}

impl<T: Sum, E: Name> Receiver<T, E> for Root {
    type Env = EmptyEnv;

    fn env(&self) -> EmptyEnv {
        EmptyEnv
    }

    fn set_value(self, value: T) -> Transfer {
        let sum = value.sum();
        drop(value);
        self.end(Ended::Value(sum))
    }

    fn set_error(self, error: E) -> Transfer {
        self.end(Ended::Error(error.name()))
    }

    fn set_stopped(self) -> Transfer {
        self.end(Ended::Stopped)
    }

    fn set_panicked(self, _: Panic) -> Transfer {
        self.end(Ended::Panicked)
    }
}
