//! Algorithms that adapt or combine senders.
//!
//! Each algorithm has a file. The shapes that several share have files of their own: `map` turns one completion into
//! another, `chain` runs one sender after another, and `rounds` repeats one. `fan` runs several at once, as a `tuple`
//! or as `many` of one type.

mod adapted;
mod affine;
#[cfg(feature = "alloc")]
mod boxed;
mod bulk;
mod chain;
mod conclude;
mod continues_on;
#[cfg(feature = "alloc")]
mod ensure_started;
mod err_into;
pub(crate) mod fan;
mod finally;
mod gather;
mod handled;
mod infallible_into;
mod into_option;
mod into_outcome;
mod let_error;
mod let_stopped;
mod let_value;
mod many;
pub(crate) mod map;
mod map_err;
mod on;
mod race;
mod repeat_n;
mod repeat_until;
mod retry;
#[cfg(feature = "std")]
mod retry_policy;
#[cfg(feature = "std")]
mod retry_with;
mod rounds;
mod same;
mod sequence;
#[cfg(feature = "alloc")]
mod shared;
#[cfg(feature = "alloc")]
mod split;
mod starts_on;
mod stop_when;
mod stopped_as_error;
mod stopped_as_option;
mod then;
#[cfg(feature = "std")]
mod timeout;
mod try_then;
mod tuple;
mod unstoppable;
mod upon_error;
mod upon_stopped;
mod verdict;
#[cfg(feature = "alloc")]
pub(crate) mod waiters;
mod when_all;
#[cfg(feature = "alloc")]
mod when_all_iter;
mod when_any;
mod with_stop_token;
mod write_env;

pub use affine::Affine;
#[cfg(feature = "alloc")]
pub use boxed::BoxedSender;
pub use bulk::{Bulk, BulkChunked};
pub use continues_on::ContinuesOn;
#[cfg(feature = "alloc")]
pub use ensure_started::EnsureStarted;
pub use err_into::ErrInto;
pub use finally::Finally;
pub use handled::Handled;
pub use infallible_into::InfallibleInto;
pub use into_option::IntoOption;
pub use into_outcome::IntoOutcome;
pub use let_error::LetError;
pub use let_stopped::LetStopped;
pub use let_value::LetValue;
pub use map_err::MapErr;
pub use on::On;
pub use repeat_n::RepeatN;
pub use repeat_until::RepeatUntil;
pub use retry::{Retry, RetryIf};
#[cfg(feature = "std")]
pub use retry_policy::{Delays, RetryPolicy};
#[cfg(feature = "std")]
pub use retry_with::{RetryWith, RetryWithIf};
pub use same::{ErrorIs, SameError, SameValue, ValueIs};
pub use sequence::Sequence;
#[cfg(feature = "alloc")]
pub use split::Split;
pub use starts_on::{StartsOn, starts_on};
pub use stop_when::StopWhen;
pub use stopped_as_error::StoppedAsError;
pub use stopped_as_option::StoppedAsOption;
pub use then::Then;
#[cfg(feature = "std")]
pub use timeout::{Timeout, TimeoutError};
pub use try_then::TryThen;
pub use unstoppable::Unstoppable;
pub use upon_error::UponError;
pub use upon_stopped::UponStopped;
pub use when_all::{WhenAll, when_all};
#[cfg(feature = "alloc")]
pub use when_all_iter::{WhenAllIter, when_all_iter};
pub use when_any::{WhenAny, when_any};
#[cfg(feature = "alloc")]
pub use when_any::{WhenAnyIter, when_any_iter};
pub use with_stop_token::AlsoStops;
pub use write_env::WriteEnv;
