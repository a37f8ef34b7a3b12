use crate::adaptors::AlsoStops;
use crate::stop::{InplaceStopSource, InplaceStopToken, NeverStop};
use crate::{Sender, Transfer};

/// The kind of a [`Scope`](super::Scope): [`WithStop`] or [`WithoutStop`].
pub trait Kind: private::RawKind {}

/// The kind of a [`CountingScope`](super::CountingScope), which has a stop source.
#[derive(Clone, Copy, Debug)]
pub struct WithStop;

/// The kind of a [`SimpleCountingScope`](super::SimpleCountingScope), which only counts.
#[derive(Clone, Copy, Debug)]
pub struct WithoutStop;

impl Kind for WithStop {}
impl Kind for WithoutStop {}

pub(super) mod private {
    use core::fmt;

    use crate::stop::StopToken;
    use crate::{Sender, Transfer};

    /// The differences of the kinds. Seals [`Kind`](super::Kind).
    pub trait RawKind: Send + Sync + Sized + 'static {
        type Source: Default + fmt::Debug + Send + Sync;
        type Token: StopToken + 'static;

        /// A sender that is stopped by the scope as well.
        type Wrapped<S: Sender<Value: Send, Error: Send>>: Sender<Value = S::Value, Error = S::Error>;

        /// # Safety
        ///
        /// The token is not used after the source is dropped.
        unsafe fn token(source: &Self::Source) -> Self::Token;

        /// Makes the sender stop with the scope too.
        fn wrap<S: Sender<Value: Send, Error: Send>>(sender: S, token: Self::Token) -> Self::Wrapped<S>;

        /// Requests the stop. Returns `true` for the first request.
        fn request_stop(source: &Self::Source) -> bool;

        /// Requests the stop and returns the transfer that the callbacks resumed.
        fn request_stop_later(source: &Self::Source) -> Transfer;

        fn stop_requested(source: &Self::Source) -> bool;
    }
}

impl private::RawKind for WithStop {
    type Source = InplaceStopSource;
    type Token = InplaceStopToken<'static>;
    type Wrapped<S: Sender<Value: Send, Error: Send>> = AlsoStops<S, InplaceStopToken<'static>>;

    unsafe fn token(source: &InplaceStopSource) -> InplaceStopToken<'static> {
        // SAFETY: the source outlives the token, by the contract of this function.
        unsafe { source.token().extend() }
    }

    fn wrap<S: Sender<Value: Send, Error: Send>>(sender: S, token: Self::Token) -> Self::Wrapped<S> {
        AlsoStops::new(sender, token)
    }

    fn request_stop(source: &InplaceStopSource) -> bool {
        source.request_stop()
    }

    fn request_stop_later(source: &InplaceStopSource) -> Transfer {
        source.request_stop_later()
    }

    fn stop_requested(source: &InplaceStopSource) -> bool {
        source.stop_requested()
    }
}

impl private::RawKind for WithoutStop {
    type Source = ();
    type Token = NeverStop;
    type Wrapped<S: Sender<Value: Send, Error: Send>> = S;

    unsafe fn token((): &()) -> NeverStop {
        NeverStop
    }

    fn wrap<S: Sender<Value: Send, Error: Send>>(sender: S, _: NeverStop) -> S {
        sender
    }

    fn request_stop((): &()) -> bool {
        false
    }

    fn request_stop_later((): &()) -> Transfer {
        Transfer::none()
    }

    fn stop_requested((): &()) -> bool {
        false
    }
}
