//! Why a strand is asked to stop, and the numbers that stand for reasons in a stop source.

use core::fmt;
use std::boxed::Box;

use crate::stop::Why;
use crate::sync::OnceLock;

/// Why work was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Somebody asked for it, and did not say why: the stop of a source, or of a group, was requested.
    Requested,
    /// A [deadline](crate::task::with_deadline) has passed.
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
            Reason::Requested => "stop requested",
            Reason::Deadline => "deadline exceeded",
            Reason::SiblingFailed => "sibling failed",
            Reason::ScopeLeft => "scope was left",
            Reason::Custom(text) => text,
        })
    }
}

/// What the numbers mean. From [`CUSTOM`](Why::CUSTOM) on they are texts of the program.
impl Why {
    pub(in crate::task) const REQUESTED: Why = Why(0);
    pub(in crate::task) const DEADLINE: Why = Why(1);
    pub(in crate::task) const SIBLING_FAILED: Why = Why(2);
    pub(in crate::task) const SCOPE_LEFT: Why = Why(3);
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
