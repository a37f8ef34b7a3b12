//! A clock that costs one load: a thread stores the time every [`TICK`].
//!
//! With the feature `inspect`, each await that suspends notes the time. Reading the system's clock would take longer than the
//! rest of a suspension.

use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant;

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The resolution of the clock.
const TICK: Duration = Duration::from_millis(20);

/// The time in ticks since the clock was started. Zero before that, and if its thread cannot be started. Once that runs, stored by it
/// alone.
static TICKS: AtomicU64 = AtomicU64::new(0);
/// When the clock was started.
static STARTED: OnceLock<Instant> = OnceLock::new();

/// Returns the time, for [`instant`].
#[inline]
pub(crate) fn now() -> u64 {
    TICKS.load(Relaxed)
}

/// Returns the instant of a time that [`now`] returned, or `None` if the clock did not run then.
pub(crate) fn instant(time: u64) -> Option<Instant> {
    let ticks = u32::try_from(time.checked_sub(1)?).ok()?;
    STARTED.get()?.checked_add(TICK.checked_mul(ticks)?)
}

/// Returns the nanoseconds from the start of the clock to an instant, or zero if the instant is earlier. `None` beyond 584 years, and
/// before the clock was started.
pub(crate) fn nanoseconds(at: Instant) -> Option<u64> {
    at.saturating_duration_since(*STARTED.get()?).as_nanos().try_into().ok()
}

/// Returns the instant of a result of [`nanoseconds`].
pub(crate) fn at_nanoseconds(time: u64) -> Option<Instant> {
    STARTED.get()?.checked_add(Duration::from_nanos(time))
}

/// Starts the clock, if it does not run yet. Its thread runs until the process ends.
pub(crate) fn start() {
    STARTED.get_or_init(|| {
        let started = Instant::now();
        TICKS.store(1, Relaxed);
        let thread = std::thread::Builder::new().name("bowline-clock".into()).spawn(move || {
            loop {
                let ticks = started.elapsed().as_nanos() / TICK.as_nanos();
                TICKS.store(ticks as u64 + 1, Relaxed);
                std::thread::sleep(TICK);
            }
        });
        if thread.is_err() {
            TICKS.store(0, Relaxed);
        }
        started
    });
}
