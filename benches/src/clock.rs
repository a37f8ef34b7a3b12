//! Wall time and CPU time.

use std::time::{Duration, Instant};

/// What something took.
#[derive(Clone, Copy)]
pub struct Elapsed {
    pub wall: Duration,
    /// CPU time of the whole process; `None` where it is not measured.
    pub cpu: Option<Duration>,
}

impl Elapsed {
    /// Nanoseconds of wall time for each of `count` things.
    pub fn wall_each(&self, count: usize) -> f64 {
        nanos_each(self.wall, count)
    }

    /// Nanoseconds of CPU time for each of `count` things.
    pub fn cpu_each(&self, count: usize) -> Option<f64> {
        self.cpu.map(|cpu| nanos_each(cpu, count))
    }

    /// CPU time over wall time: how many cores were at work.
    pub fn cores(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu.as_secs_f64() / self.wall.as_secs_f64())
    }
}

fn nanos_each(time: Duration, count: usize) -> f64 {
    time.as_nanos() as f64 / count as f64
}

/// Started before what is measured, stopped after it.
pub struct Stopwatch {
    cpu: Option<Duration>,
    wall: Instant,
}

impl Stopwatch {
    pub fn start() -> Self {
        Stopwatch {
            cpu: process_cpu(),
            wall: Instant::now(),
        }
    }

    pub fn stop(self) -> Elapsed {
        let wall = self.wall.elapsed();
        let cpu = process_cpu();
        Elapsed {
            wall,
            cpu: cpu.zip(self.cpu).map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// CPU time that all threads of this process have used.
pub fn process_cpu() -> Option<Duration> {
    system::process_cpu()
}

/// CPU time that the threads of this process other than the calling one have used.
pub fn others_cpu() -> Option<Duration> {
    // The caller's clock is read first: what it uses between the two readings then counts as the others', and the
    // difference can only grow.
    let own = system::thread_cpu()?;
    Some(system::process_cpu()?.saturating_sub(own))
}

/// How often the threads of this process other than the calling one have gone to sleep.
pub fn others_sleeps() -> Option<u64> {
    system::others_sleeps()
}

#[cfg(unix)]
mod system {
    use std::time::Duration;

    pub fn process_cpu() -> Option<Duration> {
        read(libc::CLOCK_PROCESS_CPUTIME_ID)
    }

    pub fn thread_cpu() -> Option<Duration> {
        read(libc::CLOCK_THREAD_CPUTIME_ID)
    }

    fn read(clock: libc::clockid_t) -> Option<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer leads to a `timespec` that the call may write.
        let read = unsafe { libc::clock_gettime(clock, &raw mut time) };
        (read == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    #[cfg(target_os = "linux")]
    pub fn others_sleeps() -> Option<u64> {
        let own = sleeps_of(libc::RUSAGE_THREAD)?;
        Some(sleeps_of(libc::RUSAGE_SELF)?.saturating_sub(own))
    }

    #[cfg(not(target_os = "linux"))]
    pub fn others_sleeps() -> Option<u64> {
        None
    }

    #[cfg(target_os = "linux")]
    fn sleeps_of(whose: libc::c_int) -> Option<u64> {
        // SAFETY: an `rusage` is made of numbers, for all of which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer leads to an `rusage` that the call may write.
        let read = unsafe { libc::getrusage(whose, &raw mut usage) };
        (read == 0).then_some(usage.ru_nvcsw as u64)
    }
}

#[cfg(not(unix))]
mod system {
    use std::time::Duration;

    pub fn process_cpu() -> Option<Duration> {
        None
    }

    pub fn thread_cpu() -> Option<Duration> {
        None
    }

    pub fn others_sleeps() -> Option<u64> {
        None
    }
}
