#![doc = include_str!("../README.md")]
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod adaptors;
pub mod consumers;
pub mod factories;
pub mod scheduler;
pub mod sender;
pub mod stop;
mod sync;

/// The code of the book, compiled and run with the other examples of the documentation.
#[cfg(all(doctest, feature = "std"))]
mod book {
    #[doc = include_str!("../docs/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../docs/concepts.md")]
    struct Concepts;
    #[doc = include_str!("../docs/algorithms.md")]
    struct Algorithms;
    #[doc = include_str!("../docs/writing-your-own.md")]
    struct WritingYourOwn;
}

pub use adaptors::{on, sequence, starts_on, when_all, when_any};
#[cfg(feature = "alloc")]
pub use adaptors::{when_all_iter, when_any_iter};
#[cfg(feature = "std")]
pub use consumers::{Prepared, WaitSlot, prepare, sync_wait};
#[cfg(feature = "alloc")]
pub use consumers::{execute, start_detached, submit};
#[cfg(feature = "alloc")]
pub use factories::from_future;
pub use factories::{Get, Query, StopRequested, just, just_error, just_from, just_stopped, never, read_env};
pub use sender::{
    Completes, Completion, EmptyEnv, Env, Job, NoScheduler, Operation, Outcome, Panic, Patch, Patched, Receiver,
    Scheduler, Sender, Transfer, With, WithScheduler, WithStopToken,
};

/// What a program that uses senders wants in scope.
pub mod prelude {
    #[cfg(feature = "alloc")]
    pub use crate::adaptors::BoxedSender;
    pub use crate::stop::StopToken;
    pub use crate::{
        Env, Get, Outcome, Receiver, Scheduler, Sender, StopRequested, With, WithScheduler, WithStopToken, just,
        just_error, just_from, just_stopped, never, on, read_env, sequence, starts_on, when_all, when_any,
    };
    #[cfg(feature = "std")]
    pub use crate::{WaitSlot, prepare, sync_wait};
    #[cfg(feature = "alloc")]
    pub use crate::{execute, from_future, start_detached, submit, when_all_iter, when_any_iter};
}
