use super::registry::Registry;
use super::token::InplaceStopToken;
use crate::Transfer;
use crate::sync::const_unless_loom;

/// A stop source that lives where it is put, on the stack or inside an operation, and allocates nothing.
///
/// Its tokens borrow it, so the source cannot move while a token is alive. [`StopSource`](super::StopSource) is shared
/// and reference-counted instead.
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
        /// Creates a source whose stop has not been requested.
        pub fn new() -> Self {
            InplaceStopSource {
                registry: Registry::new(),
            }
        }
    }

    /// Returns a token of this source.
    #[inline]
    pub fn token(&self) -> InplaceStopToken<'_> {
        InplaceStopToken::new(&self.registry)
    }

    /// Requests the stop. Returns `true` for the first request and `false` for every other.
    ///
    /// Calls every registered callback on this thread, outside any lock, and then runs the work that they resumed.
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

    /// Requests the stop and returns the transfer that the callbacks resumed, for an operation that passes it to its
    /// driver.
    #[inline]
    pub(crate) fn request_stop_later(&self) -> Transfer {
        self.registry.request_stop().unwrap_or_default()
    }

    /// Returns whether the stop has been requested.
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
