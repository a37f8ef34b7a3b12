//! The keys, their values, and when they expire.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// All keys. One lock protects them, so each command is atomic.
#[derive(Debug, Default)]
pub struct Store {
    keys: Mutex<Keys>,
    requests: AtomicU64,
}

impl Store {
    /// Locks the keys, and removes those that have expired.
    pub(super) fn lock(&self) -> MutexGuard<'_, Keys> {
        // No command panics half-way through a change.
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if !keys.expiring.is_empty() {
            keys.remove_expired(Instant::now());
        }
        keys
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the keys that have expired. Every command does this first, so only memory depends on it.
    pub fn remove_expired(&self) {
        drop(self.lock());
    }

    pub(super) fn count_requests(&self, requests: u64) {
        self.requests.fetch_add(requests, Relaxed);
    }

    /// Returns the number of requests that were executed.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }
}

/// The keys, while they are locked.
#[derive(Debug, Default)]
pub(super) struct Keys {
    entries: HashMap<Box<[u8]>, Entry>,
    /// The keys that expire, the next one first.
    expiring: BTreeSet<(Instant, Box<[u8]>)>,
}

#[derive(Debug)]
struct Entry {
    value: Vec<u8>,
    expires: Option<Instant>,
}

impl Keys {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.entries.get(key).map(|entry| entry.value.as_slice())
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns when a key expires: `None` if there is no such key, `Some(None)` if it does not expire.
    pub(super) fn expiry(&self, key: &[u8]) -> Option<Option<Instant>> {
        self.entries.get(key).map(|entry| entry.expires)
    }

    /// Sets the value of a key, and when it expires.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8], expires: Option<Instant>) {
        match self.entries.get_mut(key) {
            // Reuses the memory of the key and of the value.
            Some(entry) => {
                entry.value.clear();
                entry.value.extend_from_slice(value);
            }
            None => {
                let (value, expires) = (value.to_vec(), None);
                self.entries.insert(key.into(), Entry { value, expires });
            }
        }
        self.set_expiry(key, expires);
    }

    /// Sets when a key expires. Returns whether there is such a key.
    pub(super) fn set_expiry(&mut self, key: &[u8], expires: Option<Instant>) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            return false;
        };
        if entry.expires != expires {
            let before = std::mem::replace(&mut entry.expires, expires);
            if let Some(before) = before {
                self.expiring.remove(&(before, key.into()));
            }
            if let Some(expires) = expires {
                self.expiring.insert((expires, key.into()));
            }
        }
        true
    }

    /// Removes a key. Returns whether there was such a key.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let Some(entry) = self.entries.remove(key) else {
            return false;
        };
        if let Some(expires) = entry.expires {
            self.expiring.remove(&(expires, key.into()));
        }
        true
    }

    pub(super) fn clear(&mut self) {
        *self = Keys::default();
    }

    /// Iterates over the keys with their values, and when they expire.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], Option<Instant>)> {
        let entries = self.entries.iter();
        entries.map(|(key, entry)| (&**key, entry.value.as_slice(), entry.expires))
    }

    fn remove_expired(&mut self, now: Instant) {
        while let Some((expires, _)) = self.expiring.first()
            && *expires <= now
        {
            if let Some((_, key)) = self.expiring.pop_first() {
                self.entries.remove(&key);
            }
        }
    }
}
