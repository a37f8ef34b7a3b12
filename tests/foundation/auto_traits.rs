//! Which types may be sent, shared and moved, and which of them may stand for one with a shorter lifetime.
//!
//! All of it is checked by the compiler: the tests have nothing left to do when they run.

use bowline::prelude::*;
use bowline::scheduler::{
    InlineSchedule, InlineScheduler, OrInline, PoolSchedule, PoolScheduler, RunLoopSchedule, RunLoopScheduler,
    TaskSchedule, TaskScheduler, TimerScheduler,
};
use bowline::sender::{EnvDoor, Native};
use bowline::stop::{InplaceStopToken, NeverStop};
use bowline::task::{TaskEnv, TaskToken};
use bowline::{EmptyEnv, Identity, NoScheduler, Patched};
use std::cell::Cell;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// The types implement all of the traits.
macro_rules! is {
    ($($bound:path),+: $($type:ty),+ $(,)?) => {
        const _: fn() = || {
            fn all<T: ?Sized $(+ $bound)+>() {}
            $(all::<$type>();)+
        };
    };
}

/// The types do not implement the trait: if one did, there would be two functions of the name to choose from.
macro_rules! is_not {
    ($bound:path: $($type:ty),+ $(,)?) => {
        const _: fn() = || {
            trait Either<Which> {
                fn either() {}
            }
            struct Implemented;
            impl<T: ?Sized> Either<()> for T {}
            impl<T: ?Sized + $bound> Either<Implemented> for T {}
            $(let _ = <$type as Either<_>>::either;)+
        };
    };
}

/// A type with a longer lifetime may stand for the same with a shorter one. It is written as a function of the lifetime.
macro_rules! is_covariant {
    ($($lifetime:lifetime => $type:ty),+ $(,)?) => {
        $(
            const _: () = {
                type Of<$lifetime> = $type;
                #[allow(dead_code, reason = "it compiles, and that is the test")]
                fn shorter<'short, 'long: 'short>(long: Of<'long>) -> Of<'short> {
                    long
                }
            };
        )+
    };
}

/// A scheduler's handles go anywhere.
#[test]
fn schedulers_and_their_senders_may_be_sent_and_shared() {
    is!(Send, Sync, Unpin, Clone:
        InlineScheduler, NoScheduler, PoolScheduler, RunLoopScheduler<'static>, TaskScheduler<'static>, TimerScheduler,
        OrInline<TaskScheduler<'static>>,
        InlineSchedule, PoolSchedule, RunLoopSchedule<'static>, TaskSchedule<'static>,
    );
    is!(Copy: InlineScheduler, PoolScheduler, RunLoopScheduler<'static>, PoolSchedule, RunLoopSchedule<'static>);
    is_not!(Copy: TaskScheduler<'static>, TaskSchedule<'static>, TimerScheduler);
}

/// What is erased is neither taken out nor put in, so nothing is lost with the longer lifetime.
#[test]
fn schedulers_are_covariant() {
    is_covariant!(
        'a => TaskScheduler<'a>,
        'a => TaskSchedule<'a>,
        'a => RunLoopScheduler<'a>,
        'a => RunLoopSchedule<'a>,
    );
}

/// An erased scheduler may hide what cannot be seen after a panic.
#[test]
fn an_erased_scheduler_promises_nothing_about_unwinding() {
    is!(UnwindSafe, RefUnwindSafe: InlineScheduler, Identity);
    is_not!(RefUnwindSafe: TaskScheduler<'static>);
}

#[test]
fn environments_may_be_sent_and_shared() {
    type Token = InplaceStopToken<'static>;
    is!(Send, Sync, Unpin, Clone:
        EmptyEnv, TaskEnv, TaskToken, WithStopToken<Token>, WithScheduler<TaskScheduler<'static>>, With<u8>,
        Patched<With<u8>, TaskEnv>, Patched<WithStopToken<Token>, EmptyEnv>,
    );
    is!(Copy: EmptyEnv, TaskToken, WithStopToken<Token>, With<u8>, Patched<With<u8>, EmptyEnv>);
    is!(Copy: NeverStop);
    is_not!(Sync: With<Cell<u8>>, Patched<With<Cell<u8>>, EmptyEnv>);
    is_not!(Send: With<*const u8>, Patched<With<*const u8>, EmptyEnv>);
}

#[test]
fn patches_are_covariant() {
    is_covariant!(
        'a => With<&'a str>,
        'a => WithScheduler<TaskScheduler<'a>>,
        'a => WithStopToken<InplaceStopToken<'a>>,
        'a => Patched<WithStopToken<InplaceStopToken<'a>>, EmptyEnv>,
        'a => Patched<WithScheduler<TaskScheduler<'a>>, EmptyEnv>,
    );
}

/// What is behind a door is for the thread and the time of the call.
#[test]
fn doors_stay_where_they_were_asked_for() {
    is_not!(Send: EnvDoor<'static>, Native<'static>);
    is_not!(Sync: EnvDoor<'static>, Native<'static>);
    is_not!(Clone: EnvDoor<'static>, Native<'static>);
    is_covariant!('a => EnvDoor<'a>, 'a => Native<'a>);
}

#[test]
fn an_identity_is_plain_data() {
    is!(Send, Sync, Unpin, Copy, PartialEq: Identity);
    is_not!(Eq: Identity);
}
