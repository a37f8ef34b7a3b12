//! `Transfer` and `Job`: deferred jobs, and their order.

use std::convert::Infallible;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, ThreadPool, Timer};
use bowline::stop::StopSource;
use bowline::{Job, Operation, Transfer};

/// A job that records its number and returns others.
#[repr(C)]
struct Step<'a> {
    job: Job,
    number: usize,
    log: &'a Mutex<Vec<usize>>,
    then: Vec<&'a Step<'a>>,
}

impl<'a> Step<'a> {
    fn new(log: &'a Mutex<Vec<usize>>, number: usize, then: Vec<&'a Step<'a>>) -> Self {
        Step {
            job: Job::new(Step::run),
            number,
            log,
            then,
        }
    }

    /// # Safety
    ///
    /// `job` is the first field of a step.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first field of a step, which outlives the test's transfers.
        let step = unsafe { job.cast::<Step<'a>>().as_ref() };
        step.log.lock().unwrap().push(step.number);
        step.then
            .iter()
            .fold(Transfer::none(), |all, step| all.and(step.resume()))
    }

    /// Returns a transfer to the step, which each test resumes once and keeps until then.
    fn resume(&self) -> Transfer {
        // SAFETY: the step does not move before the transfer has run, and is resumed once.
        unsafe { Transfer::to(NonNull::from(self).cast()) }
    }
}

#[test]
fn dropping_one_runs_it() {
    let log = Mutex::new(Vec::new());
    let (dropped, run) = (Step::new(&log, 1, vec![]), Step::new(&log, 2, vec![]));
    let transfer = dropped.resume();
    assert!(log.lock().unwrap().is_empty());
    drop(transfer);
    assert_eq!(*log.lock().unwrap(), [1]);
    run.resume().run();
    assert_eq!(*log.lock().unwrap(), [1, 2]);
}

#[test]
fn none_is_none() {
    let log = Mutex::new(Vec::new());
    let step = Step::new(&log, 1, vec![]);
    assert!(Transfer::none().is_none());
    assert!(Transfer::default().is_none());
    assert!(Transfer::from(()).is_none());
    assert!(!step.resume().is_none());
}

#[test]
fn append_and_and_keep_the_order() {
    let log = Mutex::new(Vec::new());
    let steps = [0, 1, 2, 3, 4, 5].map(|n| Step::new(&log, n, vec![]));
    let mut first = Transfer::none();
    first.append(Transfer::none());
    assert!(first.is_none());
    first.append(steps[0].resume());
    first.append(steps[1].resume());
    first.append(Transfer::none());
    let second = steps[2].resume().and(steps[3].resume()).and(Transfer::none());
    first.append(second);
    let all = Transfer::none()
        .and(first)
        .and(steps[4].resume().and(steps[5].resume()));
    all.run();
    assert_eq!(log.into_inner().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn what_a_job_hands_back_goes_before_what_was_left() {
    let log = Mutex::new(Vec::new());
    let leaves = [3, 4, 6].map(|n| Step::new(&log, n, vec![]));
    let inner = Step::new(&log, 2, vec![&leaves[0], &leaves[1]]);
    let first = Step::new(&log, 1, vec![&inner]);
    let second = Step::new(&log, 5, vec![&leaves[2]]);
    first.resume().and(second.resume()).run();
    assert_eq!(log.into_inner().unwrap(), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_transfer_dropped_inside_a_job_runs_there() {
    let log = Mutex::new(Vec::new());
    let inner = Step::new(&log, 2, vec![]);
    #[repr(C)]
    struct Drops<'a> {
        job: Job,
        inner: &'a Step<'a>,
    }
    /// # Safety
    ///
    /// `job` is the first field of a `Drops`.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first field of a `Drops` that outlives the transfer.
        let this = unsafe { job.cast::<Drops<'_>>().as_ref() };
        this.inner.log.lock().unwrap().push(1);
        drop(this.inner.resume());
        this.inner.log.lock().unwrap().push(3);
        Transfer::none()
    }
    let outer = Drops {
        job: Job::new(run),
        inner: &inner,
    };
    // SAFETY: the job does not move, and is resumed once.
    unsafe { Transfer::to(NonNull::from(&outer).cast()) }.run();
    assert_eq!(log.into_inner().unwrap(), [1, 2, 3]);
}

#[test]
fn debug_says_how_many_jobs_there_are() {
    let log = Mutex::new(Vec::new());
    let steps = [0, 1].map(|n| Step::new(&log, n, vec![]));
    let transfer = steps[0].resume().and(steps[1].resume());
    assert_eq!(format!("{transfer:?}"), "Transfer { jobs: 2 }");
    assert_eq!(format!("{:?}", Transfer::none()), "Transfer { jobs: 0 }");
    assert_eq!(format!("{:?}", steps[0].job), "Job { .. }");
    drop(transfer);
}

#[test]
fn a_job_that_unwinds_ends_the_process() {
    let said = aborts("a_job_that_unwinds_ends_the_process", || {
        let job = Job::new(|_| panic!("in a job"));
        // SAFETY: the job does not move, and is resumed once.
        unsafe { Transfer::to(NonNull::from(&job)) }.run();
    });
    assert!(said.contains("panicked inside a job"), "{said}");
}

#[test]
fn a_destructor_that_unwinds_out_of_a_start_ends_the_process() {
    let said = aborts("a_destructor_that_unwinds_out_of_a_start_ends_the_process", || {
        // The library drops the value of the first, outside of user code.
        let _ = sync_wait(just_from(|| Bomb).sequence(just(())));
    });
    assert!(said.contains("panicked inside a job"), "{said}");
}

/// A value whose destructor panics.
#[derive(Debug)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in drop");
    }
}

/// Runs each case in a process of its own, and expects it to abort with the message.
fn each_aborts(test: &str, cases: &[(&str, fn())]) {
    const CASE: &str = "BOWLINE_CASE";
    for (name, case) in cases {
        // Skipped in the process of another case.
        if std::env::var(CASE).is_ok_and(|chosen| chosen != *name) {
            continue;
        }
        let said = aborts_with(test, &[(CASE, name)], case);
        assert!(said.contains("panicked inside a job"), "{name}: {said}");
    }
}

#[test]
fn a_destructor_that_unwinds_out_of_a_job_ends_the_process_whatever_drives_it() {
    static LOOP: RunLoop = RunLoop::new();
    each_aborts(
        "a_destructor_that_unwinds_out_of_a_job_ends_the_process_whatever_drives_it",
        &[
            ("loop", || {
                start_detached(LOOP.scheduler().schedule().then(|()| Bomb));
                LOOP.run_ready();
            }),
            ("pool", || {
                start_detached(ThreadPool::global().scheduler().schedule().then(|()| Bomb));
                std::thread::sleep(Duration::from_secs(10));
            }),
            ("timer", || {
                start_detached(Timer::global().schedule_after(Duration::ZERO).then(|()| Bomb));
                std::thread::sleep(Duration::from_secs(10));
            }),
            ("stop", || {
                let source = StopSource::new();
                let stopped = never::<(), Infallible>().upon_stopped(|| ()).then(|()| Bomb);
                start_detached(stopped.write_env(WithStopToken(source.token())));
                source.request_stop();
            }),
        ],
    );
}

#[test]
fn a_destructor_of_what_nothing_takes_ends_the_process() {
    each_aborts(
        "a_destructor_of_what_nothing_takes_ends_the_process",
        &[
            ("the value of a loser", || {
                let _ = sync_wait(when_any((just_from(|| Bomb), just_from(|| Bomb))));
            }),
            ("an error", || {
                let _ = sync_wait(just_error::<(), _>(Bomb).into_option());
            }),
            ("a closure that is not called", || {
                let bomb = Bomb;
                let _ = sync_wait(just_stopped::<(), Infallible>().then(move |()| drop(bomb)));
            }),
            ("a payload", || {
                start_detached(just_from(|| std::panic::panic_any(Bomb)));
            }),
            ("an operation in a box", || {
                let bomb = Bomb;
                let inside = just(()).let_value(move |()| {
                    let (bomb, stops) = (bomb, just_stopped::<(), Infallible>());
                    stops.then(move |()| drop(bomb))
                });
                let _ = sync_wait(inside.boxed());
            }),
        ],
    );
}

#[test]
fn a_destructor_in_a_closure_or_a_future_is_the_completion() {
    assert_eq!(panic_message(|| sync_wait(just_from(|| Bomb).then(drop))), "in drop");
    let bomb = Bomb;
    let owns = just(()).then(move |()| drop(bomb));
    assert_eq!(panic_message(|| sync_wait(owns)), "in drop");
    let local = async {
        let _bomb = Bomb;
    };
    assert_eq!(panic_message(|| sync_wait(from_future(local))), "in drop");
}

#[test]
fn a_destructor_of_what_was_never_started_unwinds() {
    let never_called = || {
        let bomb = Bomb;
        just(()).then(move |()| drop(bomb))
    };
    assert_eq!(panic_message(|| drop(never_called())), "in drop");
    assert_eq!(panic_message(|| drop(never_called().split())), "in drop");
    assert_eq!(
        panic_message(|| drop(never_called().boxed().split().boxed())),
        "in drop"
    );
    let mut slot = WaitSlot::new();
    assert_eq!(panic_message(|| drop(prepare(never_called(), &mut slot))), "in drop");
}

#[test]
fn a_million_jobs_that_resume_one_another_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let count = AtomicUsize::new(0);
        let chain: Vec<Link<'_>> = (0..ROUNDS).map(|_| Link::new(&count)).collect();
        for pair in chain.windows(2) {
            pair[0].next.store(pair[1].address(), SeqCst);
        }
        // SAFETY: the links do not move, and each is resumed once.
        unsafe { Transfer::to(NonNull::from(&chain[0]).cast()) }.run();
        assert_eq!(count.load(SeqCst), ROUNDS);
    });
}

#[test]
fn a_list_of_a_million_jobs_takes_constant_stack_and_no_allocation() {
    with_stack(SMALL_STACK, || {
        let count = AtomicUsize::new(0);
        let list: Vec<Link<'_>> = (0..ROUNDS).map(|_| Link::new(&count)).collect();
        let ((), allocated) = allocations(|| {
            let mut all = Transfer::none();
            for link in &list {
                // SAFETY: the links do not move, and each is resumed once.
                all.append(unsafe { Transfer::to(NonNull::from(link).cast()) });
            }
            all.run();
        });
        assert_eq!((count.load(SeqCst), allocated), (ROUNDS, 0));
    });
}

/// A job that counts, and returns at most one other.
#[repr(C)]
struct Link<'a> {
    job: Job,
    next: std::sync::atomic::AtomicPtr<Job>,
    count: &'a AtomicUsize,
}

impl<'a> Link<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        Link {
            job: Job::new(Link::run),
            next: std::sync::atomic::AtomicPtr::new(std::ptr::null_mut()),
            count,
        }
    }

    fn address(&self) -> *mut Job {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// # Safety
    ///
    /// `job` is the first field of a link.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first field of a link, which outlives the test's transfers.
        let link = unsafe { job.cast::<Link<'a>>().as_ref() };
        link.count.fetch_add(1, SeqCst);
        match NonNull::new(link.next.load(SeqCst)) {
            // SAFETY: the next link does not move, and only this one resumes it.
            Some(next) => unsafe { Transfer::to(next) },
            None => Transfer::none(),
        }
    }
}

/// A sender whose operation completes when the driver runs its job, not inside `start`.
#[derive(Clone, Copy)]
struct Later;

#[repr(C)]
struct LaterOperation<R> {
    job: Job,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

// SAFETY: the operation touches nothing after it has returned its job, nor after its completion; it is `!Unpin`.
unsafe impl Sender for Later {
    type Value = i32;
    type Error = Infallible;
    type Operation<R: Receiver<i32, Infallible>> = LaterOperation<R>;

    fn connect<R: Receiver<i32, Infallible>>(self, receiver: R) -> LaterOperation<R> {
        LaterOperation {
            job: Job::new(LaterOperation::<R>::run),
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

impl<R: Receiver<i32, Infallible>> LaterOperation<R> {
    /// # Safety
    ///
    /// `job` is that of a started operation, and runs once.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first field of an operation to which this call has exclusive access.
        let receiver = unsafe { (*job.cast::<Self>().as_ptr()).receiver.take() };
        receiver.expect("one run").set_value(1)
    }
}

impl<R: Receiver<i32, Infallible>> Operation for LaterOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: the operation is alive until its job has completed it, and the job is returned once.
        unsafe { Transfer::to(this.cast()) }
    }
}

#[test]
fn an_operation_hands_its_job_to_the_driver() {
    assert_eq!(sync_wait(Later).unwrap(), 1);
    let all = when_all((Later, Later.then(|x| x + 1), Later.sequence(Later)));
    assert_eq!(sync_wait(all).unwrap(), (1, 2, 1));
}

#[test]
fn a_million_rounds_of_an_operation_that_hands_out_its_job_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let last = sync_wait(Later.let_value(|_| Later).repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 1);
    });
}
