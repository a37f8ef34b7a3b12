//! `TaskScheduler`: a type-erased infallible scheduler.

use std::convert::Infallible;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};

use crate::common::touchy::Touchy;
use crate::common::*;
use allocator_api2::alloc::{AllocError, Allocator, Global, Layout};
use bowline::factories::Never;
use bowline::prelude::*;
use bowline::scheduler::{
    InlineSchedule, InlineScheduler, RunLoop, RunLoopScheduler, TaskSchedule, TaskScheduler, ThreadPool,
};
use bowline::stop::{InplaceStopSource, StopSource};
use bowline::{Identity, Operation, Transfer};

/// An inline scheduler that is `WORDS` words large, and equal to those with the same number.
#[derive(Clone, Debug)]
struct Sized<const WORDS: usize>([usize; WORDS]);

impl<const WORDS: usize> Sized<WORDS> {
    fn number(number: usize) -> Self {
        Sized([number; WORDS])
    }
}

impl<const WORDS: usize> PartialEq for Sized<WORDS> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<const WORDS: usize> Scheduler for Sized<WORDS> {
    type Schedule = InlineSchedule;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> InlineSchedule {
        InlineScheduler.schedule()
    }

    fn identity(&self) -> Identity {
        Identity::of_number(self.0[0] as u64)
    }
}

/// The same bits as a `Sized<1>`, with another type.
#[derive(Clone, PartialEq)]
struct OtherWord(usize);

impl Scheduler for OtherWord {
    type Schedule = InlineSchedule;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> InlineSchedule {
        InlineScheduler.schedule()
    }

    fn identity(&self) -> Identity {
        Identity::of_number(self.0 as u64)
    }
}

/// A user-defined value.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Level(u8);

/// The answers that the operation of a [`Probe`] got from its environment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Told {
    level: Option<Level>,
    stop_possible: bool,
    stop_requested: bool,
}

fn told<R: Receiver<(), Infallible>>(receiver: &R) -> Told {
    let env = receiver.env();
    Told {
        level: env.get(),
        stop_possible: env.stop_token().stop_possible(),
        stop_requested: env.stop_token().stop_requested(),
    }
}

/// An inline scheduler whose operation is `WORDS` words larger than needed. It queries its environment when connected and when
/// started.
#[derive(Clone, Default)]
struct Probe<const WORDS: usize>(Arc<Mutex<Vec<Told>>>);

impl<const WORDS: usize> Probe<WORDS> {
    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl<const WORDS: usize> PartialEq for Probe<WORDS> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<const WORDS: usize> Scheduler for Probe<WORDS> {
    type Schedule = ProbeSchedule<WORDS>;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> ProbeSchedule<WORDS> {
        ProbeSchedule(self.clone())
    }

    fn identity(&self) -> Identity {
        Identity::of_address(&*self.0)
    }
}

struct ProbeSchedule<const WORDS: usize>(Probe<WORDS>);

struct ProbeOperation<const WORDS: usize, R> {
    probe: Probe<WORDS>,
    receiver: Option<R>,
    _room: [usize; WORDS],
    _pinned: PhantomPinned,
}

// SAFETY: the operation completes inside `start`, and touches nothing afterwards; it is `!Unpin`.
unsafe impl<const WORDS: usize> Sender for ProbeSchedule<WORDS> {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = ProbeOperation<WORDS, R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> ProbeOperation<WORDS, R> {
        self.0.0.lock().unwrap().push(told(&receiver));
        ProbeOperation {
            probe: self.0,
            receiver: Some(receiver),
            _room: [0; WORDS],
            _pinned: PhantomPinned,
        }
    }
}

impl<const WORDS: usize, R: Receiver<(), Infallible>> Operation for ProbeOperation<WORDS, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: the receiver is not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let receiver = this.receiver.take().expect("started once");
        let told = told(&receiver);
        this.probe.0.lock().unwrap().push(told);
        if told.stop_requested {
            receiver.set_stopped()
        } else {
            receiver.set_value(())
        }
    }
}

const INLINE: usize = 0;
const LARGE: usize = 64;

/// An allocator that counts, with a limited number of blocks.
#[derive(Debug)]
struct Arena {
    left: AtomicUsize,
    given: AtomicUsize,
    alive: AtomicUsize,
    bytes: AtomicUsize,
}

impl Arena {
    fn of(blocks: usize) -> Self {
        Arena {
            left: AtomicUsize::new(blocks),
            given: AtomicUsize::new(0),
            alive: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    fn given(&self) -> usize {
        self.given.load(SeqCst)
    }

    fn alive(&self) -> (usize, usize) {
        (self.alive.load(SeqCst), self.bytes.load(SeqCst))
    }
}

/// An allocator of one word.
#[derive(Clone, Copy, Debug)]
struct In<'a>(&'a Arena);

// SAFETY: forwards to the global allocator.
unsafe impl Allocator for In<'_> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.0
            .left
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
            .map_err(|_| AllocError)?;
        self.0.given.fetch_add(1, SeqCst);
        self.0.alive.fetch_add(1, SeqCst);
        self.0.bytes.fetch_add(layout.size(), SeqCst);
        Global.allocate(layout)
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        self.0.alive.fetch_sub(1, SeqCst);
        self.0.bytes.fetch_sub(layout.size(), SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { Global.deallocate(memory, layout) };
    }
}

/// An allocator of more than a word, whose copies are counted.
#[derive(Clone)]
struct Wide<'a> {
    arena: In<'a>,
    _room: [usize; 3],
    _handle: Arc<()>,
}

// SAFETY: as for `In`.
unsafe impl Allocator for Wide<'_> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.arena.allocate(layout)
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.arena.deallocate(memory, layout) };
    }
}

const _: () = {
    assert!(<TaskScheduler<'static> as Scheduler>::INFALLIBLE);
    // Its place of completion is unknown.
    assert!(!<TaskSchedule<'static> as Sender>::COMPLETES.stays_on_scheduler());
};

#[test]
fn equals_what_it_erases_and_differs_from_others() {
    let (first, second) = (RunLoop::new(), RunLoop::new());
    let erased = TaskScheduler::new(first.scheduler());
    assert!(erased == first.scheduler());
    assert!(erased != second.scheduler());
    assert!(erased != InlineScheduler);
    assert!(erased == TaskScheduler::new(first.scheduler()));
    assert!(erased != TaskScheduler::new(second.scheduler()));
    assert!(erased != TaskScheduler::new(InlineScheduler));
    assert!(TaskScheduler::new(InlineScheduler) == InlineScheduler);
    // The same bits with another type; the same type with another value.
    let word = TaskScheduler::new(Sized::<1>::number(7));
    assert!(word == Sized::<1>::number(7));
    assert!(word != Sized::<1>::number(8));
    assert!(word != OtherWord(7));
    assert!(word != TaskScheduler::new(OtherWord(7)));
    assert!(TaskScheduler::new(OtherWord(7)) == OtherWord(7));
    // In words, and not.
    assert!(TaskScheduler::new(Sized::<8>::number(7)) == Sized::<8>::number(7));
    assert!(TaskScheduler::new(Sized::<8>::number(7)) == TaskScheduler::new(Sized::<8>::number(7)));
    assert!(TaskScheduler::new(Sized::<8>::number(7)) != TaskScheduler::new(Sized::<8>::number(8)));
    assert!(TaskScheduler::new(Sized::<8>::number(7)) != TaskScheduler::new(Sized::<7>::number(7)));
    // A scheduler that was made infallible differs from the one inside.
    assert!(erased != first.scheduler().or_inline());
    assert!(TaskScheduler::new(first.scheduler().or_inline()) == first.scheduler().or_inline());
    assert!(TaskScheduler::new(first.scheduler().or_inline()) != first.scheduler().or_abort());
}

#[test]
fn copies_stay_equal_when_the_original_is_gone() {
    fn check<S: Scheduler>(scheduler: S, other: S) {
        let original = TaskScheduler::new(scheduler.clone());
        let copy = original.clone();
        assert!(copy == original);
        assert!(original == copy);
        drop(original);
        let second = copy.clone();
        assert!(copy == scheduler && second == scheduler && second == copy);
        assert!(copy != other && second != other);
        drop(copy);
        assert!(second == scheduler);
        assert!(sync_wait(second.schedule()).is_value());
    }
    check(Sized::<1>::number(1), Sized::<1>::number(2));
    check(Sized::<3>::number(1), Sized::<3>::number(2));
    check(Sized::<4>::number(1), Sized::<4>::number(2));
    check(
        HandleScheduler(Arc::new(())).or_abort(),
        HandleScheduler(Arc::new(())).or_abort(),
    );
}

#[test]
fn keeps_what_it_erases_as_long_as_a_copy_or_a_sender_is_there() {
    /// More than three words, so that copies share it.
    #[derive(Clone)]
    struct Shared(HandleScheduler, [usize; 3]);
    impl PartialEq for Shared {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0 && self.1 == other.1
        }
    }
    impl Scheduler for Shared {
        type Schedule = InlineSchedule;
        const INFALLIBLE: bool = true;
        fn schedule(&self) -> InlineSchedule {
            self.0.schedule()
        }
    }
    fn check<S: Scheduler>(handle: &Arc<()>, scheduler: S, per_copy: usize) {
        let before = Arc::strong_count(handle);
        let erased = TaskScheduler::new(scheduler);
        assert_eq!(Arc::strong_count(handle), before);
        let copy = erased.clone();
        assert_eq!(Arc::strong_count(handle), before + per_copy);
        let sender = copy.schedule();
        drop((erased, copy));
        assert!(Arc::strong_count(handle) > 1, "the sender keeps it");
        assert!(sync_wait(sender).is_value());
        assert_eq!(Arc::strong_count(handle), 1);
    }
    let handle = Arc::new(());
    check(&handle, HandleScheduler(handle.clone()), 1);
    check(&handle, Shared(HandleScheduler(handle.clone()), [0; 3]), 0);
}

#[test]
fn one_made_of_another_is_that_one() {
    let arena = Arena::of(1);
    let first = TaskScheduler::new_in(Sized::<8>::number(7), In(&arena));
    let (second, allocated) = allocations(|| TaskScheduler::new(first.clone()));
    assert_eq!((allocated, arena.given()), (0, 1));
    assert!(second == first && second == Sized::<8>::number(7));
    assert_eq!(format!("{second:?}"), format!("{first:?}"));
    assert!(format!("{first:?}").contains("Sized<8>"), "{first:?}");
    drop((first, second));
    assert_eq!(arena.alive(), (0, 0));
}

#[test]
fn a_copy_with_another_allocator_uses_that_one() {
    let (first, second) = (Arena::of(100), Arena::of(100));
    let erased = TaskScheduler::new_in(Sized::<8>::number(7), In(&first));
    let copy = TaskScheduler::new_in(erased.clone(), In(&second));
    assert_eq!((first.given(), second.given()), (1, 1));
    assert!(copy == erased);
    drop(erased);
    assert_eq!(first.alive(), (0, 0));
    assert!(copy == Sized::<8>::number(7));
    drop(copy);
    assert_eq!(second.alive(), (0, 0));
    // A scheduler stored in words allocates nothing for itself, but for its operations.
    let erased = TaskScheduler::new_in(Probe::<LARGE>::default(), In(&first));
    let copy = TaskScheduler::new_in(erased.clone(), In(&second));
    assert!(sync_wait(copy.schedule()).is_value());
    assert_eq!((first.given(), second.given()), (1, 2));
    assert_eq!(second.alive(), (0, 0));
    let none = Arena::of(0);
    assert!(TaskScheduler::try_new_in(copy, In(&none)).is_ok());
    let shared = TaskScheduler::new(Sized::<8>::number(7));
    assert!(TaskScheduler::try_new_in(shared, In(&none)).is_err());
}

#[test]
fn small_schedulers_do_not_allocate() {
    fn check<S: Scheduler>(scheduler: S) {
        let ((), allocated) = allocations(|| {
            let erased = TaskScheduler::new(scheduler);
            let hop = just(1).continues_on(erased.clone()).starts_on(erased.clone());
            assert_eq!(sync_wait(hop).unwrap(), 1);
            assert!(sync_wait(erased.schedule()).is_value());
        });
        assert_eq!(allocated, 0);
    }
    check(InlineScheduler);
    check(Sized::<1>::number(1));
    check(Sized::<3>::number(1));
    let (_, allocated) = allocations(|| TaskScheduler::new(Sized::<4>::number(1)));
    assert_eq!(allocated, 1);
    let run_loop = RunLoop::new();
    let (outcome, allocated) = allocations(|| {
        let erased = TaskScheduler::new(run_loop.scheduler());
        run_loop.run_until(just(1).continues_on(erased).continues_on(run_loop.scheduler()))
    });
    assert_eq!((outcome.unwrap(), allocated), (1, 0));
    // The given allocator is not used either.
    let none = Arena::of(0);
    assert!(sync_wait(TaskScheduler::new_in(Sized::<3>::number(1), In(&none)).schedule()).is_value());
}

#[test]
fn a_large_scheduler_is_in_memory_of_the_given_allocator_which_copies_share() {
    let arena = Arena::of(1);
    let ((), allocated) = allocations(|| {
        let erased = TaskScheduler::new_in(Sized::<4>::number(1), In(&arena));
        let copies = [erased.clone(), erased.clone()];
        drop(erased);
        assert_eq!(arena.alive().0, 1);
        assert!(sync_wait(just(()).continues_on(copies[0].clone())).is_value());
        assert!(copies[0] == copies[1]);
    });
    assert_eq!(arena.alive(), (0, 0));
    // All through it, and so counted by both.
    assert_eq!((arena.given(), allocated), (1, 1));
}

#[test]
fn a_large_operation_is_allocated_when_it_is_connected() {
    assert!(size_of::<[usize; LARGE]>() > TaskScheduler::INLINE_OPERATION);
    let arena = Arena::of(usize::MAX);
    let erased = TaskScheduler::new_in(Probe::<LARGE>::default(), In(&arena));
    assert_eq!(arena.given(), 0);
    let mut slot = WaitSlot::new();
    let prepared = prepare(erased.schedule(), &mut slot);
    assert_eq!(arena.given(), 1);
    assert!(arena.alive().1 > size_of::<[usize; LARGE]>());
    assert!(prepared.wait().is_value());
    assert_eq!((arena.given(), arena.alive()), (1, (0, 0)));
    // In a chain, the first completion connects the second operation, and starting does not allocate.
    assert!(sync_wait(erased.schedule().sequence(erased.schedule())).is_value());
    assert_eq!((arena.given(), arena.alive()), (3, (0, 0)));
}

#[test]
fn an_operation_up_to_the_stated_size_is_inline() {
    // The operation has a probe, a receiver of one word, and its buffer.
    const LARGEST: usize = TaskScheduler::INLINE_OPERATION / size_of::<usize>() - 2;
    let none = Arena::of(0);
    let fits = TaskScheduler::new_in(Probe::<LARGEST>::default(), In(&none));
    assert!(sync_wait(fits.schedule()).is_value());
    let arena = Arena::of(1);
    let too_large = TaskScheduler::new_in(Probe::<{ LARGEST + 1 }>::default(), In(&arena));
    assert!(sync_wait(too_large.schedule()).is_value());
    assert_eq!(arena.given(), 1);
}

#[test]
fn an_allocator_without_memory_is_a_clear_error() {
    let none = Arena::of(0);
    let error = TaskScheduler::try_new_in(Sized::<4>::number(1), In(&none)).unwrap_err();
    assert_eq!(error.layout().size(), size_of::<usize>() + size_of::<[usize; 4]>());
    let said = error.to_string();
    assert!(said.contains("allocate 40 bytes") || size_of::<usize>() != 8, "{said}");
    let _: &dyn std::error::Error = &error;
    let made = panic_message(|| TaskScheduler::new_in(Sized::<4>::number(1), In(&none)));
    assert!(made.contains("cannot erase a scheduler: failed to allocate"), "{made}");
    // An operation: the panic is that of `connect`, which has started nothing and drops its arguments.
    let erased = TaskScheduler::try_new_in(Probe::<LARGE>::default(), In(&none)).unwrap();
    let census = Census::new();
    let value = census.value();
    let work = erased.schedule().then(move |()| panic!("called with {value:?}"));
    let mut slot = WaitSlot::<(), Infallible>::new();
    let connected = panic_message(|| drop(prepare(work, &mut slot)));
    assert!(
        connected.contains("cannot connect the operation of an erased scheduler"),
        "{connected}"
    );
    assert_eq!(census.alive(), 0);
}

#[test]
fn an_allocator_of_more_than_a_word_keeps_itself() {
    let arena = Arena::of(3);
    let handle = Arc::new(());
    let wide = || Wide {
        arena: In(&arena),
        _room: [0; 3],
        _handle: handle.clone(),
    };
    let erased = TaskScheduler::new_in(Probe::<LARGE>::default(), wide());
    assert_eq!((arena.given(), Arc::strong_count(&handle)), (1, 2));
    let copy = erased.clone();
    assert!(sync_wait(copy.schedule()).is_value());
    drop(erased);
    assert_eq!((arena.given(), Arc::strong_count(&handle)), (2, 2));
    drop(copy);
    assert_eq!((arena.alive(), Arc::strong_count(&handle)), ((0, 0), 1));
    assert!(TaskScheduler::try_new_in(Sized::<4>::number(1), wide()).is_err());
    assert!(TaskScheduler::try_new_in(InlineScheduler, wide()).is_err());
    assert_eq!((arena.alive(), Arc::strong_count(&handle)), ((0, 0), 1));
}

/// Runs a check with an operation that is inline, and with one that is not.
macro_rules! in_both_places {
    ($check:ident) => {
        $check(Probe::<INLINE>::default());
        $check(Probe::<LARGE>::default());
    };
}

#[test]
fn the_scheduler_inside_sees_the_stop_token() {
    fn check<const WORDS: usize>(probe: Probe<WORDS>) {
        let erased = TaskScheduler::new(probe.clone());
        let source = InplaceStopSource::new();
        let work = || erased.schedule().write_env(WithStopToken(source.token()));
        assert!(sync_wait(work()).is_value());
        source.request_stop();
        assert!(sync_wait(work()).is_stopped());
        let seen = probe.take();
        assert!(seen.iter().all(|told| told.stop_possible), "{seen:?}");
        assert_eq!(
            seen.iter().map(|told| told.stop_requested).collect::<Vec<_>>(),
            [false, false, true, true]
        );
        let source = StopSource::new();
        source.request_stop();
        assert!(sync_wait(erased.schedule().write_env(WithStopToken(source.token()))).is_stopped());
    }
    in_both_places!(check);
}

#[test]
fn what_cannot_be_stopped_stays_so() {
    fn check<const WORDS: usize>(probe: Probe<WORDS>) {
        let erased = TaskScheduler::new(probe.clone());
        let source = InplaceStopSource::new();
        source.request_stop();
        let work = erased.schedule().unstoppable().write_env(WithStopToken(source.token()));
        assert!(sync_wait(work).is_value());
        let seen = probe.take();
        assert!(
            seen.len() == 2 && seen.iter().all(|told| !told.stop_possible && !told.stop_requested),
            "{seen:?}"
        );
    }
    in_both_places!(check);
}

#[test]
fn the_scheduler_inside_sees_the_users_values() {
    fn check<const WORDS: usize>(probe: Probe<WORDS>) {
        let erased = TaskScheduler::new(probe.clone());
        assert!(sync_wait(erased.schedule()).is_value());
        assert_eq!(
            probe.take().iter().map(|told| told.level).collect::<Vec<_>>(),
            [None, None]
        );
        assert!(sync_wait(erased.schedule().write_env(With(Level(3)))).is_value());
        let far = just(1)
            .continues_on(erased)
            .boxed()
            .write_env(With(7u8))
            .write_env(With(Level(3)));
        assert_eq!(sync_wait(far).unwrap(), 1);
        assert_eq!(
            probe.take().iter().map(|told| told.level).collect::<Vec<_>>(),
            [Some(Level(3)); 4]
        );
    }
    in_both_places!(check);
}

/// A scheduler that completes only by a stop.
#[derive(Clone, PartialEq)]
struct NeverThere;

impl Scheduler for NeverThere {
    type Schedule = Never<(), Infallible>;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> Self::Schedule {
        never()
    }
}

#[test]
fn a_stop_in_flight_reaches_the_scheduler_inside() {
    let run_loop = RunLoop::new();
    let source = InplaceStopSource::new();
    let waiting = TaskScheduler::new(NeverThere).schedule();
    let request = run_loop.scheduler().schedule().then(|()| source.request_stop());
    let work = when_all((waiting.write_env(WithStopToken(source.token())).into_outcome(), request));
    let (outcome, requested) = run_loop.run_until(work).unwrap();
    assert!(outcome.is_stopped() && requested);
}

#[test]
fn a_stop_is_seen_when_the_turn_comes() {
    let run_loop = RunLoop::new();
    let source = InplaceStopSource::new();
    let erased = TaskScheduler::new(run_loop.scheduler());
    let request = just_from(|| source.request_stop());
    let work = when_all((
        erased
            .schedule()
            .write_env(WithStopToken(source.token()))
            .into_outcome(),
        erased.schedule().unstoppable().into_outcome(),
        request,
    ));
    let (stopped, unstoppable, requested) = run_loop.run_until(work).unwrap();
    assert!(stopped.is_stopped() && unstoppable.is_value() && requested);
}

#[test]
fn work_arrives_where_the_scheduler_inside_is() {
    with_loop(|there| {
        let id = sync_wait(there.schedule().then(|()| thread::current().id())).unwrap();
        let here = thread::current().id();
        let erased = TaskScheduler::new(there);
        let at = || just_from(|| thread::current().id());
        assert_eq!(
            sync_wait(erased.schedule().then(|()| thread::current().id())).unwrap(),
            id
        );
        assert_eq!(sync_wait(starts_on(erased.clone(), at())).unwrap(), id);
        let continued = just(()).continues_on(erased.clone()).then(|()| thread::current().id());
        assert_eq!(sync_wait(continued).unwrap(), id);
        let and_back = at().on(erased.clone()).then(|there| (there, thread::current().id()));
        assert_eq!(sync_wait(and_back).unwrap(), (id, here));
        // Back to an erased scheduler: `on` and `affine` inside see it in the environment.
        let run_loop = RunLoop::new();
        let home = TaskScheduler::new(run_loop.scheduler());
        let work = just(()).continues_on(there).affine().then(|()| thread::current().id());
        assert_eq!(run_loop.run_until(starts_on(home.clone(), work)).unwrap(), here);
        let work = at().on(there).then(|there| (there, thread::current().id()));
        assert_eq!(run_loop.run_until(starts_on(home, work)).unwrap(), (id, here));
    });
}

#[test]
fn the_way_back_to_an_erased_scheduler_cannot_be_stopped() {
    with_loop(|there| {
        let run_loop = RunLoop::new();
        let home = TaskScheduler::new(run_loop.scheduler());
        let source = StopSource::new();
        let away = there.schedule().then(|()| source.request_stop());
        let work = starts_on(
            home,
            away.affine().then(|requested| (requested, thread::current().id())),
        );
        let work = work.write_env(WithStopToken(source.token()));
        assert_eq!(run_loop.run_until(work).unwrap(), (true, thread::current().id()));
    });
}

#[test]
fn keeps_the_order_of_the_starts() {
    let run_loop = RunLoop::new();
    let erased = TaskScheduler::new(run_loop.scheduler());
    let order = Mutex::new(Vec::new());
    let all = when_all_iter((0..100).map(|n| {
        let order = &order;
        erased.schedule().then(move |()| order.lock().unwrap().push(n))
    }));
    assert!(run_loop.run_until(all).is_value());
    assert_eq!(*order.lock().unwrap(), (0..100).collect::<Vec<_>>());
}

/// Schedules onto a loop of another thread. Its `start` returns only after all resulting work is over there.
#[derive(Clone, Copy, PartialEq)]
struct Hasty<const WORDS: usize>;

static HASTY: RunLoop = RunLoop::new();

impl<const WORDS: usize> Scheduler for Hasty<WORDS> {
    type Schedule = HastySchedule<WORDS>;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> Self::Schedule {
        HastySchedule
    }
}

struct HastySchedule<const WORDS: usize>;

struct HastyOperation<const WORDS: usize, R: Receiver<(), Infallible>> {
    hop: <<RunLoopScheduler<'static> as Scheduler>::Schedule as Sender>::Operation<R>,
    _room: [usize; WORDS],
}

// SAFETY: the operation touches nothing of itself after the push; it is `!Unpin`, since the hop is.
unsafe impl<const WORDS: usize> Sender for HastySchedule<WORDS> {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = HastyOperation<WORDS, R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        HastyOperation {
            hop: HASTY.scheduler().schedule().connect(receiver),
            _room: [0; WORDS],
        }
    }
}

impl<const WORDS: usize, R: Receiver<(), Infallible>> Operation for HastyOperation<WORDS, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: the hop is pinned with this operation, and started once.
        let resumed = unsafe { self.map_unchecked_mut(|this| &mut this.hop).start() };
        // The loop is FIFO: work queued after the hop runs after everything that the hop resumed.
        assert!(sync_wait(HASTY.scheduler().schedule()).is_value());
        resumed
    }
}

#[test]
fn it_may_complete_elsewhere_and_be_gone_before_start_returns() {
    thread::scope(|scope| {
        scope.spawn(|| HASTY.run());
        let here = thread::current().id();
        let detach = |erased: TaskScheduler<'static>| {
            let elsewhere = Arc::new(AtomicBool::new(false));
            let noted = elsewhere.clone();
            // The operation is in a box, which the completion frees.
            start_detached(
                erased
                    .schedule()
                    .then(move |()| noted.store(thread::current().id() != here, SeqCst)),
            );
            assert!(elsewhere.load(SeqCst));
            assert_eq!(Arc::strong_count(&elsewhere), 1);
        };
        for _ in 0..100 {
            detach(TaskScheduler::new(Hasty::<INLINE>));
            detach(TaskScheduler::new(Hasty::<LARGE>));
        }
        HASTY.finish();
    });
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    fn check<const WORDS: usize>(probe: Probe<WORDS>) {
        let arena = Arena::of(usize::MAX);
        let erased = TaskScheduler::new_in(probe.clone(), In(&arena));
        let census = Census::new();
        let work = || {
            let value = census.value();
            erased.schedule().then(move |()| panic!("called with {value:?}"))
        };
        drop(work());
        let mut slot = WaitSlot::<(), Infallible>::new();
        drop(prepare(work(), &mut slot));
        let (record, recorded) = Record::new();
        drop(erased.schedule().connect(record));
        assert_eq!(recorded.recv(), Ok(Recorded::<(), Infallible>::Dropped));
        assert_eq!((census.alive(), arena.alive()), (0, (0, 0)));
        drop(erased);
        assert_eq!(Arc::strong_count(&probe.0), 1);
    }
    in_both_places!(check);
}

#[test]
fn the_inside_is_destroyed_before_the_completion() {
    fn check<const WORDS: usize>(probe: Probe<WORDS>) {
        let sender = TaskScheduler::new(probe.clone()).schedule();
        let handles = sync_wait(sender.then(|()| Arc::strong_count(&probe.0))).unwrap();
        assert_eq!(handles, 1);
    }
    in_both_places!(check);
}

/// A scheduler that declares itself infallible, and fails.
#[derive(Clone, Copy, PartialEq)]
enum Liar {
    Fails,
    Drops,
    Panics,
}

impl Scheduler for Liar {
    type Schedule = BoxedSender<'static, (), &'static str>;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> Self::Schedule {
        match self {
            Liar::Fails => just_error("all the same").boxed(),
            Liar::Drops => just_stopped().boxed(),
            Liar::Panics => just_from(|| panic!("in the scheduler")).infallible_into().boxed(),
        }
    }
}

#[test]
fn a_scheduler_that_breaks_its_promise_makes_nobody_wait_for_ever() {
    assert!(sync_wait(TaskScheduler::new(Liar::Fails).schedule()).is_stopped());
    assert!(sync_wait(TaskScheduler::new(Liar::Drops).schedule()).is_stopped());
    let panics = TaskScheduler::new(Liar::Panics);
    assert_eq!(panic_message(|| sync_wait(panics.schedule())), "in the scheduler");
}

#[test]
fn may_be_sent_and_shared_and_kept_in_a_static() {
    fn send<T: Send + Sync>(value: T) -> T {
        value
    }
    static KEPT: OnceLock<TaskScheduler<'static>> = OnceLock::new();
    static LOOP: RunLoop = RunLoop::new();
    let erased = send(TaskScheduler::new(LOOP.scheduler()));
    let kept = KEPT.get_or_init(|| erased.clone());
    let equal = thread::scope(|scope| scope.spawn(|| *kept == erased).join().unwrap());
    assert!(equal);
}

/// A user-defined scheduler with an erased one inside.
#[derive(Clone, PartialEq)]
struct Around(TaskScheduler<'static>);

impl Scheduler for Around {
    type Schedule = TaskSchedule<'static>;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> Self::Schedule {
        self.0.schedule()
    }
}

#[test]
fn a_nest_allocates_when_it_is_connected_and_not_when_it_is_started() {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    let arena = ARENA.get_or_init(|| Arena::of(usize::MAX));
    let mut erased = TaskScheduler::new_in(Probe::<LARGE>::default(), In(arena));
    for level in 1..=8 {
        erased = TaskScheduler::new_in(Around(erased), In(arena));
        assert_eq!(arena.given(), level);
    }
    let given = arena.given();
    let mut slot = WaitSlot::new();
    let prepared = prepare(erased.schedule(), &mut slot);
    assert_eq!(arena.given() - given, 9);
    assert!(prepared.wait().is_value());
    assert_eq!(arena.given() - given, 9);
    drop(erased);
    assert_eq!(arena.alive(), (0, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = TaskScheduler::new(InlineScheduler).schedule();
        assert!(sync_wait(round.repeat_until(million())).is_value());
    });
    with_stack(SMALL_STACK, || {
        let erased = TaskScheduler::new(InlineScheduler);
        let round = just(1).continues_on(erased.clone()).starts_on(erased);
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), 1);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let round = TaskScheduler::new(run_loop.scheduler()).schedule();
        assert!(run_loop.run_until(round.repeat_until(million())).is_value());
    });
}

#[test]
fn a_million_rounds_of_what_is_not_inline_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let nest = TaskScheduler::new(Around(TaskScheduler::new(Around(TaskScheduler::new(InlineScheduler)))));
        assert!(sync_wait(nest.schedule().repeat_until(million())).is_value());
    });
}

#[test]
fn a_million_affine_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let home = TaskScheduler::new(run_loop.scheduler());
        let round = run_loop.scheduler().schedule().affine();
        let work = round.repeat_until(million()).write_env(WithScheduler(home));
        assert!(run_loop.run_until(work).is_value());
    });
}

/// Runs a check with a scheduler that panics in a method, with an inline operation and with one that is not. Asserts that
/// nothing leaks.
macro_rules! with_touchy {
    ($method:expr, $check:ident) => {
        let census = Census::new();
        $check(Touchy::<0>::new($method, &census), &census);
        $check(Touchy::<LARGE>::new($method, &census), &census);
        assert_eq!(census.alive(), 0);
    };
}

#[test]
fn a_panic_in_schedule_is_the_completion() {
    fn check<const WORDS: usize>(touchy: Touchy<WORDS>, census: &Census) {
        let arena = Arena::of(usize::MAX);
        let erased = TaskScheduler::new_in(touchy, In(&arena));
        for _ in 0..3 {
            assert_eq!(panic_message(|| sync_wait(erased.schedule())), "in schedule");
        }
        // The next sender sees only the panic.
        let value = census.value();
        let work = erased
            .schedule()
            .then(move |()| drop(value))
            .upon_stopped(|| panic!("stopped"));
        assert_eq!(panic_message(|| sync_wait(work)), "in schedule");
        // An unstarted operation runs nothing and completes nothing.
        let (record, recorded) = Record::new();
        drop(erased.schedule().connect(record));
        assert_eq!(recorded.recv(), Ok(Recorded::<(), Infallible>::Dropped));
        drop(erased);
        assert_eq!((census.alive(), arena.alive()), (0, (0, 0)));
    }
    with_touchy!("schedule", check);
}

#[test]
fn a_panic_in_schedule_of_the_innermost_of_a_nest_is_the_completion() {
    let census = Census::new();
    let mut erased = TaskScheduler::new(Touchy::<0>::new("schedule", &census));
    for _ in 0..4 {
        erased = TaskScheduler::new(Around(erased));
        assert_eq!(panic_message(|| sync_wait(erased.schedule())), "in schedule");
    }
    drop(erased);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_panic_in_schedule_reaches_what_stands_around_the_erased_one() {
    fn check<const WORDS: usize>(touchy: Touchy<WORDS>, census: &Census) {
        let erased = TaskScheduler::new(touchy);
        let values = |n: i32| (census.value(), n);
        let there = just(values(1)).continues_on(erased.clone());
        assert_eq!(panic_message(|| sync_wait(there)), "in schedule");
        let both = when_all((just(values(2)), starts_on(erased.clone(), just(values(3)))));
        assert_eq!(panic_message(|| sync_wait(both)), "in schedule");
        let looked_at = starts_on(erased, just(values(4))).into_outcome();
        assert_eq!(panic_message(|| sync_wait(looked_at)), "in schedule");
        assert_eq!(census.alive(), 0);
    }
    with_touchy!("schedule", check);
}

#[test]
fn a_panic_in_clone_leaves_nothing_behind() {
    fn check<const WORDS: usize>(touchy: Touchy<WORDS>, census: &Census) {
        let arena = Arena::of(usize::MAX);
        let erased = TaskScheduler::new_in(touchy, In(&arena));
        // It is more than three words, so copies share it and clone nothing.
        drop(erased.clone());
        assert_eq!(census.alive(), 1);
        // A copy with another allocator is a clone.
        assert_eq!(
            panic_message(|| TaskScheduler::new_in(erased.clone(), In(&arena))),
            "in clone"
        );
        assert_eq!((census.alive(), arena.alive().0), (1, 1));
        drop(erased);
        assert_eq!((census.alive(), arena.alive()), (0, (0, 0)));
    }
    with_touchy!("clone", check);
}

#[test]
fn a_panic_in_clone_of_a_small_one_is_that_of_the_copy() {
    /// As large as a word.
    struct Small(Box<Touchy>);
    impl Clone for Small {
        fn clone(&self) -> Self {
            Small(self.0.clone())
        }
    }
    impl PartialEq for Small {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }
    impl Scheduler for Small {
        type Schedule = <Touchy as Scheduler>::Schedule;
        const INFALLIBLE: bool = true;
        fn schedule(&self) -> Self::Schedule {
            self.0.schedule()
        }
    }
    let census = Census::new();
    let erased = TaskScheduler::new(Small(Box::new(Touchy::new("clone", &census))));
    assert_eq!(panic_message(|| erased.clone()), "in clone");
    assert_eq!(panic_message(|| erased.schedule()), "in clone");
    assert_eq!(census.alive(), 1);
    drop(erased);
    assert_eq!(census.alive(), 0);
}

/// An allocator of one word, so that every copy has a clone. It can be cloned twice; the third clone panics.
#[derive(Debug)]
struct Twice<'a>(&'a (Arena, AtomicUsize));

impl Clone for Twice<'_> {
    fn clone(&self) -> Self {
        assert!(self.0.1.fetch_add(1, SeqCst) < 2, "no more of them");
        Twice(self.0)
    }
}

// SAFETY: all clones forward to the arena.
unsafe impl Allocator for Twice<'_> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        In(&self.0.0).allocate(layout)
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { In(&self.0.0).deallocate(memory, layout) };
    }
}

#[test]
fn a_panic_in_clone_of_an_allocator_counts_no_handle() {
    let (place, census) = ((Arena::of(usize::MAX), AtomicUsize::new(0)), Census::new());
    let erased = TaskScheduler::new_in(Touchy::<LARGE>::new("nothing", &census), Twice(&place));
    let copies = [erased.clone(), erased.clone()];
    assert_eq!(panic_message(|| erased.clone()), "no more of them");
    assert_eq!(panic_message(|| erased.schedule()), "no more of them");
    drop((erased, copies));
    assert_eq!((census.alive(), place.0.alive()), (0, (0, 0)));
}

#[test]
fn a_comparison_asks_for_identities_and_calls_no_eq() {
    let census = Census::new();
    let first = Touchy::<0>::new("nothing", &census);
    let second = Touchy::<0>::new("nothing", &census);
    let erased = TaskScheduler::new(first.clone());
    assert!(erased == first && erased == TaskScheduler::new(first.clone()) && erased == erased.clone());
    assert!(erased != second && erased != TaskScheduler::new(second));
    let touchy = TaskScheduler::new(Touchy::<0>::new("identity", &census));
    assert_eq!(panic_message(|| touchy == touchy.clone()), "in identity");
    assert!(touchy != InlineScheduler, "another type is another, whatever it says");
}

#[test]
fn one_that_does_not_tell_its_identity_equals_nothing() {
    /// Compares equal to everything.
    #[derive(Clone)]
    struct Silent(#[allow(dead_code, reason = "so that it has a size")] u8);
    impl PartialEq for Silent {
        fn eq(&self, _: &Self) -> bool {
            true
        }
    }
    impl Scheduler for Silent {
        type Schedule = InlineSchedule;
        const INFALLIBLE: bool = true;
        fn schedule(&self) -> InlineSchedule {
            InlineScheduler.schedule()
        }
    }
    let erased = TaskScheduler::new(Silent(1));
    assert!(erased != Silent(1) && erased != erased.clone());
    // A zero-sized type is identified by its type.
    assert!(TaskScheduler::new(NeverThere) == NeverThere);
}

#[test]
fn an_identity_that_changes_is_harmless() {
    #[derive(Clone)]
    struct Fickle(Arc<AtomicUsize>);
    impl PartialEq for Fickle {
        fn eq(&self, _: &Self) -> bool {
            false
        }
    }
    impl Scheduler for Fickle {
        type Schedule = InlineSchedule;
        const INFALLIBLE: bool = true;
        fn schedule(&self) -> InlineSchedule {
            InlineScheduler.schedule()
        }
        fn identity(&self) -> Identity {
            match self.0.fetch_add(1, SeqCst) % 4 {
                0 => Identity::TYPE,
                1 => Identity::UNKNOWN,
                2 => Identity::of_number(0),
                _ => InlineScheduler.identity(),
            }
        }
    }
    let erased = TaskScheduler::new(Fickle(Arc::default()));
    for _ in 0..8 {
        assert!(erased != erased.clone());
    }
    assert!(sync_wait(starts_on(erased, just(1))).is_value());
}

#[test]
fn schedulers_that_borrow_for_different_times_can_be_compared() {
    #[derive(Clone, PartialEq)]
    struct Named<'a>(&'a str);
    impl Scheduler for Named<'_> {
        type Schedule = InlineSchedule;
        const INFALLIBLE: bool = true;
        fn schedule(&self) -> InlineSchedule {
            InlineScheduler.schedule()
        }
        fn identity(&self) -> Identity {
            Identity::of_address(self.0)
        }
    }
    static NAME: &str = "for good";
    let long: TaskScheduler<'static> = TaskScheduler::new(Named(NAME));
    {
        let name = String::from("for a while");
        let short = Named(&name);
        assert!(long != short && long != TaskScheduler::new(short.clone()));
        assert!(TaskScheduler::new(short.clone()) == short);
    }
    assert!(long == Named(NAME));
}

/// A wrapper that exposes the queue of the inner scheduler to tasks.
#[derive(Clone, PartialEq)]
struct Forwards<S>(S);

impl<S: Scheduler> Scheduler for Forwards<S> {
    type Schedule = S::Schedule;
    const INFALLIBLE: bool = S::INFALLIBLE;

    fn schedule(&self) -> S::Schedule {
        self.0.schedule()
    }

    fn native(&self) -> Option<bowline::sender::Native<'_>> {
        self.0.native()
    }
}

#[test]
fn a_wrapper_that_forwards_its_queue_has_the_identity_of_that() {
    let (first, second) = (ThreadPool::new(1), ThreadPool::new(1));
    let erased = TaskScheduler::new(Forwards(first.scheduler()));
    assert!(erased == Forwards(first.scheduler()));
    assert!(erased != Forwards(second.scheduler()));
    assert!(erased != first.scheduler(), "another type is another");
    assert!(TaskScheduler::new(Forwards(TaskScheduler::new(first.scheduler()))) == Forwards(erased_of(&first)));
}

fn erased_of(pool: &ThreadPool) -> TaskScheduler<'static> {
    TaskScheduler::new(pool.scheduler())
}
