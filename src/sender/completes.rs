/// The promise of a sender's type about where its operations complete.
///
/// An algorithm that returns to a scheduler ([`affine`](crate::Sender::affine), a task) skips a needless trip. The
/// promise is the constant [`Sender::COMPLETES`](crate::Sender::COMPLETES) of an `unsafe` trait, because code that is
/// not `Send` relies on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completes {
    /// Inside `start`, on the thread that called it, before it returns, and soon: the operation does not ask its stop token
    /// again once it runs.
    ///
    /// Algorithms that pass a stop on to their children ([`when_all`](crate::when_all), a scope) ask the outer token only
    /// when such a child is started. A loop, which looks for a stop between its rounds, promises
    /// [`OnStartScheduler`](Completes::OnStartScheduler) instead, even where it never leaves `start`.
    Inline,
    /// On the scheduler of the receiver's environment, at any time. The operation is started there.
    OnStartScheduler,
    /// No promise.
    Anywhere,
}

impl Completes {
    /// Returns the promise of two operations that run one after the other: the weaker of the two.
    pub const fn and(self, other: Completes) -> Completes {
        if (self as u8) < (other as u8) { other } else { self }
    }

    /// Returns whether this is [`Completes::Inline`].
    pub const fn is_inline(self) -> bool {
        matches!(self, Completes::Inline)
    }

    /// Returns whether an operation that was started on its scheduler completes there.
    pub const fn stays_on_scheduler(self) -> bool {
        !matches!(self, Completes::Anywhere)
    }
}
