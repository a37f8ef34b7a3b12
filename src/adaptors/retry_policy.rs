use core::time::Duration;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// How often, and after which delays, work that failed is tried again: see [`Sender::retry_with`](crate::Sender::retry_with) and
/// [`task::retry_with`](crate::task::retry_with). [`retry_with_if`](crate::Sender::retry_with_if) decides by the error as well.
///
/// The delays grow by a factor, up to a maximum. A part of each is random (*jitter*), so that many clients that failed
/// together do not try again together.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::adaptors::RetryPolicy;
/// use std::time::Duration;
///
/// let policy = RetryPolicy::new()
///     .attempts(5)
///     .initial_delay(Duration::from_millis(100))
///     .factor(3.0)
///     .max_delay(Duration::from_secs(1))
///     .jitter(0.0);
/// assert!(policy.delays().eq([100, 300, 900, 1000].map(Duration::from_millis)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a policy does nothing by itself"]
pub struct RetryPolicy {
    attempts: usize,
    initial_delay: Duration,
    factor: f64,
    max_delay: Duration,
    jitter: f64,
}

impl RetryPolicy {
    /// Makes a policy with these settings:
    ///
    /// | setting | value |
    /// |---|---|
    /// | [`attempts`](RetryPolicy::attempts) | 5 |
    /// | [`initial_delay`](RetryPolicy::initial_delay) | 100 milliseconds |
    /// | [`factor`](RetryPolicy::factor) | 2 |
    /// | [`max_delay`](RetryPolicy::max_delay) | 10 seconds |
    /// | [`jitter`](RetryPolicy::jitter) | 0.5 |
    pub const fn new() -> Self {
        RetryPolicy {
            attempts: 5,
            initial_delay: Duration::from_millis(100),
            factor: 2.0,
            max_delay: Duration::from_secs(10),
            jitter: 0.5,
        }
    }

    /// Sets the largest number of attempts, with the first one. Zero counts as one. With `usize::MAX` the number has no limit.
    pub const fn attempts(mut self, attempts: usize) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets the delay between the first and the second attempt, before jitter. It is at most
    /// [`max_delay`](RetryPolicy::max_delay). Without a delay the next attempt begins at once.
    pub const fn initial_delay(mut self, delay: Duration) -> Self {
        self.initial_delay = delay;
        self
    }

    /// Sets the factor by which each delay is longer than the one before. A factor below one, or one that is not a number,
    /// counts as one.
    pub const fn factor(mut self, factor: f64) -> Self {
        self.factor = if factor > 1.0 { factor } else { 1.0 };
        self
    }

    /// Sets the longest delay.
    pub const fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// Sets the part of each delay that is random, from 0 to 1. Jitter only shortens: with 0.25, a delay of a second becomes one
    /// between 0.75 and 1 seconds. Other numbers count as the nearest one of the range, and one that is not a number as 0.
    pub const fn jitter(mut self, part: f64) -> Self {
        self.jitter = if part >= 1.0 {
            1.0
        } else if part > 0.0 {
            part
        } else {
            0.0
        };
        self
    }

    /// Returns the delays of one use of this policy, with jitter: one less than the attempts. For loops of your own.
    pub fn delays(&self) -> Delays {
        Delays {
            left: match self.attempts {
                usize::MAX => usize::MAX,
                attempts => attempts.saturating_sub(1),
            },
            next: self.initial_delay.min(self.max_delay),
            factor: self.factor,
            max: self.max_delay,
            jitter: self.jitter,
            // Each instance has other keys, so the hash of nothing is a random number.
            random: if self.jitter > 0.0 {
                RandomState::new().build_hasher().finish() | 1
            } else {
                1
            },
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy::new()
    }
}

/// The delays between attempts. Created by [`RetryPolicy::delays`].
#[derive(Clone, Debug)]
#[must_use = "iterators do nothing until they are used"]
pub struct Delays {
    /// The number of delays that are left. `usize::MAX` never decreases.
    left: usize,
    next: Duration,
    factor: f64,
    max: Duration,
    jitter: f64,
    random: u64,
}

impl Iterator for Delays {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.left == 0 {
            return None;
        }
        if self.left != usize::MAX {
            self.left -= 1;
        }
        let delay = self.next;
        self.next = scaled(delay, self.factor).min(self.max);
        if self.jitter == 0.0 {
            return Some(delay);
        }
        // Marsaglia's xorshift, of which the upper bits are a number from 0 to 1.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let random = (self.random >> 11) as f64 / (1u64 << 53) as f64;
        Some(scaled(delay, 1.0 - self.jitter * random).min(delay))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let bound = (self.left != usize::MAX).then_some(self.left);
        (self.left, bound)
    }
}

/// Multiplies a duration with a number of at least zero. A result that is too long is the longest duration.
fn scaled(duration: Duration, factor: f64) -> Duration {
    // The product of zero and an infinite number is no number.
    if duration.is_zero() {
        return duration;
    }
    Duration::try_from_secs_f64(duration.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}
