//! The keys in a file: one `SET` request for each.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::protocol::Decoder;
use super::store::Store;
use super::{commands, reply};

/// Executes the requests of a file. A file that does not exist has none.
///
/// # Errors
///
/// The file cannot be read, or has something else than requests that `save` writes.
pub fn load(store: &Store, path: &Path) -> io::Result<()> {
    let input = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read?,
    };
    let malformed = |at| io::Error::new(io::ErrorKind::InvalidData, format!("not a file of keys, at byte {at}"));
    let mut decoder = Decoder::new(usize::MAX);
    let mut answer = Vec::new();
    let mut begin = 0;
    while begin < input.len() {
        let Ok(Some((request, length))) = decoder.decode(&input[begin..]) else {
            return Err(malformed(begin));
        };
        commands::execute(store, request, &mut answer);
        if answer != b"+OK\r\n" {
            return Err(malformed(begin));
        }
        answer.clear();
        begin += length;
    }
    Ok(())
}

/// Saves all keys to a file. The file is replaced in one step, when everything was written.
///
/// # Errors
///
/// The file cannot be written. What was there before stays.
pub fn save(store: &Store, path: &Path) -> io::Result<()> {
    let mut output = Vec::new();
    let (now, unix_now) = (Instant::now(), SystemTime::now());
    for (key, value, expires) in store.lock().iter() {
        let expires = expires.map(|at| {
            let at = unix_now + at.saturating_duration_since(now);
            at.duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_millis()
                .to_string()
        });
        reply::array(&mut output, if expires.is_some() { 5 } else { 3 });
        for word in [b"SET", key, value] {
            reply::string(&mut output, word);
        }
        if let Some(ms) = expires {
            reply::string(&mut output, b"PXAT");
            reply::string(&mut output, ms.as_bytes());
        }
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".part");
    let write = || -> io::Result<()> {
        let mut file = File::create(&partial)?;
        file.write_all(&output)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&partial);
    })
}
