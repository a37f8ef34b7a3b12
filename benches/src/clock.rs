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
#[cfg(unix)]
pub fn process_cpu() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer leads to a `timespec` that the call may write.
    let read = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    (read == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(not(unix))]
pub fn process_cpu() -> Option<Duration> {
    None
}

/// How many cores other processes use while something runs here: what makes a measurement unsteady.
pub struct Neighbours {
    busy: Option<Duration>,
    watch: Stopwatch,
}

impl Neighbours {
    pub fn watch() -> Self {
        Neighbours {
            busy: machine_busy(),
            watch: Stopwatch::start(),
        }
    }

    /// `None` where the system does not tell, or not exactly enough for so short a time.
    pub fn cores(self) -> Option<f64> {
        let elapsed = self.watch.stop();
        if elapsed.wall < Duration::from_millis(500) {
            return None;
        }
        let busy = machine_busy()?.saturating_sub(self.busy?);
        Some(busy.saturating_sub(elapsed.cpu?).as_secs_f64() / elapsed.wall.as_secs_f64())
    }
}

/// The time that all cores together have been busy, or taken away by the host of a virtual machine.
fn machine_busy() -> Option<Duration> {
    let all = std::fs::read_to_string("/proc/stat").ok()?;
    let fields = all.lines().next()?.split_whitespace().skip(1);
    let fields: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let [user, nice, system, _idle, _waiting, irq, softirq, stolen, ..] = fields[..] else {
        return None;
    };
    // In hundredths of a second, whatever the kernel counts in itself.
    Some(Duration::from_millis(
        10 * (user + nice + system + irq + softirq + stolen),
    ))
}

/// What the threads of this process other than the calling one have done.
#[derive(Clone, Copy, Default)]
pub struct Others {
    /// The CPU time that they used.
    pub cpu: Duration,
    /// How often one of them began to run.
    pub runs: u64,
}

impl Others {
    /// To the nanosecond, thread by thread: a thread that does not run adds nothing. `None` where the system does not
    /// tell.
    #[cfg(target_os = "linux")]
    pub fn now() -> Option<Others> {
        // SAFETY: it takes nothing and cannot fail.
        let own = unsafe { libc::gettid() }.to_string();
        let mut others = Others::default();
        for thread in std::fs::read_dir("/proc/self/task").ok()? {
            let thread = thread.ok()?;
            if thread.file_name() == *own {
                continue;
            }
            let Ok(line) = std::fs::read_to_string(thread.path().join("schedstat")) else {
                // It ended a moment ago, or the kernel keeps no such account of any.
                if std::fs::exists("/proc/self/schedstat").is_ok_and(|exists| exists) {
                    continue;
                }
                return None;
            };
            // Nanoseconds on a CPU, nanoseconds in the queue for one, and how often it got one.
            let mut fields = line.split_whitespace().map(str::parse);
            others.cpu += Duration::from_nanos(fields.next()?.ok()?);
            others.runs += fields.nth(1)?.ok()?;
        }
        Some(others)
    }

    #[cfg(not(target_os = "linux"))]
    pub fn now() -> Option<Others> {
        None
    }
}
