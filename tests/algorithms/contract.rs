//! The contract that every algorithm keeps: one table, a row for each, and the same tests for every row.
//!
//! An adaptor gets an input that completes in each of the four ways, inside its start or later on a run loop. The row says
//! in which way the adaptor then completes, how often it has called its function, how often it allocates, and where it
//! promises to complete. A factory gets a token and a function. Values and errors are [`Token`]s. A token can only be moved, so a token that arrives was handed on
//! untouched. Behaviour that is an algorithm's own is tested in the file of its name.

use std::marker::PhantomPinned;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bowline::adaptors::ContinuesOn;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop, RunLoopScheduler};
use bowline::{Completes, Env, Operation, Panic, Query, Receiver, Transfer};

use crate::common::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A way to complete.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Channel {
    Value,
    Error,
    Stopped,
    Panicked,
}

use Channel::*;

/// The message of an input that panics.
const INPUT: &str = "in the input";
/// The message of a function that panics.
const FUNCTION: &str = "in the function";

/// Counts what happens in one test.
#[derive(Debug, Default)]
struct Tally {
    tokens: AtomicUsize,
    starts: AtomicUsize,
    calls: AtomicUsize,
    /// Calls panic.
    panics: AtomicBool,
}

impl Tally {
    fn alive(&self) -> usize {
        self.tokens.load(SeqCst)
    }

    /// The body of every function in the table.
    fn call(&self) {
        self.calls.fetch_add(1, SeqCst);
        if self.panics.load(SeqCst) {
            resume_unwind(Box::new(FUNCTION));
        }
    }
}

/// A reference to a [`Tally`]: borrowed from the test's stack, or shared.
trait Counts: Clone + Send + Sync {
    fn tally(&self) -> &Tally;
}

impl Counts for &Tally {
    fn tally(&self) -> &Tally {
        self
    }
}

impl Counts for std::sync::Arc<Tally> {
    fn tally(&self) -> &Tally {
        self
    }
}

type Shared = std::sync::Arc<Tally>;

/// A value that can only be moved, and is counted while it is alive.
#[derive(Debug)]
struct Token<C: Counts>(C);

impl<C: Counts> Token<C> {
    fn new(counts: &C) -> Self {
        counts.tally().tokens.fetch_add(1, SeqCst);
        Token(counts.clone())
    }
}

impl<C: Counts> Drop for Token<C> {
    fn drop(&mut self) {
        self.0.tally().tokens.fetch_sub(1, SeqCst);
    }
}

/// A token that can be cloned.
#[derive(Debug)]
struct Copied<C: Counts>(Token<C>);

impl<C: Counts> Clone for Copied<C> {
    fn clone(&self) -> Self {
        Copied(Token::new(&self.0.0))
    }
}

/// A token that was converted with `From`, which is a function of the table.
#[derive(Debug)]
struct Converted<C: Counts>(Token<C>);

impl<C: Counts> From<Token<C>> for Converted<C> {
    fn from(token: Token<C>) -> Self {
        token.0.tally().call();
        Converted(token)
    }
}

/// The number of tokens in a completion.
trait Tokens: Send {
    fn tokens(&self) -> usize;
}

impl Tokens for () {
    fn tokens(&self) -> usize {
        0
    }
}

impl Tokens for std::convert::Infallible {
    fn tokens(&self) -> usize {
        match *self {}
    }
}

impl<C: Counts> Tokens for Token<C> {
    fn tokens(&self) -> usize {
        1
    }
}

impl<C: Counts> Tokens for Copied<C> {
    fn tokens(&self) -> usize {
        1
    }
}

impl<C: Counts> Tokens for Converted<C> {
    fn tokens(&self) -> usize {
        self.0.tokens()
    }
}

impl<T: Tokens> Tokens for Option<T> {
    fn tokens(&self) -> usize {
        self.as_ref().map_or(0, T::tokens)
    }
}

impl<T: Tokens> Tokens for Vec<T> {
    fn tokens(&self) -> usize {
        self.iter().map(T::tokens).sum()
    }
}

impl<T: Tokens, const N: usize> Tokens for [T; N] {
    fn tokens(&self) -> usize {
        self.iter().map(T::tokens).sum()
    }
}

impl<T: Tokens, U: Tokens> Tokens for (T, U) {
    fn tokens(&self) -> usize {
        self.0.tokens() + self.1.tokens()
    }
}

impl<T: Tokens, E: Tokens> Tokens for Outcome<T, E> {
    fn tokens(&self) -> usize {
        match self {
            Outcome::Value(value) => value.tokens(),
            Outcome::Error(error) => error.tokens(),
            Outcome::Stopped => 0,
        }
    }
}

impl<E: Tokens> Tokens for TimeoutError<E> {
    fn tokens(&self) -> usize {
        match self {
            TimeoutError::Inner(error) => error.tokens(),
            _ => 0,
        }
    }
}

/// The function that a row hands to its algorithm, and whatever else the row needs.
#[derive(Debug)]
struct Function<C: Counts> {
    /// Captured, so that it shows when the function is dropped.
    held: Token<C>,
    run_loop: &'static RunLoop,
}

impl<C: Counts> Function<C> {
    fn new(counts: &C, run_loop: &'static RunLoop) -> Self {
        Function {
            held: Token::new(counts),
            run_loop,
        }
    }

    /// Counts a call, or panics, and returns what it was given.
    fn call<T>(&self, value: T) -> T {
        self.held.0.tally().call();
        value
    }

    /// Makes a value. Not a call.
    fn token(&self) -> Token<C> {
        Token::new(&self.held.0)
    }

    /// The run loop that drives the test.
    fn scheduler(&self) -> RunLoopScheduler<'static> {
        self.run_loop.scheduler()
    }
}

impl<C: Counts> Clone for Function<C> {
    fn clone(&self) -> Self {
        Function::new(&self.held.0, self.run_loop)
    }
}

/// A query that is a function of the table.
impl<C: Counts> Query for Function<C> {
    type Answer = Token<C>;

    fn ask<N: Env>(self, _: &N) -> Token<C> {
        self.call(());
        self.token()
    }
}

/// A sender that completes inside its start, in the way it is told.
#[derive(Debug)]
struct Source<C: Counts> {
    /// `None` takes the three ways that do not unwind in turn.
    channel: Option<Channel>,
    token: Token<C>,
}

impl<C: Counts> Source<C> {
    fn new(counts: &C, channel: impl Into<Option<Channel>>) -> Self {
        Source {
            channel: channel.into(),
            token: Token::new(counts),
        }
    }
}

impl<C: Counts> Clone for Source<C> {
    fn clone(&self) -> Self {
        Source::new(&self.token.0, self.channel)
    }
}

// SAFETY: the operation completes inside `start`, which is what `COMPLETES` says, and touches nothing of itself
// afterwards. It is `!Unpin`, and nothing in it unwinds.
unsafe impl<C: Counts> Sender for Source<C> {
    type Value = Token<C>;
    type Error = Token<C>;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<Token<C>, Token<C>>> = SourceOperation<C, R>;

    fn connect<R: Receiver<Token<C>, Token<C>>>(self, receiver: R) -> SourceOperation<C, R> {
        SourceOperation {
            parts: Some((self, receiver)),
            _pinned: PhantomPinned,
        }
    }
}

#[derive(Debug)]
struct SourceOperation<C: Counts, R> {
    parts: Option<(Source<C>, R)>,
    _pinned: PhantomPinned,
}

impl<C: Counts, R: Receiver<Token<C>, Token<C>>> Operation for SourceOperation<C, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: the parts are not pinned, and nothing else is moved.
        let this = unsafe { self.get_unchecked_mut() };
        let Some((Source { channel, token }, receiver)) = this.parts.take() else {
            return Transfer::none();
        };
        let starts = token.0.tally().starts.fetch_add(1, SeqCst);
        match channel.unwrap_or([Value, Error, Stopped][starts % 3]) {
            Value => receiver.set_value(token),
            Error => receiver.set_error(token),
            Stopped => {
                drop(token);
                receiver.set_stopped()
            }
            Panicked => {
                drop(token);
                receiver.set_panicked(Panic::new(Box::new(INPUT)))
            }
        }
    }
}

/// The input that completes later, on the run loop that drives the test.
type Later<C> = ContinuesOn<Source<C>, RunLoopScheduler<'static>>;

/// How a sender completed, how many tokens arrived, and how many were alive at that moment; the text of a panic.
type Ended = (Channel, usize, usize, Option<String>);

/// Runs a sender to its end.
fn run<S>(run_loop: &'static RunLoop, tally: &Tally, sender: S) -> Ended
where
    S: Sender<Value: Tokens, Error: Tokens>,
{
    match Panic::catch(|| run_loop.run_until(sender)) {
        Ok(outcome) => {
            let channel = match &outcome {
                Outcome::Value(_) => Value,
                Outcome::Error(_) => Error,
                Outcome::Stopped => Stopped,
            };
            (channel, outcome.tokens(), tally.alive(), None)
        }
        Err(panic) => (Panicked, 0, tally.alive(), panic.message().map(str::to_owned)),
    }
}

/// The ways in which the input completes, each with how the row says that the algorithm then does, and its calls.
type Expected = [(Channel, Channel, usize); 4];

/// Makes an input that completes at once.
fn now<C: Counts>(counts: &C, channel: impl Into<Option<Channel>>, _: &'static RunLoop) -> Source<C> {
    Source::new(counts, channel)
}

/// Makes an input that completes on the run loop.
fn later<C: Counts>(counts: &C, channel: impl Into<Option<Channel>>, run_loop: &'static RunLoop) -> Later<C> {
    Source::new(counts, channel).continues_on(run_loop.scheduler())
}

/// Every way in which the input completes leads to that of the row, with the calls of the row, and nothing is left.
fn every_channel<I, S>(
    expected: Expected,
    input: fn(&Shared, Channel, &'static RunLoop) -> I,
    make: impl Fn(I, Function<Shared>) -> S,
) where
    S: Sender<Value: Tokens, Error: Tokens>,
{
    let run_loop = for_good(RunLoop::new());
    for (from, to, calls) in expected {
        let tally = Shared::default();
        let sender = make(input(&tally, from, run_loop), Function::new(&tally, run_loop));
        let (channel, arrived, alive, text) = run(run_loop, &tally, sender);
        assert_eq!(channel, to, "after {from:?}");
        assert_eq!(text.as_deref(), (to == Panicked).then_some(INPUT), "after {from:?}");
        assert_eq!(tally.calls.load(SeqCst), calls, "calls after {from:?}");
        assert_eq!(alive, arrived, "tokens that are left after {from:?}");
        assert_eq!(tally.alive(), 0, "after {from:?}");
    }
}

/// What is not part of the completion is dropped before it: what it borrows may be gone afterwards.
fn drops_the_rest_before_it_completes<S>(expected: Expected, make: impl Fn(Source<Shared>, Function<Shared>) -> S)
where
    S: Sender<Value: Tokens, Error: Tokens>,
{
    let run_loop = for_good(RunLoop::new());
    for (from, ..) in expected {
        let tally = Shared::default();
        let at_completion = AtomicUsize::new(usize::MAX);
        let sender = make(now(&tally, from, run_loop), Function::new(&tally, run_loop));
        let sender = sender.finally(just_from(|| at_completion.store(tally.alive(), SeqCst)));
        let (_, arrived, ..) = run(run_loop, &tally, sender);
        assert_eq!(at_completion.into_inner(), arrived, "after {from:?}");
    }
}

/// A panic of the function is the completion, unless the input had panicked before.
fn a_panic_of_its_function_arrives<S>(expected: Expected, make: impl Fn(Source<Shared>, Function<Shared>) -> S)
where
    S: Sender<Value: Tokens, Error: Tokens>,
{
    let run_loop = for_good(RunLoop::new());
    let mut called = 0;
    for (from, _, calls) in expected {
        if calls == 0 {
            continue;
        }
        called += 1;
        let tally = Shared::default();
        tally.panics.store(true, SeqCst);
        let sender = make(now(&tally, from, run_loop), Function::new(&tally, run_loop));
        let (channel, _, alive, text) = run(run_loop, &tally, sender);
        let first = if from == Panicked { INPUT } else { FUNCTION };
        assert_eq!((channel, text.as_deref()), (Panicked, Some(first)), "after {from:?}");
        assert_eq!(tally.calls.load(SeqCst), 1, "after {from:?}");
        assert_eq!(alive, 0, "tokens that are left after {from:?}");
    }
    assert_ne!(called, 0, "the row has no function");
}

/// The input and the function borrow from the caller.
fn borrows_from_the_caller<'a, S>(
    tally: &'a Tally,
    expected: Expected,
    make: impl Fn(Source<&'a Tally>, Function<&'a Tally>) -> S,
) where
    S: Sender<Value: Tokens, Error: Tokens>,
{
    let run_loop = for_good(RunLoop::new());
    for (from, to, _) in expected {
        let sender = make(now(&tally, from, run_loop), Function::new(&tally, run_loop));
        let (channel, arrived, alive, _) = run(run_loop, tally, sender);
        assert_eq!((channel, alive), (to, arrived), "after {from:?}");
    }
    assert_eq!(tally.alive(), 0);
}

/// A clone of the sender completes as the sender itself does.
fn a_clone_does_the_same<S>(expected: Expected, make: impl Fn(Source<Shared>, Function<Shared>) -> S)
where
    S: Sender<Value: Tokens, Error: Tokens> + Clone,
{
    let run_loop = for_good(RunLoop::new());
    for (from, to, calls) in expected {
        let tally = Shared::default();
        let sender = make(now(&tally, from, run_loop), Function::new(&tally, run_loop));
        let clone = sender.clone();
        for sender in [sender, clone] {
            assert_eq!(run(run_loop, &tally, sender).0, to, "after {from:?}");
        }
        assert_eq!(tally.calls.load(SeqCst), 2 * calls, "calls after {from:?}");
        assert_eq!(tally.alive(), 0, "after {from:?}");
    }
}

/// Nothing runs, and everything is dropped, connected or not.
fn dropped_unstarted_it_runs_nothing<S: Sender<Value: Send, Error: Send>>(
    make: impl Fn(Source<Shared>, Function<Shared>) -> S,
) {
    let run_loop = for_good(RunLoop::new());
    for connected in [false, true] {
        let tally = Shared::default();
        let sender = make(now(&tally, Value, run_loop), Function::new(&tally, run_loop));
        assert_ne!(tally.alive(), 0, "the row drops its input");
        let mut slot = WaitSlot::new();
        if connected {
            drop(prepare(sender, &mut slot));
        } else {
            drop(sender);
        }
        assert_eq!(tally.starts.load(SeqCst), 0);
        assert_eq!(tally.calls.load(SeqCst), 0);
        assert_eq!(tally.alive(), 0);
    }
}

/// The number in the name of a test of allocations.
macro_rules! times {
    (allocates_nothing) => {
        0
    };
    (allocates_once) => {
        1
    };
    (allocates_twice) => {
        2
    };
}

/// From the making of the sender to its end there are as many allocations as the row says where it has a value, and no
/// more where it has none.
fn allocates<I, S>(
    times: usize,
    input: fn(&Shared, Channel, &'static RunLoop) -> I,
    make: impl Fn(I, Function<Shared>) -> S,
) where
    S: Sender<Value: Tokens, Error: Tokens>,
{
    let run_loop = for_good(RunLoop::new());
    // The first round allocates what is made once for the thread or the process.
    for round in 0..2 {
        for from in [Value, Error, Stopped] {
            let tally = Shared::default();
            let (_, allocated) = allocations(|| {
                let sender = make(input(&tally, from, run_loop), Function::new(&tally, run_loop));
                drop(run_loop.run_until(sender));
            });
            let right = if from == Value {
                allocated == times
            } else {
                allocated <= times
            };
            assert!(round == 0 || right, "{allocated} allocations after {from:?}");
        }
    }
}

/// A million rounds, which end as value, error and stop in turn, take no more stack than one.
fn a_million_rounds_take_constant_stack<I, S>(
    input: fn(&Shared, Option<Channel>, &'static RunLoop) -> I,
    make: impl Fn(I, Function<Shared>) -> S + Clone + Send,
) where
    S: Sender<Value: Send, Error: Send> + Send,
{
    let run_loop = for_good(RunLoop::new());
    let tally = Shared::default();
    let counts = &tally;
    with_stack(SMALL_STACK, move || {
        let round = just(())
            .let_value(move |()| make(input(counts, None, run_loop), Function::new(counts, run_loop)).into_outcome());
        assert!(run_loop.run_until(round.repeat_until(million())).is_value());
    });
    assert_eq!(tally.starts.load(SeqCst), ROUNDS);
    assert_eq!(tally.alive(), 0);
}

/// What the type promises about where it completes is what the row says, for an input that completes inline and for one
/// that completes anywhere.
fn promises<A: Sender, B: Sender>(
    now: impl Fn(Source<Shared>, Function<Shared>) -> A,
    later: impl Fn(Later<Shared>, Function<Shared>) -> B,
) -> (Completes, Completes) {
    let _ = (now, later);
    (A::COMPLETES, B::COMPLETES)
}

macro_rules! adaptors {
    ($(
        $name:ident ($($extra:ident)*): |$input:ident, $f:ident| $make:expr;
        $value:ident $value_calls:literal, $error:ident $error_calls:literal,
        $stopped:ident $stopped_calls:literal, $panicked:ident $panicked_calls:literal;
        $allocates:ident; $inline:ident $anywhere:ident
    )*) => {$(
        mod $name {
            use super::*;

            const EXPECTED: Expected = [
                (Value, $value, $value_calls),
                (Error, $error, $error_calls),
                (Stopped, $stopped, $stopped_calls),
                (Panicked, $panicked, $panicked_calls),
            ];

            #[test]
            fn every_channel_of_the_input() {
                every_channel(EXPECTED, super::now, |$input, $f| $make);
                every_channel(EXPECTED, super::later, |$input, $f| $make);
            }

            #[test]
            fn drops_the_rest_before_it_completes() {
                super::drops_the_rest_before_it_completes(EXPECTED, |$input, $f| $make);
            }

            #[test]
            fn $allocates() {
                super::allocates(times!($allocates), super::now, |$input, $f| $make);
                super::allocates(times!($allocates), super::later, |$input, $f| $make);
            }

            #[test]
            fn a_million_rounds_take_constant_stack() {
                super::a_million_rounds_take_constant_stack(super::now, |$input, $f| $make);
            }

            #[test]
            fn a_million_rounds_on_a_run_loop_take_constant_stack() {
                super::a_million_rounds_take_constant_stack(super::later, |$input, $f| $make);
            }

            #[test]
            fn promises_where_it_completes() {
                let promised = promises(|$input, $f| $make, |$input, $f| $make);
                assert_eq!(promised, (Completes::$inline, Completes::$anywhere));
            }

            $(extra!($extra |$input, $f| $make);)*
        }
    )*};
}

/// The tests of a row that not every algorithm has.
macro_rules! extra {
    // It takes a function, or calls one.
    (calls |$input:ident, $f:ident| $make:expr) => {
        #[test]
        fn a_panic_of_its_function_arrives() {
            super::a_panic_of_its_function_arrives(EXPECTED, |$input, $f| $make);
        }
    };
    // Its input may borrow. What `tests/ui` shows to be refused does not say so.
    (borrows |$input:ident, $f:ident| $make:expr) => {
        #[test]
        fn borrows_from_the_caller() {
            let tally = Tally::default();
            super::borrows_from_the_caller(&tally, EXPECTED, |$input, $f| $make);
        }
    };
    // It is `Clone` where its input and its function are, and a clone runs by itself.
    (clones |$input:ident, $f:ident| $make:expr) => {
        #[test]
        fn a_clone_does_the_same() {
            super::a_clone_does_the_same(EXPECTED, |$input, $f| $make);
        }
    };
    // It starts its input when it is started itself, and not before.
    (lazy |$input:ident, $f:ident| $make:expr) => {
        #[test]
        fn dropped_unstarted_it_runs_nothing() {
            super::dropped_unstarted_it_runs_nothing(|$input, $f| $make);
        }
    };
}

// A row: the algorithm; how it completes, and how often it has called its function, after an input that completes with a
// value, an error, a stop and a panic; its allocations; where it promises to complete, after an input that completes
// inline and one that completes anywhere.
adaptors! {
    then (calls borrows clones lazy): |input, f| input.then(move |value| f.call(value));
        Value 1, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    try_then (calls borrows clones lazy): |input, f| input.try_then(move |value| Ok(f.call(value)));
        Value 1, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    try_then_that_fails (calls borrows clones lazy): |input, f| input.try_then(move |value| Err::<(), _>(f.call(value)));
        Error 1, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    map_err (calls borrows clones lazy): |input, f| input.map_err(move |error| f.call(error));
        Value 0, Error 1, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    err_into (calls borrows clones lazy): |input, _f| input.err_into::<Converted<_>>();
        Value 0, Error 1, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    infallible_into (borrows clones lazy): |input, _f| input.upon_error(|error| error).infallible_into::<()>();
        Value 0, Value 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    upon_error (calls borrows clones lazy): |input, f| input.upon_error(move |error| f.call(error));
        Value 0, Value 1, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    upon_stopped (calls borrows clones lazy): |input, f| input.upon_stopped(move || f.call(f.token()));
        Value 0, Error 0, Value 1, Panicked 0; allocates_nothing; Inline Anywhere
    into_option (borrows clones lazy): |input, _f| input.into_option();
        Value 0, Value 0, Value 0, Panicked 0; allocates_nothing; Inline Anywhere
    into_outcome (borrows clones lazy): |input, _f| input.into_outcome();
        Value 0, Value 0, Value 0, Panicked 0; allocates_nothing; Inline Anywhere
    stopped_as_option (borrows clones lazy): |input, _f| input.stopped_as_option();
        Value 0, Error 0, Value 0, Panicked 0; allocates_nothing; Inline Anywhere
    stopped_as_error (borrows clones lazy): |input, f| input.map_err(Copied).stopped_as_error(Copied(f.token()));
        Value 0, Error 0, Error 0, Panicked 0; allocates_nothing; Inline Anywhere

    let_value (calls borrows clones lazy): |input, f| input.let_value(move |value| just(f.call(value)).infallible_into());
        Value 1, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    second_of_let_value (borrows clones lazy): |input, f| {
        just(()).infallible_into().let_value(move |()| f.call(input))
    };
        Value 1, Error 1, Stopped 1, Panicked 1; allocates_nothing; Inline Anywhere
    let_error (calls borrows clones lazy): |input, f| input.let_error(move |error| just_error::<_, ()>(()).upon_error(move |()| f.call(error)));
        Value 0, Value 1, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    second_of_let_error (borrows clones lazy): |input, f| just_error(()).let_error(move |()| f.call(input));
        Value 1, Error 1, Stopped 1, Panicked 1; allocates_nothing; Inline Anywhere
    let_stopped (calls borrows clones lazy): |input, f| {
        input.let_stopped(move || just(f.call(f.token())).infallible_into())
    };
        Value 0, Error 0, Value 1, Panicked 0; allocates_nothing; Inline Anywhere
    second_of_let_stopped (borrows clones lazy): |input, f| just_stopped().let_stopped(move || f.call(input));
        Value 1, Error 1, Stopped 1, Panicked 1; allocates_nothing; Inline Anywhere
    first_of_sequence (borrows clones lazy): |input, f| input.sequence(just(f).infallible_into().then(|f| f.token()));
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    second_of_sequence (borrows clones lazy): |input, f| just(f).infallible_into().sequence(input);
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    finally (calls borrows clones lazy): |input, f| input.finally(just_from(move || f.call(())));
        Value 1, Error 1, Stopped 1, Panicked 1; allocates_nothing; Inline Anywhere

    repeat_until (calls borrows clones lazy): |input, f| input.repeat_until(move |_| f.call(true));
        Value 1, Error 0, Stopped 0, Panicked 0; allocates_nothing; OnStartScheduler Anywhere
    repeat_n (borrows clones lazy): |input, _f| input.repeat_n(1);
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; OnStartScheduler Anywhere
    retry (borrows clones lazy): |input, _f| input.upon_error(|error| error).retry();
        Value 0, Value 0, Stopped 0, Panicked 0; allocates_nothing; OnStartScheduler Anywhere
    retry_if (calls borrows clones lazy): |input, f| input.retry_if(move |_| f.call(false));
        Value 0, Error 1, Stopped 0, Panicked 0; allocates_nothing; OnStartScheduler Anywhere
    retry_with (borrows clones lazy): |input, _f| input.retry_with(RetryPolicy::new().attempts(1));
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Anywhere Anywhere
    retry_with_if (calls borrows clones lazy): |input, f| input.retry_with_if(RetryPolicy::new(), move |_| f.call(false));
        Value 0, Error 1, Stopped 0, Panicked 0; allocates_nothing; Anywhere Anywhere

    when_all (borrows clones lazy): |input, f| when_all((input, just(f).infallible_into().then(|f| f.token())));
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    when_all_of_an_array (borrows clones lazy): |input, _f| when_all([input]);
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    when_all_iter (borrows clones lazy): |input, _f| when_all_iter([input]);
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_twice; Inline Anywhere
    when_any (borrows clones lazy): |input, _f| when_any((input, just_stopped()));
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    when_any_of_an_array (borrows clones lazy): |input, _f| when_any([input]);
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    when_any_iter (borrows clones lazy): |input, _f| when_any_iter([input]);
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_once; Inline Anywhere
    stop_when (borrows clones lazy): |input, _f| input.stop_when(never::<(), ()>());
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Anywhere Anywhere
    trigger_of_stop_when (borrows clones lazy): |input, _f| never::<(), ()>().stop_when(input);
        Stopped 0, Stopped 0, Stopped 0, Panicked 0; allocates_nothing; Anywhere Anywhere
    timeout (borrows clones lazy): |input, _f| input.timeout(HOUR);
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Anywhere Anywhere

    unstoppable (borrows clones lazy): |input, _f| input.unstoppable();
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    write_env (borrows clones lazy): |input, _f| input.write_env(With(7));
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    starts_on (borrows clones lazy): |input, f| input.starts_on(f.scheduler());
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Anywhere Anywhere
    continues_on (borrows clones lazy): |input, f| input.continues_on(f.scheduler());
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Anywhere Anywhere
    on (borrows clones lazy): |input, f| input.on(f.scheduler());
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; OnStartScheduler OnStartScheduler
    starts_on_inline (borrows clones lazy): |input, _f| input.starts_on(InlineScheduler);
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    continues_on_inline (borrows clones lazy): |input, _f| input.continues_on(InlineScheduler);
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline Anywhere
    on_inline (borrows clones lazy): |input, _f| input.on(InlineScheduler).write_env(WithScheduler(InlineScheduler));
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Anywhere Anywhere
    affine (borrows clones lazy): |input, _f| input.affine();
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_nothing; Inline OnStartScheduler
    bulk (calls borrows clones lazy): |input, f| input.bulk(2, move |_, _| f.call(()));
        Value 2, Error 0, Stopped 0, Panicked 0; allocates_nothing; OnStartScheduler Anywhere
    bulk_unchunked (calls borrows clones lazy): |input, f| input.bulk_unchunked(2, move |_, _| f.call(()));
        Value 2, Error 0, Stopped 0, Panicked 0; allocates_nothing; OnStartScheduler Anywhere
    bulk_chunked (calls borrows clones lazy): |input, f| input.bulk_chunked(2, move |_, _| f.call(()));
        Value 1, Error 0, Stopped 0, Panicked 0; allocates_nothing; OnStartScheduler Anywhere

    boxed (borrows lazy): |input, _f| input.boxed();
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_once; Anywhere Anywhere
    split (lazy): |input, _f| input.then(Copied).map_err(Copied).split();
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_once; Anywhere Anywhere
    ensure_started (): |input, _f| input.ensure_started();
        Value 0, Error 0, Stopped 0, Panicked 0; allocates_once; Anywhere Anywhere
}

/// A factory completes as its row says, keeps nothing, and calls its function as often as the row says.
fn a_factory_completes<S>(
    (channel, calls): (Channel, usize),
    panics: bool,
    make: impl FnOnce(Token<Shared>, Function<Shared>) -> S,
) where
    S: Sender<Value: Tokens, Error: Tokens>,
{
    let run_loop = for_good(RunLoop::new());
    let tally = Shared::default();
    tally.panics.store(panics, SeqCst);
    let sender = make(Token::new(&tally), Function::new(&tally, run_loop));
    let (ended, arrived, alive, text) = run(run_loop, &tally, sender);
    let expected = if panics {
        (Panicked, Some(FUNCTION))
    } else {
        (channel, None)
    };
    assert_eq!((ended, text.as_deref()), expected);
    assert_eq!(tally.calls.load(SeqCst), calls);
    assert_eq!(alive, arrived, "tokens that are left");
    assert_eq!(tally.alive(), 0);
}

/// What the factory and its function hold is borrowed from the caller.
fn a_factory_borrows<'a, S>(
    tally: &'a Tally,
    channel: Channel,
    make: impl FnOnce(Token<&'a Tally>, Function<&'a Tally>) -> S,
) where
    S: Sender<Value: Tokens, Error: Tokens>,
{
    let run_loop = for_good(RunLoop::new());
    let sender = make(Token::new(&tally), Function::new(&tally, run_loop));
    let (ended, arrived, alive, _) = run(run_loop, tally, sender);
    assert_eq!((ended, alive), (channel, arrived));
    assert_eq!(tally.alive(), 0);
}

fn a_factory_dropped_unstarted_runs_nothing<S>(make: impl Fn(Token<Shared>, Function<Shared>) -> S)
where
    S: Sender<Value: Send, Error: Send>,
{
    let run_loop = for_good(RunLoop::new());
    for connected in [false, true] {
        let tally = Shared::default();
        let sender = make(Token::new(&tally), Function::new(&tally, run_loop));
        let mut slot = WaitSlot::new();
        if connected {
            drop(prepare(sender, &mut slot));
        } else {
            drop(sender);
        }
        assert_eq!((tally.calls.load(SeqCst), tally.alive()), (0, 0));
    }
}

fn a_factory_allocates<S>(times: usize, make: impl Fn(Token<Shared>, Function<Shared>) -> S)
where
    S: Sender<Value: Send, Error: Send>,
{
    let run_loop = for_good(RunLoop::new());
    let tally = Shared::default();
    // The first round allocates what is made once for the thread or the process.
    for round in 0..2 {
        let (_, allocated) = allocations(|| {
            let sender = make(Token::new(&tally), Function::new(&tally, run_loop));
            drop(run_loop.run_until(sender));
        });
        assert!(round == 0 || allocated == times, "{allocated} allocations");
    }
}

fn a_million_rounds_of_a_factory_take_constant_stack<S>(
    make: impl Fn(Token<Shared>, Function<Shared>) -> S + Clone + Send,
) where
    S: Sender<Value: Send, Error: Send> + Send,
{
    let run_loop = for_good(RunLoop::new());
    let tally = Shared::default();
    let counts = &tally;
    with_stack(SMALL_STACK, move || {
        let round =
            just(()).let_value(move |()| make(Token::new(counts), Function::new(counts, run_loop)).into_outcome());
        assert!(run_loop.run_until(round.repeat_until(million())).is_value());
    });
    assert_eq!(tally.alive(), 0);
}

fn a_factory_promises<S: Sender>(_: impl Fn(Token<Shared>, Function<Shared>) -> S) -> Completes {
    S::COMPLETES
}

macro_rules! factories {
    ($(
        $name:ident ($($extra:ident)*): |$token:ident, $f:ident| $make:expr;
        $channel:ident $calls:literal; $allocates:ident; $completes:ident
    )*) => {$(
        mod $name {
            use super::*;

            const EXPECTED: (Channel, usize) = (Channel::$channel, $calls);

            #[test]
            fn completes_as_the_table_says() {
                a_factory_completes(EXPECTED, false, |$token, $f| $make);
            }

            #[test]
            fn borrows_from_the_caller() {
                let tally = Tally::default();
                a_factory_borrows(&tally, EXPECTED.0, |$token, $f| $make);
            }

            #[test]
            fn dropped_unstarted_it_runs_nothing() {
                a_factory_dropped_unstarted_runs_nothing(|$token, $f| $make);
            }

            #[test]
            fn $allocates() {
                a_factory_allocates(times!($allocates), |$token, $f| $make);
            }

            #[test]
            fn a_million_rounds_take_constant_stack() {
                a_million_rounds_of_a_factory_take_constant_stack(|$token, $f| $make);
            }

            #[test]
            fn promises_where_it_completes() {
                assert_eq!(a_factory_promises(|$token, $f| $make), Completes::$completes);
            }

            $(factory_extra!($extra |$token, $f| $make);)*
        }
    )*};
}

macro_rules! factory_extra {
    (calls |$token:ident, $f:ident| $make:expr) => {
        #[test]
        fn a_panic_of_its_function_arrives() {
            a_factory_completes(EXPECTED, true, |$token, $f| $make);
        }
    };
}

// A row: the factory; how it completes, and how often it has called its function; its allocations; where it promises to
// complete.
factories! {
    just (): |token, _f| just(token); Value 0; allocates_nothing; Inline
    just_error (): |token, _f| just_error::<(), _>(token); Error 0; allocates_nothing; Inline
    just_stopped (): |_token, _f| just_stopped::<(), ()>(); Stopped 0; allocates_nothing; Inline
    just_from (calls): |token, f| just_from(move || f.call(token)); Value 1; allocates_nothing; Inline
    read_env (calls): |_token, f| read_env(f); Value 1; allocates_nothing; Inline
    from_future (calls): |token, f| from_future(async move { f.call(token) }); Value 1; allocates_nothing; OnStartScheduler
}
