//! `Send`, `Sync` and `Unpin` of the types, and their variance in lifetimes.
//!
//! The compiler checks all of it: the tests do nothing at run time.

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

/// Asserts that the types implement all of the traits.
macro_rules! is {
    ($($bound:path),+: $($type:ty),+ $(,)?) => {
        const _: fn() = || {
            fn all<T: ?Sized $(+ $bound)+>() {}
            $(all::<$type>();)+
        };
    };
}

/// Asserts that the types do not implement the trait: otherwise the call below would be ambiguous.
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

/// Asserts that a type is covariant in a lifetime. The type is written as a function of the lifetime.
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

/// Handles of schedulers are `Send` and `Sync`.
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

/// A type-erased scheduler is neither taken out nor stored, so covariance is sound.
#[test]
fn schedulers_are_covariant() {
    is_covariant!(
        'a => TaskScheduler<'a>,
        'a => TaskSchedule<'a>,
        'a => RunLoopScheduler<'a>,
        'a => RunLoopSchedule<'a>,
    );
}

/// A type-erased scheduler may hide state that is not unwind-safe.
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

/// A door is valid only on its thread, during the call.
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
