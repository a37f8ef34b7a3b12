//! Whether, and why, the current task is cancelled.

use core::error::Error;
use core::fmt;

use super::frame::Polling;
use super::strand::context::Context;
use crate::stop::{StopToken, Why};
use crate::sync::OnceLock;

/// Whether the current task has been asked to stop. `false` outside of a task.
///
/// Cancellation is cooperative. It sets this flag, which is never cleared, runs the
/// [handlers](super::with_cancellation_handler), and is seen by every sender that the task awaits, also by one that is begun
/// afterwards. Code that takes long between two awaits asks here.
///
/// What is asked is the innermost scope that the code is in: in a [`shield`](super::shield) it is `false`, and under
/// [`with_deadline`](super::with_deadline) also `true` when that has passed. Any function may ask, `async` or not.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::stop::StopSource;
/// use bowline::task::{self, Task};
///
/// let source = StopSource::new();
/// let inside = source.clone();
/// let search = Task::new(async move {
///     let mut found = 0;
///     while !task::is_cancelled() {
///         found += 1;
///         if found == 3 {
///             inside.request_stop();
///         }
///     }
///     found
/// });
/// // It is not prevented from giving what it has.
/// let outcome = sync_wait(search.write_env(WithStopToken(source.token())));
/// assert_eq!(outcome.unwrap(), 3);
/// assert!(!task::is_cancelled());
/// ```
#[inline]
pub fn is_cancelled() -> bool {
    in_context(|context| context.token.stop_requested()).unwrap_or(false)
}

/// Fails where the current task has been asked to stop: [`is_cancelled`], for `?`.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::stop::StopSource;
/// use bowline::task::{self, Cancelled, Reason, Task};
///
/// fn chop(vegetables: usize) -> Result<usize, Cancelled> {
///     for _ in 0..vegetables {
///         task::check_cancellation()?;
///     }
///     Ok(vegetables)
/// }
///
/// assert_eq!(sync_wait(Task::try_new(async { chop(3) })).unwrap(), 3);
///
/// let source = StopSource::new();
/// source.request_stop();
/// let cancelled = Task::try_new(async { chop(3) }).write_env(WithStopToken(source.token()));
/// assert_eq!(sync_wait(cancelled).unwrap_error().reason(), Reason::Requested);
/// ```
///
/// # Errors
///
/// [`Cancelled`], with the reason.
#[inline]
pub fn check_cancellation() -> Result<(), Cancelled> {
    match cancellation_reason() {
        None => Ok(()),
        Some(reason) => Err(Cancelled { reason }),
    }
}

/// Why the current task has been asked to stop. None where it was not, and outside of a task.
///
/// Of several reasons it is the one that came first.
#[inline]
pub fn cancellation_reason() -> Option<Reason> {
    in_context(|context| context.token.why()).flatten().map(Reason::from)
}

/// Asks the context of the frame that this thread polls.
#[inline]
pub(super) fn in_context<T>(ask: impl FnOnce(&Context) -> T) -> Option<T> {
    Polling::with(|polling| polling.map(|polling| ask(polling.context())))
}

/// Why work was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Somebody asked for it, and did not say why: the stop of a source, or of a group, was requested.
    Requested,
    /// A [deadline](super::with_deadline) has passed.
    Deadline,
    /// Another child of the group has failed.
    SiblingFailed,
    /// Whoever would have got the result has gone: a scope was left, or what was awaited was dropped.
    ScopeLeft,
    /// As the program says.
    Custom(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Requested => "it was requested",
            Reason::Deadline => "the deadline has passed",
            Reason::SiblingFailed => "a sibling has failed",
            Reason::ScopeLeft => "the scope was left",
            Reason::Custom(text) => text,
        })
    }
}

/// The task has been asked to stop: the error of [`check_cancellation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cancelled {
    reason: Reason,
}

impl Cancelled {
    /// Why.
    pub const fn reason(&self) -> Reason {
        self.reason
    }
}

impl From<Reason> for Cancelled {
    fn from(reason: Reason) -> Self {
        Cancelled { reason }
    }
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cancelled: {}", self.reason)
    }
}

impl Error for Cancelled {}

/// What the numbers mean. From [`CUSTOM`](Why::CUSTOM) on they are texts of the program.
impl Why {
    pub(super) const REQUESTED: Why = Why(0);
    pub(super) const DEADLINE: Why = Why(1);
    pub(super) const SIBLING_FAILED: Why = Why(2);
    pub(super) const SCOPE_LEFT: Why = Why(3);
    const CUSTOM: u16 = 16;
    /// The numbers from here on are not used: their highest bit is a mark.
    const END: u16 = 1 << 15;
}

impl From<Why> for Reason {
    fn from(why: Why) -> Self {
        match why.passed() {
            Why::DEADLINE => Reason::Deadline,
            Why::SIBLING_FAILED => Reason::SiblingFailed,
            Why::SCOPE_LEFT => Reason::ScopeLeft,
            Why(number) => number
                .checked_sub(Why::CUSTOM)
                .and_then(|index| Text::all().nth(usize::from(index)))
                .map_or(Reason::Requested, |text| Reason::Custom(text.text)),
        }
    }
}

/// A text gets its number when it is first used, and keeps it for as long as the program runs. One that comes when there are
/// tens of thousands already is not told apart from no text at all.
impl From<Reason> for Why {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Requested => Why::REQUESTED,
            Reason::Deadline => Why::DEADLINE,
            Reason::SiblingFailed => Why::SIBLING_FAILED,
            Reason::ScopeLeft => Why::SCOPE_LEFT,
            Reason::Custom(text) => Text::number(text).map_or(Why::REQUESTED, Why),
        }
    }
}

/// A text that was given as a reason. There is one of each, and they are never gone.
struct Text {
    text: &'static str,
    next: OnceLock<Box<Text>>,
}

static TEXTS: OnceLock<Box<Text>> = OnceLock::new();

impl Text {
    fn all() -> impl Iterator<Item = &'static Text> {
        let mut next = &TEXTS;
        core::iter::from_fn(move || {
            let text = next.get()?;
            next = &text.next;
            Some(&**text)
        })
    }

    fn number(text: &'static str) -> Option<u16> {
        let mut next = &TEXTS;
        for number in Why::CUSTOM..Why::END {
            let at = next.get_or_init(|| {
                Box::new(Text {
                    text,
                    next: OnceLock::new(),
                })
            });
            if at.text == text {
                return Some(number);
            }
            next = &at.next;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_comes_back_as_it_was_given() {
        let texts = ["out of milk", "the guests have left", "out of milk "];
        let named = [
            Reason::Requested,
            Reason::Deadline,
            Reason::SiblingFailed,
            Reason::ScopeLeft,
        ];
        for reason in named.into_iter().chain(texts.map(Reason::Custom)) {
            assert_eq!(Reason::from(Why::from(reason)), reason);
            assert_eq!(Reason::from(Why::from(reason).here()), reason);
        }
    }

    #[test]
    fn equal_texts_share_a_number_wherever_they_are() {
        // The same text at another address.
        static TEXTS: &str = "cold soup, cold soup";
        let (first, second) = (&TEXTS[..9], &TEXTS[11..]);
        assert_eq!(Why::from(Reason::Custom(first)), Why::from(Reason::Custom(second)));
        assert_ne!(
            Why::from(Reason::Custom("cold soup")),
            Why::from(Reason::Custom("warm beer"))
        );
    }

    #[test]
    fn threads_that_name_a_text_at_once_agree() {
        let numbers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| ["a", "b", "c"].map(|text| Why::from(Reason::Custom(text)))))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
        assert_ne!(numbers[0][0], numbers[0][1]);
    }
}
