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

/// Returns the name of the processor with its family and model: hypervisors shorten the name.
fn cpu_model() -> Option<String> {
    described(&fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn described(info: &str) -> Option<String> {
    let value = |name: &str| {
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        Some(fields.find(|(field, _)| field.trim() == name)?.1.trim())
    };
    let name = value("model name")?;
    Some(match (value("cpu family"), value("model")) {
        (Some(family), Some(model)) => format!("{name}, family {family} model {model}"),
        _ => name.to_owned(),
    })
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
    fn a_processor_is_described_by_name_family_and_model() {
        let info = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\n";
        assert_eq!(described(info).as_deref(), Some("AMD EPYC, family 26 model 2"));
        assert_eq!(described("model name : some ARM\n").as_deref(), Some("some ARM"));
        assert_eq!(described(""), None);
    }

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
