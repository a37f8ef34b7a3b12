//! Pauses between attempts.

use std::iter;
use std::time::Duration;

/// Pauses that double from one attempt to the next, up to a limit.
#[derive(Clone, Copy, Debug)]
pub struct BackOff {
    /// The maximum number of attempts after the first.
    pub retries: usize,
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl BackOff {
    /// Iterates over the pauses. Each is shortened at random by up to a half, so that clients which have failed together do not try
    /// again together.
    pub fn pauses(self) -> impl Iterator<Item = Duration> + Send {
        let next = move |pause: &Duration| Some(pause.saturating_mul(2).min(self.longest));
        let pauses = iter::successors(Some(self.first.min(self.longest)), next);
        pauses
            .take(self.retries)
            .map(|pause| pause.mul_f64(1.0 - fastrand::f64() / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let ms = Duration::from_millis;
        let back_off = BackOff {
            retries: 5,
            first: ms(100),
            longest: ms(500),
        };
        let most = [100, 200, 400, 500, 500].map(ms);
        for _ in 0..100 {
            let pauses: Vec<_> = back_off.pauses().collect();
            assert_eq!(pauses.len(), 5);
            for (pause, most) in pauses.into_iter().zip(most) {
                assert!((most / 2..=most).contains(&pause), "{pause:?} of {most:?}");
            }
        }
        let none = BackOff { retries: 0, ..back_off };
        assert_eq!(none.pauses().count(), 0);
        let huge = BackOff {
            first: Duration::MAX,
            longest: Duration::from_secs(1),
            ..back_off
        };
        assert!(huge.pauses().all(|pause| pause <= Duration::from_secs(1)));
    }
}
