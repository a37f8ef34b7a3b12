//! Wall time and CPU time.

use std::time::{Duration, Instant};

/// The time that a measured piece of work took.
#[derive(Clone, Copy)]
pub struct Elapsed {
    pub wall: Duration,
    /// CPU time of the whole process, or `None` if it is not measured.
    pub cpu: Option<Duration>,
}

impl Elapsed {
    /// Returns the nanoseconds of wall time for each of `count` units.
    pub fn wall_each(&self, count: usize) -> f64 {
        nanos_each(self.wall, count)
    }

    /// Returns the nanoseconds of CPU time for each of `count` units.
    pub fn cpu_each(&self, count: usize) -> Option<f64> {
        self.cpu.map(|cpu| nanos_each(cpu, count))
    }

    /// Returns CPU time over wall time: the number of busy cores.
    pub fn cores(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu.as_secs_f64() / self.wall.as_secs_f64())
    }
}

fn nanos_each(time: Duration, count: usize) -> f64 {
    time.as_nanos() as f64 / count as f64
}

/// A clock, started before the measured work and stopped after it.
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

/// Returns the CPU time of all threads of this process.
#[cfg(unix)]
pub fn process_cpu() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a valid `timespec`, which the call may write.
    let read = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    (read == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(not(unix))]
pub fn process_cpu() -> Option<Duration> {
    None
}

/// A measurement of the cores that other processes use meanwhile, which make results unsteady.
pub struct Neighbours {
    busy: Option<Duration>,
    children: Option<Duration>,
    watch: Stopwatch,
}

impl Neighbours {
    pub fn watch() -> Self {
        Neighbours {
            busy: machine_busy(),
            children: children_busy(),
            watch: Stopwatch::start(),
        }
    }

    /// Returns the number of cores, or `None` if the system does not report it precisely enough for so short a time.
    pub fn cores(self) -> Option<f64> {
        let elapsed = self.watch.stop();
        if elapsed.wall < Duration::from_millis(500) {
            return None;
        }
        let busy = machine_busy()?.saturating_sub(self.busy?);
        let own = elapsed.cpu? + children_busy()?.saturating_sub(self.children?);
        Some(busy.saturating_sub(own).as_secs_f64() / elapsed.wall.as_secs_f64())
    }
}

/// Returns the CPU time of the processes that this one has started, and that have ended.
fn children_busy() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The fields after the name of the program, which may contain anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(13);
    let mut field = || fields.next()?.parse::<u64>().ok();
    // The unit is that of `/proc/stat`.
    Some(Duration::from_millis(10 * (field()? + field()?)))
}

/// Returns the time that all cores have been busy, or taken away by the host of a virtual machine.
fn machine_busy() -> Option<Duration> {
    let all = std::fs::read_to_string("/proc/stat").ok()?;
    let fields = all.lines().next()?.split_whitespace().skip(1);
    let fields: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let [user, nice, system, _idle, _waiting, irq, softirq, stolen, ..] = fields[..] else {
        return None;
    };
    // The unit is a hundredth of a second, independent of the kernel's own.
    Some(Duration::from_millis(
        10 * (user + nice + system + irq + softirq + stolen),
    ))
}

/// The activity of all threads of this process except the calling one.
#[derive(Clone, Copy, Default)]
pub struct Others {
    /// Their CPU time.
    pub cpu: Duration,
    /// How often one of them was scheduled.
    pub runs: u64,
}

impl Others {
    /// Reads the accounts of each thread, in nanoseconds. A thread that does not run adds nothing. Returns `None` if
    /// the system has no such accounts.
    #[cfg(target_os = "linux")]
    pub fn now() -> Option<Others> {
        // SAFETY: the call has no arguments and cannot fail.
        let own = unsafe { libc::gettid() }.to_string();
        let mut others = Others::default();
        for thread in std::fs::read_dir("/proc/self/task").ok()? {
            let thread = thread.ok()?;
            if thread.file_name() == *own {
                continue;
            }
            let Ok(line) = std::fs::read_to_string(thread.path().join("schedstat")) else {
                // The thread has just ended, or the kernel has no such accounts.
                if std::fs::exists("/proc/self/schedstat").is_ok_and(|exists| exists) {
                    continue;
                }
                return None;
            };
            // The fields: nanoseconds on a CPU, nanoseconds in the run queue, and the number of time slices.
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
