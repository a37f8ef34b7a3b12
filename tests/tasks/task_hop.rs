//! Tasks on a user-defined scheduler without a native queue: they hop there by one schedule operation.

use std::alloc::Layout;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};

use allocator_api2::alloc::{AllocError, Allocator, Global};
use bowline::prelude::*;
use bowline::scheduler::{InlineSchedule, InlineScheduler, RunLoop, TaskScheduler, ThreadPool};
use bowline::stop::StopSource;
use bowline::task::{Inline, LocalTask, Priority, SpawnOptions, Task, TaskError};
use bowline::{Job, Operation, Panic, Transfer};

use crate::common::{
    self, Census, CrewAllocations, HandleScheduler, ROUNDS, Record, Recorded, SMALL_STACK, allocations, lock,
    panic_message, quiet_panic, settles_at, touchy::Touchy, with_stack,
};

/// A user-defined scheduler whose entries wait until a thread runs them. `PAD` words make its operation larger.
#[derive(Clone, Debug)]
struct Desk<const PAD: usize = 0>(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    schedules: AtomicUsize,
    /// The number of operations that are alive.
    operations: AtomicUsize,
    /// Whether the token of an operation could be stopped.
    stoppable: AtomicBool,
    priority: Mutex<Option<Priority>>,
    fault: Mutex<Fault>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Waiting>,
    closed: bool,
}

#[derive(Debug)]
struct Waiting(NonNull<Job>);

// SAFETY: a job may run on any thread.
unsafe impl Send for Waiting {}

/// The fault of the next operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    PanicInSchedule,
    PanicInConnect,
    DropInConnect,
    DropInStart,
    DropOnArrival,
    Fail,
    Stop,
    Panic,
    PanicInDrop,
}

const FAULTS: [Fault; 9] = [
    Fault::PanicInSchedule,
    Fault::PanicInConnect,
    Fault::DropInConnect,
    Fault::DropInStart,
    Fault::DropOnArrival,
    Fault::Fail,
    Fault::Stop,
    Fault::Panic,
    Fault::PanicInDrop,
];

impl Desk {
    fn new() -> Self {
        Desk::padded()
    }
}

impl<const PAD: usize> Desk<PAD> {
    fn padded() -> Self {
        let shared = Shared::default();
        lock(&shared.queue).jobs.reserve(64);
        Desk(Arc::new(shared))
    }

    /// Returns a desk served by a thread, until the last of its closers is dropped.
    fn staffed(crew: Option<CrewAllocations>) -> (Self, ThreadId, Closer) {
        let desk = Desk::padded();
        let shared = desk.0.clone();
        let worker = thread::spawn(move || {
            if let Some(crew) = crew {
                crew.join();
            }
            shared.serve();
        });
        let id = worker.thread().id();
        let closer = Closer(desk.0.clone(), Some(worker));
        (desk, id, closer)
    }

    fn schedules(&self) -> usize {
        self.0.schedules.load(SeqCst)
    }

    /// Runs the waiting entries, and those that they add.
    fn run(&self) {
        while let Some(job) = self.0.next() {
            run(job);
        }
        assert_eq!(self.0.operations.load(SeqCst), 0, "an operation is left");
    }
}

impl Shared {
    fn next(&self) -> Option<Waiting> {
        lock(&self.queue).jobs.pop_front()
    }

    fn serve(&self) {
        loop {
            let mut queue = lock(&self.queue);
            match queue.jobs.pop_front() {
                Some(job) => {
                    drop(queue);
                    run(job);
                }
                None if queue.closed => return,
                // A condition variable waits inside the standard library, which ThreadSanitizer does not instrument.
                None if cfg!(sanitized) => {
                    drop(queue);
                    thread::yield_now();
                }
                None => drop(self.changed.wait(queue).expect("nobody panicked")),
            }
        }
    }
}

fn run(Waiting(job): Waiting) {
    // SAFETY: the job was taken out of the queue, and its operation has not completed.
    unsafe { Transfer::to(job) }.run();
}

/// A guard that ends the thread of a desk.
struct Closer(Arc<Shared>, Option<thread::JoinHandle<()>>);

impl Drop for Closer {
    fn drop(&mut self) {
        lock(&self.0.queue).closed = true;
        self.0.changed.notify_all();
        if let Some(worker) = self.1.take() {
            worker.join().expect("the thread of a desk");
        }
    }
}

impl<const PAD: usize> PartialEq for Desk<PAD> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<const PAD: usize> Scheduler for Desk<PAD> {
    type Schedule = Errand<PAD>;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> Errand<PAD> {
        let fault = std::mem::take(&mut *lock(&self.0.fault));
        if fault == Fault::PanicInSchedule {
            quiet_panic();
        }
        Errand {
            shared: self.0.clone(),
            fault,
        }
    }
}

/// A desk that declares itself fallible, for the adaptors of fallible schedulers.
#[derive(Clone, Debug, PartialEq)]
struct Fallible(Desk);

impl Scheduler for Fallible {
    type Schedule = Errand<0>;
    const INFALLIBLE: bool = false;

    fn schedule(&self) -> Errand<0> {
        self.0.schedule()
    }
}

struct Errand<const PAD: usize> {
    shared: Arc<Shared>,
    fault: Fault,
}

// SAFETY: the operation touches nothing of itself once it is queued, nor after its completion; it is `!Unpin`.
unsafe impl<const PAD: usize> Sender for Errand<PAD> {
    type Value = ();
    type Error = &'static str;
    type Operation<R: Receiver<(), &'static str>> = ErrandOperation<R, PAD>;

    fn connect<R: Receiver<(), &'static str>>(self, receiver: R) -> ErrandOperation<R, PAD> {
        let env = receiver.env();
        let token = env.stop_token();
        if token.stop_possible() || token.stop_requested() {
            self.shared.stoppable.store(true, SeqCst);
        }
        *lock(&self.shared.priority) = env.priority();
        if self.fault == Fault::PanicInConnect {
            quiet_panic();
        }
        self.shared.operations.fetch_add(1, SeqCst);
        ErrandOperation {
            job: Job::new(ErrandOperation::<R, PAD>::arrive),
            shared: self.shared,
            receiver: if self.fault == Fault::DropInConnect {
                None
            } else {
                Some(receiver)
            },
            fault: self.fault,
            pad: [usize::MAX; PAD],
            _pinned: PhantomPinned,
        }
    }
}

#[repr(C)]
struct ErrandOperation<R, const PAD: usize> {
    job: Job,
    shared: Arc<Shared>,
    receiver: Option<R>,
    fault: Fault,
    pad: [usize; PAD],
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), &'static str>, const PAD: usize> ErrandOperation<R, PAD> {
    /// # Safety
    ///
    /// `job` is that of a started operation, and runs once.
    unsafe fn arrive(job: NonNull<Job>) -> Transfer {
        let this = job.cast::<Self>().as_ptr();
        // SAFETY: the job is the first field, and the operation is out of the queue.
        let (receiver, fault) = unsafe {
            assert!(
                (*this).pad.iter().all(|word| *word == usize::MAX),
                "somebody wrote here"
            );
            ((*this).receiver.take().expect("started once"), (*this).fault)
        };
        match fault {
            Fault::DropOnArrival => {
                drop(receiver);
                Transfer::none()
            }
            Fault::Fail => receiver.set_error("no room"),
            Fault::Stop => receiver.set_stopped(),
            Fault::Panic => receiver.set_panicked(Panic::new(Box::new("a scheduler"))),
            _ => receiver.set_value(()),
        }
    }
}

impl<R: Receiver<(), &'static str>, const PAD: usize> Operation for ErrandOperation<R, PAD> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: only the receiver is moved, and it is not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let shared = this.shared.clone();
        shared.schedules.fetch_add(1, SeqCst);
        if this.fault == Fault::DropInStart {
            drop(this.receiver.take());
            return Transfer::none();
        }
        assert!(
            this.receiver.is_some(),
            "an operation without a receiver is not started"
        );
        let job = NonNull::from(this).cast();
        lock(&shared.queue).jobs.push_back(Waiting(job));
        shared.changed.notify_one();
        Transfer::none()
    }
}

impl<R, const PAD: usize> Drop for ErrandOperation<R, PAD> {
    fn drop(&mut self) {
        self.shared.operations.fetch_sub(1, SeqCst);
        if self.fault == Fault::PanicInDrop {
            quiet_panic();
        }
    }
}

/// A slot for a waker that a test wakes.
#[derive(Clone, Debug, Default)]
struct Slot(Arc<Mutex<Option<Waker>>>);

impl Slot {
    fn wake(&self) {
        let waker = lock(&self.0).take();
        waker.expect("somebody waits").wake();
    }

    /// Waits until it is woken, once.
    async fn wait(self) {
        let mut polled = false;
        poll_fn(|context| {
            if std::mem::replace(&mut polled, true) {
                return Poll::Ready(());
            }
            *lock(&self.0) = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Awaits all of them at once.
async fn all<F: IntoFuture>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let futures = futures.into_iter().map(|future| Box::pin(future.into_future()));
    let mut left: Vec<_> = futures.enumerate().collect();
    let mut done: Vec<_> = left.iter().map(|_| None).collect();
    poll_fn(|context| {
        left.retain_mut(|(at, future)| match future.as_mut().poll(context) {
            Poll::Ready(output) => {
                done[*at] = Some(output);
                false
            }
            Poll::Pending => true,
        });
        if left.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// Starts a task on this thread. From its first suspension on it runs on the scheduler.
fn begin<T, E, Cx, S>(task: Task<T, E, Cx>, scheduler: S) -> std::sync::mpsc::Receiver<Recorded<T, E>>
where
    Task<T, E, Cx>: Sender<Value = T, Error = E> + 'static,
    T: Send + 'static,
    E: Send + 'static,
    S: Scheduler + 'static,
{
    let (record, recorded) = Record::new();
    submit(task.write_env(WithScheduler(scheduler)), record);
    recorded
}

#[test]
fn all_frames_of_a_task_share_a_hop_and_run_in_the_order_of_their_waking() {
    const CHILDREN: usize = 100;
    let desk = Desk::new();
    let slots: Vec<_> = (0..CHILDREN).map(|_| Slot::default()).collect();
    let order = Arc::new(Mutex::new(Vec::new()));
    let children: Vec<_> = slots
        .iter()
        .cloned()
        .enumerate()
        .map(|(number, slot)| {
            let order = order.clone();
            Task::new(async move {
                slot.wait().await;
                lock(&order).push(number);
                number
            })
        })
        .collect();
    let recorded = begin(Task::new(async move { all(children).await.len() }), desk.clone());
    assert_eq!(desk.schedules(), 0);
    // Seven and a hundred are coprime, so this is each of them once.
    let woken: Vec<_> = (0..CHILDREN).map(|number| number * 7 % CHILDREN).collect();
    for number in &woken {
        slots[*number].wake();
    }
    assert!(recorded.try_recv().is_err());
    desk.run();
    assert_eq!(recorded.try_recv(), Ok(Recorded::Value(CHILDREN)));
    assert_eq!(*lock(&order), woken);
    assert_eq!(desk.schedules(), 1);
}

#[test]
fn a_frame_that_is_woken_after_the_arrival_makes_the_next_hop() {
    let desk = Desk::new();
    let slots = [Slot::default(), Slot::default()];
    let [first, second] = slots.clone();
    let recorded = begin(
        Task::new(async move {
            first.wait().await;
            second.wait().await;
        }),
        desk.clone(),
    );
    for (hops, slot) in slots.iter().enumerate() {
        assert_eq!(desk.schedules(), hops);
        slot.wake();
        desk.run();
    }
    assert_eq!(recorded.try_recv(), Ok(Recorded::Value(())));
    assert_eq!(desk.schedules(), 2);
}

/// Awaits a sender of the pool repeatedly, on a scheduler whose thread is `home`, and counts the allocations.
fn resumes<S: Scheduler + 'static>(scheduler: S, home: ThreadId, crew: CrewAllocations) {
    const RESUMES: usize = 500;
    let pool = ThreadPool::new(1);
    let away = pool.scheduler();
    crew.join();
    sync_wait(starts_on(away, just_from(move || crew.join()))).unwrap();
    let task = || {
        Task::new(async move {
            let mut before = 0;
            for round in 0..RESUMES {
                if round == RESUMES / 10 {
                    // One-time allocations were made by now.
                    before = crew.so_far();
                }
                let Ok(there) = away.schedule().then(|()| thread::current().id()).await;
                assert_ne!(there, home);
                assert_eq!(thread::current().id(), home);
            }
            crew.so_far() - before
        })
    };
    let counts = || sync_wait(starts_on(scheduler.clone(), task())).unwrap();
    assert_eq!(settles_at(0, counts), 0);
}

#[test]
fn a_resume_allocates_nothing() {
    let crew = CrewAllocations::new();
    let (desk, home, _closer) = Desk::<0>::staffed(Some(crew));
    resumes(desk.clone(), home, crew);
    assert!(desk.schedules() > 1);
}

#[test]
fn a_resume_on_an_erased_scheduler_allocates_nothing_however_large_its_operation() {
    const PAD: usize = 100;
    assert!(size_of::<ErrandOperation<(), PAD>>() > TaskScheduler::INLINE_OPERATION);
    let crew = CrewAllocations::new();
    let (desk, home, _closer) = Desk::<PAD>::staffed(Some(crew));
    resumes(TaskScheduler::new(desk.clone()), home, crew);
    resumes(TaskScheduler::new(TaskScheduler::new(desk.clone())), home, crew);
    resumes(desk, home, crew);
}

#[test]
fn a_resume_on_a_scheduler_that_was_made_infallible_allocates_nothing() {
    let crew = CrewAllocations::new();
    let (desk, home, _closer) = Desk::<0>::staffed(Some(crew));
    resumes(Fallible(desk.clone()).or_inline(), home, crew);
    resumes(Fallible(desk.clone()).or_abort(), home, crew);
    resumes(TaskScheduler::new(Fallible(desk).or_abort()), home, crew);
}

#[test]
fn many_frames_hop_at_once_and_come_home() {
    const CHILDREN: usize = 8;
    const AWAITS: usize = if cfg!(sanitized) { 50 } else { 500 };
    let pool = ThreadPool::new(2);
    let away = pool.scheduler();
    let (desk, home, _closer) = Desk::<0>::staffed(None);
    let child = move |child: usize| {
        Task::new(async move {
            for _ in 0..AWAITS {
                away.schedule().await;
                assert_eq!(thread::current().id(), home);
            }
            child
        })
    };
    let task = Task::new(async move {
        let awaited = all((0..CHILDREN).map(child)).await;
        let Ok((one, two)) = when_all((child(1), child(2))).await;
        awaited.into_iter().map(|Ok(child)| child).sum::<usize>() + one + two
    });
    assert_eq!(sync_wait(starts_on(desk.clone(), task)).unwrap(), 31);
    assert!(desk.schedules() > 1);
}

#[test]
fn a_hop_is_not_stopped() {
    let desk = Desk::new();
    let slot = Slot::default();
    let source = StopSource::new();
    let waits = slot.clone();
    let task = Task::new(async move {
        waits.wait().await;
        let Ok(stopped) = read_env(bowline::StopRequested).await;
        stopped
    });
    let (record, recorded) = Record::new();
    let token = source.token();
    submit(
        task.write_env(WithScheduler(desk.clone()))
            .write_env(WithStopToken(token)),
        record,
    );
    slot.wake();
    source.request_stop();
    assert!(
        recorded.try_recv().is_err(),
        "it goes no further before it is on its scheduler"
    );
    desk.run();
    // It resumed after the `.await`, and recorded that.
    assert_eq!(recorded.try_recv(), Ok(Recorded::Value(true)));
    assert!(!desk.0.stoppable.load(SeqCst));
}

#[test]
fn a_hop_is_as_urgent_as_the_task() {
    for priority in [None, Some(Priority::Background), Some(Priority::UserInteractive)] {
        let desk = Desk::new();
        let slot = Slot::default();
        let task = Task::new(slot.clone().wait()).write_env(WithScheduler(desk.clone()));
        let (record, recorded) = Record::new();
        match priority {
            Some(priority) => submit(task.write_env(With(priority)), record),
            None => submit(task, record),
        }
        slot.wake();
        desk.run();
        assert_eq!(recorded.try_recv(), Ok(Recorded::Value(())));
        assert_eq!(*lock(&desk.0.priority), priority);
    }
}

#[test]
fn whatever_a_scheduler_does_no_frame_is_lost() {
    for fault in FAULTS {
        let desk = Desk::new();
        let slots = [(); 4].map(|()| Slot::default());
        let census = Census::new();
        let [last, children @ ..] = slots.clone();
        let children = children.map(|slot| {
            let local = census.value();
            Task::new(async move {
                slot.wait().await;
                drop(local);
            })
        });
        let task = Task::new(async move {
            all(children).await;
            last.wait().await;
        });
        let recorded = begin(task, desk.clone());
        // The first one starts the hop. The others share it, if it is not over at once.
        *lock(&desk.0.fault) = fault;
        for slot in &slots[1..] {
            slot.wake();
        }
        desk.run();
        assert_eq!(census.alive(), 0, "{fault:?}");
        assert!(recorded.try_recv().is_err(), "{fault:?}");
        // The next hop works as usual.
        let before = desk.schedules();
        slots[0].wake();
        desk.run();
        assert_eq!(recorded.try_recv(), Ok(Recorded::Value(())), "{fault:?}");
        assert_eq!(desk.schedules(), before + 1, "{fault:?}");
    }
}

#[test]
fn a_hop_that_fails_goes_on_inline_where_that_was_asked_for() {
    for fault in [Fault::Fail, Fault::Stop] {
        let desk = Desk::new();
        let slot = Slot::default();
        let recorded = begin(Task::new(slot.clone().wait()), Fallible(desk.clone()).or_inline());
        *lock(&desk.0.fault) = fault;
        slot.wake();
        desk.run();
        assert_eq!(recorded.try_recv(), Ok(Recorded::Value(())));
    }
}

#[test]
fn a_hop_that_fails_aborts_where_that_was_asked_for() {
    let said = common::aborts("a_hop_that_fails_aborts_where_that_was_asked_for", || {
        let desk = Desk::new();
        let slot = Slot::default();
        let _recorded = begin(Task::new(slot.clone().wait()), Fallible(desk.clone()).or_abort());
        *lock(&desk.0.fault) = Fault::Fail;
        slot.wake();
        desk.run();
    });
    assert!(said.contains("or_abort"), "{said}");
}

/// A counting allocator with a limited number of bytes.
#[derive(Clone, Debug)]
struct Purse(Arc<[AtomicUsize; 3]>);

impl Purse {
    fn new(left: usize) -> Self {
        Purse(Arc::new([left, 0, 0].map(AtomicUsize::new)))
    }

    fn given(&self) -> usize {
        self.0[1].load(SeqCst)
    }

    fn alive(&self) -> usize {
        self.0[2].load(SeqCst)
    }
}

// SAFETY: forwards to the global allocator.
unsafe impl Allocator for Purse {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let [left, given, alive] = &*self.0;
        left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
            .map_err(|_| AllocError)?;
        given.fetch_add(1, SeqCst);
        alive.fetch_add(1, SeqCst);
        Global.allocate(layout)
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        self.0[2].fetch_sub(1, SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { Global.deallocate(memory, layout) }
    }
}

#[test]
fn the_room_for_the_hop_is_from_the_allocator_of_the_task_and_given_back() {
    let purse = Purse::new(usize::MAX);
    let desk = Desk::new();
    let slot = Slot::default();
    let task = Task::new_in(slot.clone().wait(), purse.clone());
    assert_eq!(purse.given(), 1);
    let recorded = begin(task, desk.clone());
    assert_eq!(purse.given(), 2);
    slot.wake();
    desk.run();
    assert_eq!(recorded.try_recv(), Ok(Recorded::Value(())));
    assert_eq!((purse.given(), purse.alive()), (2, 0));
}

#[test]
fn a_task_without_room_for_its_hop_panics_before_it_begins() {
    let purse = Purse::new(1);
    let desk = Desk::new();
    let census = Census::new();
    let local = census.value();
    let task = Task::new_in(async move { drop(local) }, purse.clone());
    let recorded = begin(task, desk.clone());
    let Ok(Recorded::Panicked(message)) = recorded.try_recv() else {
        panic!("it did not panic");
    };
    assert!(message.contains("failed to allocate"), "{message}");
    assert_eq!((census.alive(), purse.alive(), desk.schedules()), (0, 0, 0));
}

/// Returns how often the calling thread or the task allocates to run an empty task, except for the task itself.
fn extra_allocations<S: Scheduler>(scheduler: S) -> usize {
    let purse = Purse::new(usize::MAX);
    let task = Task::new_in(async {}, purse.clone());
    let (outcome, count) = allocations(|| sync_wait(task.write_env(WithScheduler(scheduler))));
    outcome.unwrap();
    count + purse.given() - 1
}

#[test]
fn a_scheduler_that_has_a_queue_needs_no_hop() {
    let pool = ThreadPool::new(1);
    let run_loop = RunLoop::new();
    // A warm-up for one-time allocations of a thread.
    extra_allocations(run_loop.scheduler());
    assert_eq!(extra_allocations(pool.scheduler()), 0);
    assert_eq!(extra_allocations(TaskScheduler::new(pool.scheduler())), 0);
    assert_eq!(extra_allocations(pool.scheduler().or_inline()), 0);
    assert_eq!(extra_allocations(TaskScheduler::new(pool.scheduler().or_abort())), 0);
    assert_eq!(extra_allocations(run_loop.scheduler()), 0);
    assert_eq!(extra_allocations(TaskScheduler::new(run_loop.scheduler())), 0);
    assert_eq!(extra_allocations(InlineScheduler), 0);
    assert_eq!(extra_allocations(TaskScheduler::new(InlineScheduler)), 0);
    // A scheduler without a queue needs memory for a hop, perhaps from a thread's cache.
    assert!(extra_allocations(Desk::new()) <= 2);
    assert!(extra_allocations(TaskScheduler::new(Desk::new())) <= 2);
}

#[test]
fn a_queue_is_used_where_the_scheduler_was_made_infallible() {
    let run_loop = RunLoop::new();
    let slot = Slot::default();
    let waits = slot.clone();
    let waker = starts_on(run_loop.scheduler(), just_from(move || slot.wake()));
    let task = Task::new(waits.wait()).write_env(WithScheduler(run_loop.scheduler().or_inline()));
    run_loop.run_until(when_all((task, waker))).unwrap();
}

#[test]
fn operations_inside_a_task_share_its_hop() {
    let purse = Purse::new(usize::MAX);
    let (desk, other) = (Desk::new(), Desk::new());
    let slots = [(); 3].map(|()| Slot::default());
    let [first, second, third] = slots.clone();
    let inside = purse.clone();
    let (here, elsewhere) = (desk.clone(), other.clone());
    let task = Task::new_in(
        async move {
            let same = |slot: Slot| Task::new_in(slot.wait(), inside.clone());
            let elsewhere = Task::new_in(third.wait(), inside.clone()).write_env(WithScheduler(elsewhere));
            // A boxed sender does not know its scheduler, so the scheduler is given again, and needs another hop.
            let boxed = same(second).write_env(WithScheduler(here)).boxed();
            let Ok(_) = when_all((same(first), boxed, elsewhere)).await;
        },
        purse.clone(),
    );
    let recorded = begin(task, desk.clone());
    // The outer task, its hop, and its block for awaits; three inside, the hops of two, and a block each by which a stop wakes them.
    assert_eq!(purse.given(), 11);
    for slot in &slots {
        slot.wake();
    }
    assert_eq!((desk.schedules(), other.schedules()), (2, 1));
    other.run();
    desk.run();
    // The outer one may have been woken elsewhere, and hops home.
    assert_eq!(recorded.try_recv(), Ok(Recorded::Value(())));
    assert_eq!((purse.given(), purse.alive()), (11, 0));
}

#[test]
fn a_task_with_a_context_of_its_own_hops_too() {
    let purse = Purse::new(usize::MAX);
    let desk = Desk::new();
    let slot = Slot::default();
    let waits = slot.clone();
    let inside = purse.clone();
    let task = Task::new(async move { Task::new_in(waits.wait(), inside).await });
    let recorded = begin(task, desk.clone());
    slot.wake();
    assert_eq!(desk.schedules(), 1);
    desk.run();
    assert_eq!(recorded.try_recv(), Ok(Recorded::Value(Ok(()))));
    assert_eq!((purse.given(), purse.alive()), (1, 0));
}

#[test]
fn a_frame_that_is_dropped_while_it_hops_is_waited_for() {
    for again in [false, true] {
        let desk = Desk::new();
        let census = Census::new();
        let slots = [(); 3].map(|()| Slot::default());
        let [begins, inside, later] = slots.clone();
        let local = census.value();
        let child = Task::new(async move {
            inside.wait().await;
            drop(local);
        });
        let [_, wakes, _] = slots.clone();
        let task = Task::new(async move {
            let mut child = Box::pin(child.into_future());
            let mut begins = Box::pin(begins.wait());
            poll_fn(|context| {
                let _ = child.as_mut().poll(context);
                begins.as_mut().poll(context)
            })
            .await;
            // Queued for the next arrival.
            wakes.wake();
            drop(child);
            if again {
                later.wait().await;
            }
        });
        let recorded = begin(task, desk.clone());
        slots[0].wake();
        let first = desk.0.next().expect("the task hops");
        run(first);
        // The drop has not waited for it. The task does.
        assert_eq!((census.alive(), desk.schedules()), (1, 2));
        assert!(recorded.try_recv().is_err());
        if again {
            // The next one shares the hop.
            slots[2].wake();
        }
        desk.run();
        assert_eq!(recorded.try_recv(), Ok(Recorded::Value(())));
        assert_eq!((census.alive(), desk.schedules()), (0, 2));
    }
}

#[test]
fn a_task_of_the_inline_context_does_not_hop() {
    let desk = Desk::new();
    let slot = Slot::default();
    let task = Task::builder().context::<Inline>().task(slot.clone().wait());
    let recorded = begin(task, desk.clone());
    slot.wake();
    assert_eq!(recorded.try_recv(), Ok(Recorded::Value(())));
    assert_eq!(desk.schedules(), 0);
}

#[test]
fn a_local_task_hops() {
    let desk = Desk::new();
    let slot = Slot::default();
    let (record, recorded) = Record::<_, Infallible>::new();
    let task = LocalTask::new(slot.clone().wait());
    let mut operation = Box::pin(task.write_env(WithScheduler(desk.clone())).connect(record));
    // SAFETY: the operation is pinned, and has completed when it is dropped.
    unsafe { operation.as_mut().start() }.run();
    slot.wake();
    assert_eq!(desk.schedules(), 1);
    desk.run();
    assert_eq!(recorded.try_recv(), Ok(Recorded::Value(())));
}

#[test]
fn a_million_hops_on_a_scheduler_of_right_here_take_the_stack_of_one() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let task = Task::new(poll_fn(move |context| {
            left -= 1;
            if left == 0 {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        sync_wait(task.write_env(WithScheduler(HandleScheduler(Arc::new(()))))).unwrap();
    });
}

/// A wrapper that exposes the queue of the inner scheduler on some calls and not on others.
#[derive(Clone)]
struct Fickle<S> {
    inside: S,
    /// One bit for each call, repeated.
    pattern: u8,
    asked: Arc<AtomicUsize>,
}

impl<S: PartialEq> PartialEq for Fickle<S> {
    fn eq(&self, other: &Self) -> bool {
        self.inside == other.inside
    }
}

impl<S: Scheduler> Scheduler for Fickle<S> {
    type Schedule = S::Schedule;
    const INFALLIBLE: bool = S::INFALLIBLE;

    fn schedule(&self) -> S::Schedule {
        self.inside.schedule()
    }

    fn native(&self) -> Option<bowline::sender::Native<'_>> {
        let bit = self.asked.fetch_add(1, SeqCst) % 8;
        if self.pattern >> bit & 1 == 1 {
            self.inside.native()
        } else {
            None
        }
    }
}

#[test]
fn a_scheduler_that_has_a_queue_at_times_is_asked_once_for_each_task() {
    let pool = ThreadPool::new(2);
    for pattern in [0, 1, 0b10, 0b0101_0101, 0b1010_1010, 0b1101_0110, u8::MAX] {
        let scheduler = Fickle {
            inside: pool.scheduler(),
            pattern,
            asked: Arc::default(),
        };
        let (there, away) = (scheduler.clone(), ThreadPool::new(1).scheduler());
        let task = Task::new(async move {
            let mut sum = 0;
            for _ in 0..20 {
                let Ok(one) = starts_on(away, just(1)).await;
                task::yield_now().await;
                sum += one;
            }
            let children = task::group(async |group| {
                for number in 0..10 {
                    let options = SpawnOptions::new().scheduler(there.clone());
                    group.spawn_with(options, async move {
                        task::yield_now().await;
                        number
                    });
                }
                let mut sum = 0;
                while let Some(number) = group.next().await {
                    sum += number;
                }
                sum
            });
            sum + children.await
        });
        assert_eq!(sync_wait(starts_on(scheduler, task)).unwrap(), 65, "{pattern:b}");
    }
}

#[test]
fn a_task_in_the_queue_of_a_scheduler_inside_a_wrapper_is_raised_there() {
    let pool = ThreadPool::new(1);
    let scheduler = Fickle {
        inside: pool.scheduler(),
        pattern: u8::MAX,
        asked: Arc::default(),
    };
    let held = common::hold(pool.scheduler());
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |name: &'static str| {
        let order = order.clone();
        async move { lock(&order).push(name) }
    };
    let background = || {
        SpawnOptions::new()
            .scheduler(scheduler.clone())
            .priority(Priority::Background)
    };
    let first = task::detach_with(background(), note("first"));
    let second = task::detach_with(background(), note("second"));
    second.raise(Priority::UserInteractive);
    drop(held);
    task::block_on(async {
        first.await.unwrap();
        second.await.unwrap();
    });
    assert_eq!(*lock(&order), ["second", "first"]);
}

#[test]
fn a_scheduler_that_panics_when_a_task_asks_for_it_is_the_completion_of_the_task() {
    /// A scheduler that panics when its queue is requested.
    #[derive(Clone, PartialEq)]
    struct Closed;
    impl Scheduler for Closed {
        type Schedule = InlineSchedule;
        const INFALLIBLE: bool = true;
        fn schedule(&self) -> InlineSchedule {
            InlineScheduler.schedule()
        }
        fn native(&self) -> Option<bowline::sender::Native<'_>> {
            panic!("in native");
        }
    }
    let census = Census::new();
    let task = |value| Task::new(async move { drop(value) });
    let touchy = Touchy::<0>::new("clone", &census);
    let work = task(census.value()).write_env(WithScheduler(touchy));
    assert_eq!(panic_message(|| sync_wait(work)), "in clone");
    assert_eq!(census.alive(), 0);
    let work = task(census.value()).write_env(WithScheduler(Closed));
    assert_eq!(panic_message(|| sync_wait(work)), "in native");
    assert_eq!(census.alive(), 0);
    let local = LocalTask::new(async {}).write_env(WithScheduler(Closed));
    assert_eq!(panic_message(|| sync_wait(local)), "in native");
    // A child that is to run there ends with it, too.
    let value = census.value();
    let parent = Task::new(async move {
        let options = SpawnOptions::new().scheduler(Closed);
        let child = task::detach_with(options, async move { drop(value) });
        let Err(TaskError::Panicked(payload)) = child.await else {
            panic!("it ran");
        };
        payload.message().map(str::to_owned)
    });
    assert_eq!(sync_wait(parent).unwrap().as_deref(), Some("in native"));
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_task_whose_scheduler_panics_in_schedule_goes_on_where_it_was_woken() {
    let pool = ThreadPool::new(1);
    let census = Census::new();
    for erased in [false, true] {
        let away = pool.scheduler();
        let task = Task::new(async move {
            let mut sum = 0;
            for _ in 0..10 {
                let Ok(one) = starts_on(away, just(1)).await;
                sum += one;
            }
            sum
        });
        let touchy = Touchy::<0>::new("schedule", &census);
        let sum = if erased {
            sync_wait(task.write_env(WithScheduler(TaskScheduler::new(touchy))))
        } else {
            sync_wait(task.write_env(WithScheduler(touchy)))
        };
        assert_eq!(sum.unwrap(), 10);
        assert_eq!(census.alive(), 0);
    }
}
