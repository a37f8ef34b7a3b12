//! `boxed`: erases the type.

use std::convert::Infallible;
use std::marker::PhantomPinned;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::hostile::{Hostile, Trick};
use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop};
use bowline::stop::{InplaceStopSource, StopSource};
use bowline::{Env, Operation, Priority, Query, Transfer};

const DEEP: usize = 100_000;

type Boxed<'a> = BoxedSender<'a, i32, &'static str>;

/// Boxes directly inside boxes.
fn plain(mut inside: Boxed<'_>) -> Boxed<'_> {
    for _ in 0..DEEP {
        inside = inside.boxed();
    }
    inside
}

/// `when_all` inside `boxed` inside `when_all`, and on.
fn branching(mut inside: Boxed<'_>) -> Boxed<'_> {
    for _ in 0..DEEP {
        let beside = just(1).infallible_into();
        inside = when_all((inside, beside)).then(|(deep, beside)| deep + beside).boxed();
    }
    inside
}

/// Boxes that are children of one adaptor after the other.
fn adapted(mut inside: Boxed<'static>) -> Boxed<'static> {
    let one = || just(1).infallible_into::<&'static str>();
    for level in 0..DEEP {
        inside = match level % 24 {
            0 => inside.then(|x| x).try_then(Ok::<_, &str>).boxed(),
            1 => inside.upon_error(|_| 0).infallible_into().boxed(),
            2 => inside.upon_stopped(|| 0).map_err(|error| error).boxed(),
            3 => inside.err_into().boxed(),
            4 => inside.into_outcome().then(|_| 1).infallible_into().boxed(),
            5 => inside.into_option().then(|_| 1).infallible_into().boxed(),
            6 => inside.stopped_as_option().then(|_| 1).boxed(),
            7 => inside.stopped_as_error("stopped").boxed(),
            8 => inside.let_value(move |_| one()).boxed(),
            9 => inside.let_error(move |_| one()).boxed(),
            10 => inside.let_stopped(one).boxed(),
            11 => one().sequence(inside).boxed(),
            12 => inside.finally(just(())).boxed(),
            13 => inside.stop_when(never::<(), Infallible>()).boxed(),
            14 => inside.timeout(Duration::from_secs(60)).map_err(|_| "late").boxed(),
            15 => inside.unstoppable().write_env(With(1)).boxed(),
            16 => inside.starts_on(InlineScheduler).boxed(),
            17 => inside.continues_on(InlineScheduler).boxed(),
            18 => inside
                .on(InlineScheduler)
                .affine()
                .write_env(WithScheduler(InlineScheduler))
                .boxed(),
            19 => inside.bulk(1, |_, _| ()).bulk_chunked(1, |_, _| ()).boxed(),
            20 => when_any((one(), inside)).boxed(),
            21 => when_all([inside]).then(|[x]| x).boxed(),
            22 => when_any([inside]).boxed(),
            _ => inside.split().boxed(),
        };
    }
    inside
}

/// Runs `check` in a small stack for both nests, with the amount that their levels add to a value.
fn for_both_nests(check: impl Fn(&dyn Fn(Boxed<'static>) -> Boxed<'static>, i32) + Sync) {
    with_stack(DEEP_STACK, || check(&plain, 0));
    with_stack(DEEP_STACK, || check(&branching, DEEP as i32));
}

#[test]
fn branches_that_differ_have_one_type() {
    let branch = |n: i32| {
        if n % 2 == 0 {
            just(n).boxed()
        } else {
            just(n).then(|n| n * 10).boxed()
        }
    };
    let all = when_all_iter((0..4).map(branch));
    assert_eq!(sync_wait(all).unwrap(), [0, 10, 2, 30]);
}

#[test]
fn the_users_values_are_seen_through_it() {
    #[derive(Clone, Debug, PartialEq)]
    struct Name(&'static str);
    let name = || read_env(Get::<Name>::new());
    assert_eq!(sync_wait(name().boxed()).unwrap(), None);
    let nested = name().boxed().boxed().write_env(With(Name("outer"))).boxed();
    assert_eq!(sync_wait(nested).unwrap(), Some(Name("outer")));
    let shadowed = name()
        .write_env(With(Name("inner")))
        .boxed()
        .write_env(With(Name("outer")));
    assert_eq!(sync_wait(shadowed).unwrap(), Some(Name("inner")));
    let beside = read_env(Get::<Name>::new())
        .boxed()
        .write_env(With(7))
        .write_env(With(Name("far")));
    assert_eq!(sync_wait(beside).unwrap(), Some(Name("far")));
}

#[test]
fn the_stop_token_is_seen_through_it() {
    let seen = || read_env(StopRequested).boxed().boxed();
    assert!(!sync_wait(seen()).unwrap());
    let source = InplaceStopSource::new();
    assert!(!sync_wait(seen().write_env(WithStopToken(source.token()))).unwrap());
    source.request_stop();
    assert!(sync_wait(seen().write_env(WithStopToken(source.token()))).unwrap());
    let source = StopSource::new();
    source.request_stop();
    assert!(sync_wait(seen().write_env(WithStopToken(source.token()))).unwrap());
}

#[test]
fn a_stop_reaches_the_inside() {
    let run_loop = RunLoop::new();
    let source = InplaceStopSource::new();
    let stopped = AtomicBool::new(false);
    let inside = never::<i32, Infallible>().let_stopped(|| {
        stopped.store(true, SeqCst);
        just_stopped()
    });
    let work = inside.boxed().write_env(WithStopToken(source.token())).into_outcome();
    let request = run_loop
        .scheduler()
        .schedule()
        .then(|()| (source.request_stop(), source.request_stop()));
    let (outcome, requests) = run_loop.run_until(when_all((work, request))).unwrap();
    assert!(outcome.is_stopped() && stopped.into_inner());
    assert_eq!(requests, (true, false));
    let before = never::<i32, Infallible>()
        .boxed()
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(before).is_stopped());
}

#[test]
fn the_inside_is_destroyed_before_it_completes() {
    let census = Census::new();
    let value = census.value();
    let inside = just(1).then(move |x| (x, census_of(&value)).0);
    let alive = sync_wait(inside.boxed().then(|_| census.alive())).unwrap();
    assert_eq!(alive, 0);
}

fn census_of(value: &Counted) -> String {
    format!("{value:?}")
}

#[test]
fn completes_on_another_thread() {
    with_loop(|scheduler| {
        for round in 0..1_000 {
            let hop = just(round).continues_on(scheduler).boxed();
            let source = InplaceStopSource::new();
            let race = when_all((
                hop.into_outcome(),
                never::<(), Infallible>().boxed().into_outcome(),
                starts_on(scheduler, just_from(|| source.request_stop())),
            ));
            let (value, stopped, _) = sync_wait(race.write_env(WithStopToken(source.token())))
                .ok()
                .map_or((Outcome::Stopped, Outcome::Stopped, true), |all| all);
            assert!(matches!(value, Outcome::Value(n) if n == round) || value.is_stopped());
            assert!(stopped.is_stopped());
        }
    });
}

#[test]
fn allocates_once() {
    let (value, allocated) = allocations(|| sync_wait(just(1).then(|x| x + 1).boxed()).unwrap());
    assert_eq!((value, allocated), (2, 1));
    let (value, allocated) = allocations(|| sync_wait(just(1).boxed().boxed().boxed()).unwrap());
    assert_eq!((value, allocated), (1, 3));
    let ((), allocated) = allocations(|| drop(just(1).boxed()));
    assert_eq!(allocated, 1);
}

#[test]
fn a_deep_nest_starts_and_completes_in_a_small_stack() {
    for_both_nests(|nest, added| {
        let leaf = just(7).infallible_into().boxed();
        assert_eq!(sync_wait(nest(leaf)).unwrap(), 7 + added);
    });
}

#[test]
fn a_deep_nest_completes_on_a_run_loop_in_a_small_stack() {
    static LOOP: RunLoop = RunLoop::new();
    for_both_nests(|nest, added| {
        let leaf = LOOP.scheduler().schedule().then(|()| 7).infallible_into().boxed();
        assert_eq!(LOOP.run_until(nest(leaf)).unwrap(), 7 + added);
    });
}

#[test]
fn a_deep_nest_is_stopped_in_flight_in_a_small_stack() {
    for_both_nests(|nest, _| {
        let run_loop = RunLoop::new();
        let source = StopSource::new();
        let reached = Arc::new(AtomicBool::new(false));
        let flag = reached.clone();
        let leaf = never().let_stopped(move || {
            flag.store(true, SeqCst);
            just_stopped()
        });
        let work = nest(leaf.boxed())
            .write_env(WithStopToken(source.token()))
            .into_outcome();
        let request = run_loop
            .scheduler()
            .schedule()
            .then(|()| (reached.load(SeqCst), source.request_stop()));
        let (outcome, requested) = run_loop.run_until(when_all((work, request))).unwrap();
        assert!(outcome.is_stopped() && reached.load(SeqCst));
        assert_eq!(requested, (false, true), "it was in flight");
    });
}

#[test]
fn a_deep_nest_stopped_before_its_start_ends_in_a_small_stack() {
    for_both_nests(|nest, _| {
        let source = StopSource::new();
        source.request_stop();
        assert!(sync_wait(nest(never().boxed()).write_env(WithStopToken(source.token()))).is_stopped());
    });
}

#[test]
fn a_deep_nest_fails_or_panics_in_a_small_stack() {
    for_both_nests(|nest, _| {
        assert_eq!(sync_wait(nest(just_error("deep").boxed())).err(), Some("deep"));
        let panics = just_from(|| -> i32 { panic!("deep") }).infallible_into().boxed();
        assert_eq!(panic_message(|| sync_wait(nest(panics))), "deep");
    });
}

#[test]
fn a_deep_nest_is_dropped_unstarted_in_a_small_stack() {
    let census = Census::new();
    for_both_nests(|nest, _| {
        let leaf = || {
            let value = census.value();
            just_from(move || panic!("called with {value:?}"))
                .infallible_into()
                .boxed()
        };
        drop(nest(leaf()));
        assert_eq!(census.alive(), 0);
        let mut slot = WaitSlot::new();
        drop(prepare(nest(leaf()).then(|x| x), &mut slot));
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_deep_nest_of_every_adaptor_is_dropped_unstarted_in_a_small_stack() {
    let census = Census::new();
    with_stack(DEEP_STACK, || {
        let value = census.value();
        let leaf = just_from(move || panic!("called with {value:?}")).infallible_into();
        let nest = adapted(leaf.boxed());
        assert_eq!(census.alive(), 1);
        drop(nest);
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn the_levels_of_a_nest_are_destroyed_from_the_outside_in_and_in_order() {
    struct Says(usize, Arc<Mutex<Vec<usize>>>);
    impl Drop for Says {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }
    let order = Arc::default();
    let says = |number| {
        let says = Says(number, Arc::clone(&order));
        just(1).then(move |x| (x, drop(says)).0)
    };
    let pair = |number, left: BoxedSender<'static, _, _>, right: BoxedSender<'static, _, _>| {
        when_all((left, says(number), right)).then(|_| 1).boxed()
    };
    let left = pair(1, says(2).boxed(), says(3).boxed());
    let right = pair(4, says(5).boxed(), says(6).boxed());
    drop(pair(0, left, right));
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_nest_in_closures_is_destroyed_by_recursion() {
    const CAPTURED: usize = 1_000;
    let census = Census::new();
    with_stack(2 << 20, || {
        let value = census.value();
        let mut nest = just(value).then(|_| 1).boxed();
        for _ in 0..CAPTURED {
            nest = just(()).let_value(move |()| nest).boxed();
        }
        drop(nest);
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_deep_nest_is_asked_for_the_users_values_in_a_small_stack() {
    #[derive(Clone)]
    struct Base(i32);
    for_both_nests(|nest, added| {
        let leaf = read_env(Get::<Base>::new())
            .then(|base| base.map_or(0, |Base(n)| n))
            .infallible_into();
        let work = nest(leaf.boxed()).write_env(With(Base(5)));
        assert_eq!(sync_wait(work).unwrap(), 5 + added);
    });
}

/// A value that records its drop in a place that may be dropped soon.
struct Touch<'a>(&'a AtomicUsize);

impl Drop for Touch<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A value whose destructor creates and drops boxes that borrow from the destructor's stack frame.
struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        let local = AtomicUsize::new(0);
        let touch = || {
            let touch = Touch(&local);
            just(1).then(move |x| (x, drop(touch)).0).boxed()
        };
        drop(touch().boxed());
        assert_eq!(local.load(SeqCst), 1, "it was to be gone before this frame");
        assert_eq!(sync_wait(touch().boxed()).unwrap(), 1);
        assert_eq!(local.load(SeqCst), 2);
        drop(vec![touch(), touch()]);
        self.0.fetch_add(local.into_inner(), SeqCst);
    }
}

#[test]
fn a_destructor_inside_may_make_and_drop_boxes_that_borrow_from_its_frame() {
    let touched = Arc::new(AtomicUsize::new(0));
    let busy = || {
        let busy = Busy(touched.clone());
        just(1).then(move |x| (x, drop(busy)).0)
    };
    // On its own, between two boxes that wait for each other, and beside one.
    drop(busy().boxed());
    drop(when_all((just(1).boxed(), busy(), busy().boxed())).boxed().boxed());
    assert_eq!(touched.load(SeqCst), 3 * 4);
    assert_eq!(sync_wait(busy().boxed().boxed()).unwrap(), 1);
    assert_eq!(touched.load(SeqCst), 4 * 4);
}

/// A sender that polls a future once, and leaves it to the destructor of its operation.
struct PollOnce<F>(F);

struct PollOnceOperation<F, R> {
    future: F,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

// SAFETY: the operation touches nothing after its completion, and is `!Unpin`.
unsafe impl<F: Future + Send> Sender for PollOnce<F> {
    type Value = F::Output;
    type Error = Infallible;
    type Operation<R: Receiver<F::Output, Infallible>> = PollOnceOperation<F, R>;

    fn connect<R: Receiver<F::Output, Infallible>>(self, receiver: R) -> Self::Operation<R> {
        PollOnceOperation {
            future: self.0,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

impl<F: Future, R: Receiver<F::Output, Infallible>> Operation for PollOnceOperation<F, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: the future is pinned with the operation, and the receiver is not pinned.
        let (future, receiver) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.future), &mut this.receiver)
        };
        let polled = future.poll(&mut Context::from_waker(Waker::noop()));
        match (polled, receiver.take()) {
            (Poll::Ready(value), Some(receiver)) => receiver.set_value(value),
            (Poll::Pending, Some(receiver)) => receiver.set_stopped(),
            (_, None) => Transfer::none(),
        }
    }
}

#[test]
fn a_box_in_a_suspended_future_inside_goes_before_what_it_borrows_from_that_future() {
    /// A value that reports how often it was touched before its drop.
    struct Local(AtomicUsize, Arc<AtomicUsize>);
    impl Drop for Local {
        fn drop(&mut self) {
            self.1.store(self.0.load(SeqCst), SeqCst);
        }
    }
    let touched = Arc::new(AtomicUsize::new(0));
    let local = Local(AtomicUsize::new(0), touched.clone());
    let future = async move {
        let local = local;
        let touch = Touch(&local.0);
        let borrowing = just(1).then(move |x| (x, drop(touch)).0).boxed();
        std::future::pending::<()>().await;
        drop(borrowing);
    };
    assert!(sync_wait(PollOnce(future).boxed()).is_stopped());
    assert_eq!(touched.load(SeqCst), 1);
}

#[test]
fn a_destructor_inside_that_panics_leaves_later_boxes_as_they_should_be() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("destructor");
        }
    }
    let bomb = Bomb;
    let inside = just(1).then(move |x| (x, drop(bomb)).0).boxed().boxed();
    assert_eq!(panic_message(|| drop(inside)), "destructor");
    let census = Census::new();
    let value = census.value();
    drop(just(value).boxed().boxed());
    assert_eq!(census.alive(), 0);
}

/// Memory for one value, which is alive while a function runs.
struct Room(MaybeUninit<[usize; 8]>);

impl Room {
    fn with<T>(&mut self, value: T, f: impl FnOnce(&mut T)) {
        assert!(size_of::<T>() <= size_of_val(&self.0) && align_of::<T>() <= align_of::<usize>());
        struct Leaves<T>(*mut T);
        impl<T> Drop for Leaves<T> {
            fn drop(&mut self) {
                // SAFETY: the value was written, and is dropped once.
                unsafe { self.0.drop_in_place() };
            }
        }
        let place = self.0.as_mut_ptr().cast::<T>();
        // SAFETY: there is room, as was asserted.
        unsafe { place.write(value) };
        let leaves = Leaves(place);
        // SAFETY: the value is alive, and this is the only access.
        f(unsafe { &mut *leaves.0 });
    }
}

#[test]
fn a_box_that_goes_inside_another_is_gone_at_once_wherever_it_lies() {
    /// A value whose destructor drops boxes in memory of its own, inside the box that is being destroyed.
    struct Roomy {
        room: Room,
        old: Option<BoxedSender<'static, i32, Infallible>>,
        census: Census,
    }
    impl Drop for Roomy {
        fn drop(&mut self) {
            let touched = AtomicUsize::new(0);
            let touch = Touch(&touched);
            self.room.with(just(touch).then(drop).boxed(), |_| ());
            assert_eq!(touched.load(SeqCst), 1, "it borrows from this frame");
            assert_eq!(self.census.alive(), 1);
            self.room.with(self.old.take(), |_| ());
            assert_eq!(self.census.alive(), 0, "it was dropped");
        }
    }
    let census = Census::new();
    let value = census.value();
    let roomy = Roomy {
        room: Room(MaybeUninit::uninit()),
        old: Some(just(value).then(|_| 1).boxed()),
        census,
    };
    drop(just(()).then(move |()| drop(roomy)).boxed().boxed());
}

#[test]
fn a_destructor_that_panics_in_a_nest_leaves_no_level_behind() {
    let census = Census::new();
    let level = |inside: Boxed<'static>| {
        let value = census.value();
        inside.then(move |x| (x, drop(value)).0).boxed()
    };
    let panics: Boxed<'_> = Hostile::new(Trick::SenderPanics, &census).boxed();
    let beside = when_all((level(level(panics)), level(just(1).infallible_into().boxed())));
    let nest = level(beside.then(|_| 1).boxed());
    assert_eq!(census.alive(), 5);
    assert_eq!(panic_message(|| drop(nest)), "in the sender's drop");
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_panic_in_connect_is_the_completion() {
    let census = Census::new();
    for trick in [Trick::ConnectPanics, Trick::ConnectDropsAndPanics] {
        let inside = || Hostile::new(trick, &census).boxed();
        assert_eq!(panic_message(|| sync_wait(inside())), "in connect");
        assert_eq!(panic_message(|| sync_wait(inside().boxed().boxed())), "in connect");
        let (record, seen) = Record::new();
        submit(inside(), record);
        assert_eq!(seen.recv().unwrap(), Recorded::Panicked("in connect".to_owned()));
        assert!(seen.recv().is_err(), "there is one completion");
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn a_receiver_that_connect_drops_has_stopped() {
    let census = Census::new();
    let inside = || Hostile::new(Trick::ConnectDrops, &census).boxed();
    assert!(sync_wait(inside().boxed()).is_stopped());
    let (record, seen) = Record::new();
    submit(inside(), record);
    assert_eq!(seen.iter().collect::<Vec<_>>(), [Recorded::Stopped]);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_panic_in_start_ends_the_process() {
    let said = aborts("a_panic_in_start_ends_the_process", || {
        let _ = sync_wait(Hostile::new(Trick::StartPanics, &Census::new()).boxed());
    });
    assert!(said.contains("panicked inside a job"), "{said}");
}

#[test]
fn an_operation_that_panics_when_it_is_destroyed_ends_the_process() {
    let said = aborts("an_operation_that_panics_when_it_is_destroyed_ends_the_process", || {
        let _ = sync_wait(Hostile::new(Trick::OperationPanics, &Census::new()).boxed());
    });
    assert!(said.contains("panicked inside a job"), "{said}");
}

/// Asks for the priority as a scheduler does.
struct AskPriority;

impl Query for AskPriority {
    type Answer = Option<Priority>;

    fn ask<E: Env>(self, env: &E) -> Option<Priority> {
        env.priority()
    }
}

#[test]
fn the_priority_inside_is_that_of_the_nearest_environment_that_has_one() {
    let nest = |depth: usize| {
        let mut sender = read_env(AskPriority).boxed();
        for _ in 0..depth {
            sender = sender.boxed();
        }
        sender
    };
    assert_eq!(sync_wait(nest(3)).unwrap(), None);
    assert_eq!(
        sync_wait(nest(3).with_env(Priority::UserInitiated)).unwrap(),
        Some(Priority::UserInitiated)
    );
    let between = nest(3).with_env(Priority::Utility).boxed().boxed();
    assert_eq!(
        sync_wait(between.with_env(Priority::UserInitiated)).unwrap(),
        Some(Priority::Utility)
    );
    let other = nest(3).with_env("no priority").boxed().boxed();
    assert_eq!(
        sync_wait(other.with_env(Priority::UserInitiated)).unwrap(),
        Some(Priority::UserInitiated)
    );
}
