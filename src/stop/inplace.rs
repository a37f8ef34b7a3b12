use super::registry::Registry;
use super::token::InplaceStopToken;
use crate::Transfer;
use crate::sync::const_unless_loom;

/// A stop source that lives where it is put, on the stack or inside an operation, and allocates nothing.
///
/// Its tokens borrow it, so it cannot move while one is about. For a source that is shared and outlives its maker,
/// there is [`StopSource`](super::StopSource).
///
/// ```
/// use bowline::stop::InplaceStopSource;
///
/// let source = InplaceStopSource::new();
/// let token = source.token();
/// assert!(!token.stop_requested());
/// assert!(source.request_stop());
/// assert!(!source.request_stop(), "only the first request counts");
/// assert!(token.stop_requested());
/// ```
#[derive(Debug)]
pub struct InplaceStopSource {
    registry: Registry,
}

impl InplaceStopSource {
    const_unless_loom! {
        /// A source whose stop has not been requested.
        pub fn new() -> Self {
            InplaceStopSource {
                registry: Registry::new(),
            }
        }
    }

    /// A token that sees this source's stop.
    #[inline]
    pub fn token(&self) -> InplaceStopToken<'_> {
        InplaceStopToken::new(&self.registry)
    }

    /// Requests the stop: `true` for the first request, `false` for every other.
    ///
    /// Calls every registered callback on this thread, outside any lock, then runs what they resumed.
    #[inline]
    pub fn request_stop(&self) -> bool {
        match self.registry.request_stop() {
            Some(resumed) => {
                resumed.run();
                true
            }
            None => false,
        }
    }

    /// Requests the stop and hands back what the callbacks resumed, for an operation that hands it on.
    #[inline]
    pub(crate) fn request_stop_later(&self) -> Transfer {
        self.registry.request_stop().unwrap_or_default()
    }

    /// Whether the stop has been requested.
    #[inline]
    pub fn stop_requested(&self) -> bool {
        self.registry.stop_requested()
    }
}

impl Default for InplaceStopSource {
    fn default() -> Self {
        InplaceStopSource::new()
    }
}
