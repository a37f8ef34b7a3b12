//! The machine of a measurement, and the versions of the peers.

use std::{env, fs, thread};

/// The machine, and the versions of the peers.
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub system: String,
    pub peers: Vec<(&'static str, String)>,
}

impl Machine {
    pub fn look() -> Self {
        let peers = ["tokio", "rayon", "async-executor"];
        Machine {
            cpu: cpu_model().unwrap_or_else(|| format!("unknown {}", env::consts::ARCH)),
            cores: cores(),
            system: system(),
            peers: peers.into_iter().map(|name| (name, locked_version(name))).collect(),
        }
    }

    /// Returns a description in one line.
    pub fn line(&self) -> String {
        let peers: Vec<String> = self
            .peers
            .iter()
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        format!(
            "{} ({} cores), {}, {}",
            self.cpu,
            self.cores,
            self.system,
            peers.join(", ")
        )
    }
}

/// Returns the number of threads that can run at once.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, Into::into)
}

/// Returns the resident memory of this process in bytes, if the system reports it.
pub fn resident() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kibibytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024.0)
}

fn cpu_model() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn system() -> String {
    match fs::read_to_string("/proc/sys/kernel/osrelease") {
        Ok(release) => format!("{} {}", env::consts::OS, release.trim()),
        Err(_) => env::consts::OS.to_owned(),
    }
}

/// Returns the version of a package that this program was built with.
fn locked_version(package: &str) -> String {
    const LOCK: &str = include_str!("../../Cargo.lock");
    let entry = format!("name = \"{package}\"\nversion = \"");
    let version = LOCK.split_once(&entry).and_then(|(_, rest)| rest.split_once('"'));
    version.map_or("of unknown version", |(version, _)| version).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_the_peers_are_found() {
        for (name, version) in Machine::look().peers {
            assert!(
                version.starts_with(|first: char| first.is_ascii_digit()),
                "{name} {version}"
            );
        }
    }
}
