/// Where an operation completes, as far as its type can promise.
///
/// An algorithm that must come back to a scheduler ([`affine`](crate::Sender::affine), a task) skips the trip when the
/// promise makes it needless. The promise is the constant [`Sender::COMPLETES`](crate::Sender::COMPLETES); it is
/// part of an `unsafe` trait, because code that need not be `Send` relies on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completes {
    /// Inside `start`, on the thread that called it, before it returns, and soon: the operation does not ask its stop token
    /// again once it runs.
    ///
    /// Algorithms that pass a stop on to their children ([`when_all`](crate::when_all), a scope) ask the outer token only
    /// when such a child is started. A loop, which looks for a stop between its rounds, promises
    /// [`OnStartScheduler`](Completes::OnStartScheduler) instead, even where it never leaves `start`.
    Inline,
    /// On the scheduler of the receiver's environment, whenever that may be.
    OnStartScheduler,
    /// Nothing is promised.
    Anywhere,
}

impl Completes {
    /// What two operations that run one after the other promise together: the weaker of the two.
    pub const fn and(self, other: Completes) -> Completes {
        if (self as u8) < (other as u8) { other } else { self }
    }

    /// Whether this is [`Completes::Inline`].
    pub const fn is_inline(self) -> bool {
        matches!(self, Completes::Inline)
    }

    /// Whether an operation started on its scheduler is still there when it completes.
    pub const fn stays_on_scheduler(self) -> bool {
        !matches!(self, Completes::Anywhere)
    }
}
