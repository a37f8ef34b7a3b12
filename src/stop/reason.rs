//! Reasons for a stop, and the numbers that represent them in a stop source.

use core::fmt;
use std::boxed::Box;

use super::Why;
use crate::sync::OnceLock;

/// The reason why work was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A stop was requested without a reason, by a source or a group.
    Requested,
    /// A [deadline](crate::task::with_deadline) has passed.
    Deadline,
    /// Another child of the group has failed.
    SiblingFailed,
    /// The result has no receiver: a scope was left, or an await was dropped.
    ScopeLeft,
    /// A reason given by the program.
    Custom(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Requested => "stop requested",
            Reason::Deadline => "deadline exceeded",
            Reason::SiblingFailed => "sibling failed",
            Reason::ScopeLeft => "scope was left",
            Reason::Custom(text) => text,
        })
    }
}

/// The numbers of reasons. From [`CUSTOM`](Why::CUSTOM) on they stand for texts of the program.
impl Why {
    pub(crate) const REQUESTED: Why = Why(0);
    pub(crate) const DEADLINE: Why = Why(1);
    pub(crate) const SIBLING_FAILED: Why = Why(2);
    pub(crate) const SCOPE_LEFT: Why = Why(3);
    const CUSTOM: u16 = 16;
    /// The limit of the numbers: the highest bit is a mark.
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

/// A text gets its number at its first use, for the rest of the process. When the numbers are exhausted, further texts count as
/// none.
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

/// A text that was given as a reason. There is one of each, never freed.
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
