//! Variance and auto traits of the public handles, checked at compile time: they decide what safe code may do with a handle.
//!
//! A type that only returns `T` is covariant. One that also accepts `T`, or chooses an implementation by `T`, is invariant;
//! `tests/ui/variance_*.rs` shows the error. Schedulers and environments are tested elsewhere.

use bowline::adaptors::{BoxedSender, EnsureStarted, Split};
use bowline::factories::{Just, Never};
use bowline::scheduler::ThreadPool;
use bowline::scope::{Associated, CountingScope, Join, ScopeToken, SimpleCountingScope, SpawnFuture, WithStop};
use bowline::stop::{
    ErasedStopToken, InplaceStopSource, InplaceStopToken, NeverStop, SharedStopToken, StopCallback, StopSlot,
    StopSource,
};
use bowline::task::{
    AsyncLet, ChildHandle, Continuation, Gather, GroupFuture, Handle, LocalTask, LocalTaskFuture, Next, NextEnded,
    NextUntil, Quorum, Ready, Scope, SenderFuture, Shield, Sleep, SpawnError, SpawnOptions, SpawnWhenReady,
    SpawnWhenReadyWith, Task, TaskBuilder, TaskFuture, TaskGroup, TaskLocalFuture, TaskRef, TaskToken, TaskTree,
    TryNext, TrySpawnWhenReady, TrySpawnWhenReadyWith, ValueFuture, WaitForAll, WithCancellationHandler, WithDeadline,
    WithEscalationHandler, YieldNow,
};
use bowline::{Completion, Job, Outcome, Panic, Prepared, Transfer, WaitSlot};
use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

/// A subtype of [`Narrow`], without a lifetime that a bound could require to be `'static`.
type Wide = for<'a> fn(&'a str);
type Narrow = fn(&'static str);

/// Coerces along the subtyping of the parameter: compiles if the type is covariant.
macro_rules! covariant {
    ($($name:ident: $wide:ty => $narrow:ty;)+) => {
        $(
            #[allow(dead_code, reason = "that it compiles is the test")]
            fn $name(wide: $wide) -> $narrow {
                wide
            }
        )+
    };
}

covariant! {
    task_value: Task<Wide> => Task<Narrow>;
    task_error: Task<(), Wide> => Task<(), Narrow>;
    task_future: TaskFuture<Wide, Infallible> => TaskFuture<Narrow, Infallible>;
    local_task: LocalTask<Wide> => LocalTask<Narrow>;
    next: Next<'static, Wide> => Next<'static, Narrow>;
    next_ended: NextEnded<'static, Wide> => NextEnded<'static, Narrow>;
    try_next: TryNext<'static, Wide, Wide> => TryNext<'static, Narrow, Narrow>;
    spawn_error: SpawnError<Wide> => SpawnError<Narrow>;
    never: Never<Wide, Wide> => Never<Narrow, Narrow>;
    just: Just<Wide> => Just<Narrow>;
    completion: Completion<Wide, Wide> => Completion<Narrow, Narrow>;
    outcome: Outcome<Wide, Wide> => Outcome<Narrow, Narrow>;
}

#[allow(dead_code, reason = "that it compiles is the test")]
fn a_borrow_is_shortened<'short, 'long: 'short>(
    token: InplaceStopToken<'long>,
    boxed: BoxedSender<'long, (), ()>,
) -> (InplaceStopToken<'short>, BoxedSender<'short, (), ()>) {
    (token, boxed)
}

/// Asserts that each type implements each of the traits.
macro_rules! is {
    ($($type:ty: $($marker:ident)+;)+) => {
        $($(
            const _: () = {
                const fn asks<T: ?Sized + $marker>() {}
                asks::<$type>();
            };
        )+)+
    };
}

/// Asserts that each type implements none of the traits: otherwise the call below would be ambiguous.
macro_rules! is_not {
    ($($type:ty: $($marker:ident)+;)+) => {
        $($(
            const _: () = {
                trait Candidate<A> {
                    const CHOSEN: () = ();
                }
                impl<T: ?Sized> Candidate<()> for T {}
                #[allow(dead_code, reason = "it tells the second candidate from the first")]
                struct Second;
                impl<T: ?Sized + $marker> Candidate<Second> for T {}
                <$type as Candidate<_>>::CHOSEN
            };
        )+)+
    };
}

/// `Send`, and not `Sync`.
type Movable = Cell<u8>;
/// Neither `Send` nor `Sync`.
type Fixed = Rc<u8>;
/// A sender that is `Send`, as is its value.
type Sent = Just<u8>;

// Stop sources and tokens are shared by all threads.
is! {
    StopSource: Send Sync Unpin;
    SharedStopToken: Send Sync Unpin;
    InplaceStopSource: Send Sync Unpin;
    InplaceStopToken<'static>: Send Sync Unpin;
    ErasedStopToken: Send Sync Unpin;
    NeverStop: Send Sync Unpin;
    TaskToken: Send Sync Unpin;
    StopCallback<SharedStopToken, Box<dyn FnOnce() + Send>>: Send Sync;
    StopSlot<NeverStop>: Send Sync;
}

// A slot is linked by its address, and used by the thread that owns the operation.
is_not! {
    StopSlot<SharedStopToken>: Send Sync Unpin;
    StopSlot<InplaceStopToken<'static>>: Send Sync Unpin;
    StopSlot<NeverStop>: Unpin;
    StopCallback<SharedStopToken, fn()>: Unpin;
    Job: Unpin;
    Transfer: Sync;
}

// Types that contain results are as `Send` as these.
is! {
    Task<Movable, Movable>: Send Unpin;
    TaskFuture<Movable, Movable>: Send Unpin;
    TaskBuilder: Send Sync Unpin;
    TaskGroup<Movable>: Send Sync Unpin;
    Next<'static, Movable>: Send Unpin;
    NextEnded<'static, Movable>: Send Unpin;
    TryNext<'static, Movable, Movable>: Send Unpin;
    NextUntil<'static, Movable>: Send;
    WaitForAll: Send Unpin;
    Ready: Send Unpin;
    SpawnWhenReady<Movable>: Send Unpin;
    TrySpawnWhenReady<Movable>: Send Unpin;
    SpawnWhenReadyWith<Movable, u8, ChildHandle>: Send Unpin;
    TrySpawnWhenReadyWith<Movable, u8, ChildHandle>: Send Unpin;
    SpawnOptions<u8, ChildHandle>: Send Unpin;
    ChildHandle: Send Sync Unpin;
    SpawnError<Movable>: Send Unpin;
    GroupFuture<Movable, Movable, Movable, Movable, ()>: Send;
    Gather<Quorum<u8, u8>, Vec<Movable>, Movable>: Send;
    Handle<Movable>: Send Sync Unpin;
    AsyncLet<Movable>: Send Unpin;
    Continuation<Movable, Movable>: Send Unpin;
    BoxedSender<'static, Movable, Movable>: Send;
    Split<Sent>: Send Sync Unpin;
    EnsureStarted<Sent>: Send Unpin;
    SpawnFuture<Sent, WithStop>: Send Unpin;
    Associated<Sent, WithStop>: Send Sync Unpin;
    SenderFuture<Sent>: Send Unpin;
    ValueFuture<Sent>: Send Unpin;
    Shield<Movable>: Send;
    WithDeadline<std::future::Ready<Movable>>: Send;
    WithCancellationHandler<fn(), std::future::Ready<Movable>>: Send;
    WithEscalationHandler<fn(), Movable>: Send;
    TaskLocalFuture<Movable>: Send;
    Sleep: Send;
    YieldNow: Send;
    TaskRef: Send Sync Unpin;
    TaskTree: Send Sync Unpin;
    Panic: Send Sync Unpin;
    WaitSlot<Movable, Movable>: Send Sync;
    Prepared<'static, Sent>: Send;
    Prepared<'static, Task<Movable>>: Send;
    Completion<Movable, Movable>: Send;
    Outcome<Movable, Movable>: Send;
}

is_not! {
    Task<Fixed>: Send Sync;
    Task<(), Fixed>: Send;
    Task<u8>: Sync;
    GroupFuture<Fixed, u8, u8, u8, ()>: Send Unpin;
    GroupFuture<u8, Fixed, u8, u8, ()>: Send;
    GroupFuture<u8, u8, u8, Fixed, ()>: Send;
    Gather<Fixed, Vec<u8>, u8>: Send Unpin;
    Gather<Quorum<u8, u8>, Fixed, u8>: Send;
    SpawnWhenReady<Fixed>: Send;
    TrySpawnWhenReady<Fixed>: Send;
    SpawnWhenReadyWith<Fixed, u8>: Send;
    TrySpawnWhenReadyWith<Fixed, u8>: Send;
    SpawnWhenReadyWith<u8, Fixed>: Send;
    NextUntil<'static, u8>: Unpin;
    SpawnError<Fixed>: Send;
    Continuation<Fixed>: Send Sync;
    Continuation<u8, Fixed>: Send;
    BoxedSender<'static, u8, u8>: Sync;
    Split<Fixed>: Send Sync;
    EnsureStarted<Fixed>: Send Sync;
    ValueFuture<Fixed, ()>: Send;
    Shield<Fixed>: Send;
    WithDeadline<std::future::Ready<Fixed>>: Send;
    WithCancellationHandler<fn(), std::future::Ready<Fixed>>: Send;
    WithEscalationHandler<fn(), Fixed>: Send;
    TaskLocalFuture<Fixed>: Send;
    WaitSlot<Fixed, u8>: Send Sync;
    WaitSlot<u8, Fixed>: Send Sync;
}

// A local task stays on its thread, also when connected or awaited.
is_not! {
    LocalTask<u8>: Send Sync;
    LocalTaskFuture<u8, Infallible>: Send Sync;
    Prepared<'static, LocalTask<u8>>: Send Sync;
}

// Scopes and their associations are used by all threads.
is! {
    CountingScope: Send Sync Unpin;
    SimpleCountingScope: Send Sync Unpin;
    ScopeToken<WithStop>: Send Sync Unpin;
    Join<WithStop>: Send Sync Unpin;
    Scope<'static>: Send Sync;
    ThreadPool: Send Sync Unpin;
}

#[test]
fn what_is_pinned_here_was_compiled() {
    // The assertions are constants and coercing functions, checked when this file is compiled.
    let shortened: fn(Task<Wide>) -> Task<Narrow> = task_value;
    drop(shortened(Task::new(async { (|_: &str| ()) as Wide })));
}
