//! The commands, as those of Redis that have the same names.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::protocol::{Request, number};
use super::reply;
use super::store::Store;

/// The maximum number of bytes in an answer.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;
/// The maximum length of the name of a command.
const LONGEST_NAME: usize = 16;

const SYNTAX: &str = "ERR syntax error";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";

/// What a connection does after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Continue,
    Close,
}

/// Executes a request, and appends its answer.
pub(super) fn execute(store: &Store, request: Request<'_>, output: &mut Vec<u8>) -> Then {
    let mut name = [0; LONGEST_NAME];
    let Some(name) = upper_case(request.word(0), &mut name) else {
        unknown(request, output);
        return Then::Continue;
    };
    // The number of words includes the name.
    let words = request.len();
    match (name, words) {
        (b"GET", 2) => match store.lock().get(request.word(1)) {
            Some(value) => reply::string(output, value),
            None => reply::null(output),
        },
        (b"SET", 3..) => set(store, request, output),
        (b"DEL" | b"UNLINK", 2..) => {
            let mut keys = store.lock();
            count(output, request.words_from(1).filter(|key| keys.remove(key)));
        }
        (b"EXISTS", 2..) => {
            let keys = store.lock();
            count(output, request.words_from(1).filter(|key| keys.contains(key)));
        }
        (b"INCR", 2) => increment(store, request.word(1), Some(1), output),
        (b"DECR", 2) => increment(store, request.word(1), Some(-1), output),
        (b"INCRBY", 3) => increment(store, request.word(1), number(request.word(2)), output),
        (b"MGET", 2..) => get_many(store, request, output),
        (b"MSET", 3..) if words % 2 == 1 => {
            let mut keys = store.lock();
            let mut rest = request.words_from(1);
            while let (Some(key), Some(value)) = (rest.next(), rest.next()) {
                keys.set(key, value, None);
            }
            reply::text(output, "OK");
        }
        (b"EXPIRE", 3) => expire(store, request, 1000, output),
        (b"PEXPIRE", 3) => expire(store, request, 1, output),
        (b"TTL", 2) => time_to_live(store, request, 1000, output),
        (b"PTTL", 2) => time_to_live(store, request, 1, output),
        (b"PERSIST", 2) => {
            let mut keys = store.lock();
            let key = request.word(1);
            let expires = keys.expiry(key).flatten().is_some();
            reply::integer(output, i64::from(expires && keys.set_expiry(key, None)));
        }
        (b"DBSIZE", 1) => reply::integer(output, store.lock().len() as i64),
        (b"FLUSHALL" | b"FLUSHDB", 1..=2) => {
            store.lock().clear();
            reply::text(output, "OK");
        }
        (b"PING", 1) => reply::text(output, "PONG"),
        (b"PING" | b"ECHO", 2) => reply::string(output, request.word(1)),
        (b"QUIT", _) => {
            reply::text(output, "OK");
            return Then::Close;
        }
        (b"SELECT", 2) => match number(request.word(1)) {
            Some(0) => reply::text(output, "OK"),
            Some(_) => reply::error(output, "ERR DB index is out of range"),
            None => reply::error(output, NO_INTEGER),
        },
        (b"HELLO", _) => hello(request, output),
        (b"COMMAND", _) => reply::array(output, 0),
        (b"CLIENT", 2..) => client(request, output),
        (b"CONFIG", 2..) => config(request, output),
        (
            b"GET" | b"SET" | b"DEL" | b"UNLINK" | b"EXISTS" | b"INCR" | b"DECR" | b"INCRBY" | b"MGET" | b"MSET"
            | b"EXPIRE" | b"PEXPIRE" | b"TTL" | b"PTTL" | b"PERSIST" | b"DBSIZE" | b"FLUSHALL" | b"FLUSHDB" | b"PING"
            | b"ECHO" | b"SELECT" | b"CLIENT" | b"CONFIG",
            _,
        ) => {
            let name = name.to_ascii_lowercase();
            let name = name.escape_ascii();
            reply::error(
                output,
                format_args!("ERR wrong number of arguments for '{name}' command"),
            );
        }
        _ => unknown(request, output),
    }
    Then::Continue
}

/// Copies a word in upper case. Returns `None` if it is longer than all names.
fn upper_case<'a>(word: &[u8], name: &'a mut [u8; LONGEST_NAME]) -> Option<&'a [u8]> {
    let name = name.get_mut(..word.len())?;
    name.copy_from_slice(word);
    name.make_ascii_uppercase();
    Some(name)
}

fn unknown(request: Request<'_>, output: &mut Vec<u8>) {
    // Control characters are escaped, so the answer is one line whatever the peer has sent.
    let name = request.word(0);
    let name = name[..name.len().min(128)].escape_ascii();
    reply::error(output, format_args!("ERR unknown command '{name}'"));
}

fn count<T>(output: &mut Vec<u8>, items: impl Iterator<Item = T>) {
    reply::integer(output, items.count() as i64);
}

/// `SET key value [NX | XX] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`
fn set(store: &Store, request: Request<'_>, output: &mut Vec<u8>) {
    let (key, value) = (request.word(1), request.word(2));
    let (mut only_new, mut only_old, mut keep) = (false, false, false);
    let mut expires = None;
    let mut rest = request.words_from(3);
    while let Some(word) = rest.next() {
        let mut name = [0; LONGEST_NAME];
        let timed = expires.is_some() || keep;
        match upper_case(word, &mut name) {
            Some(b"NX") if !only_old => only_new = true,
            Some(b"XX") if !only_new => only_old = true,
            Some(b"KEEPTTL") if !timed => keep = true,
            Some(unit @ (b"EX" | b"PX" | b"EXAT" | b"PXAT")) if !timed && rest.len() > 0 => {
                let Some(time) = rest.next().and_then(number) else {
                    return reply::error(output, NO_INTEGER);
                };
                let unit_in_ms = if unit.starts_with(b"EX") { 1000 } else { 1 };
                let time = time.checked_mul(unit_in_ms).filter(|&ms| ms > 0);
                let at = time.and_then(|ms| {
                    if unit.ends_with(b"AT") {
                        at_unix_time(ms)
                    } else {
                        after(ms)
                    }
                });
                match at {
                    Some(at) => expires = Some(at),
                    None => return reply::error(output, "ERR invalid expire time in 'set' command"),
                }
            }
            _ => return reply::error(output, SYNTAX),
        }
    }
    let mut keys = store.lock();
    if (only_new && keys.contains(key)) || (only_old && !keys.contains(key)) {
        return reply::null(output);
    }
    if keep {
        expires = keys.expiry(key).flatten();
    }
    keys.set(key, value, expires);
    reply::text(output, "OK");
}

/// Adds to a number, which is zero if there is no such key.
fn increment(store: &Store, key: &[u8], by: Option<i64>, output: &mut Vec<u8>) {
    let mut keys = store.lock();
    let before = keys.get(key).map_or(Some(0), number);
    let (Some(before), Some(by)) = (before, by) else {
        return reply::error(output, NO_INTEGER);
    };
    let Some(sum) = before.checked_add(by) else {
        return reply::error(output, "ERR increment or decrement would overflow");
    };
    let expires = keys.expiry(key).flatten();
    keys.set(key, sum.to_string().as_bytes(), expires);
    reply::integer(output, sum);
}

fn get_many(store: &Store, request: Request<'_>, output: &mut Vec<u8>) {
    let keys = store.lock();
    let values = || request.words_from(1).map(|key| keys.get(key));
    // A small request may name a large value many times.
    let bytes: usize = values().flatten().map(<[u8]>::len).sum();
    if bytes > LARGEST_ANSWER {
        return reply::error(output, "ERR the answer is too large");
    }
    reply::array(output, request.len() - 1);
    for value in values() {
        match value {
            Some(value) => reply::string(output, value),
            None => reply::null(output),
        }
    }
}

/// `EXPIRE key time`, in units of so many milliseconds.
fn expire(store: &Store, request: Request<'_>, unit_in_ms: i64, output: &mut Vec<u8>) {
    let key = request.word(1);
    let Some(time) = number(request.word(2)) else {
        return reply::error(output, NO_INTEGER);
    };
    let Some(ms) = time.checked_mul(unit_in_ms) else {
        return reply::error(output, "ERR invalid expire time in 'expire' command");
    };
    let mut keys = store.lock();
    let known = if ms <= 0 {
        keys.remove(key)
    } else {
        match after(ms) {
            Some(at) => keys.set_expiry(key, Some(at)),
            None => return reply::error(output, "ERR invalid expire time in 'expire' command"),
        }
    };
    reply::integer(output, i64::from(known));
}

fn time_to_live(store: &Store, request: Request<'_>, unit_in_ms: u128, output: &mut Vec<u8>) {
    let left = match store.lock().expiry(request.word(1)) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => {
            let ms = at.saturating_duration_since(Instant::now()).as_millis();
            // Rounded as Redis does.
            i64::try_from((ms + unit_in_ms / 2) / unit_in_ms).unwrap_or(i64::MAX)
        }
    };
    reply::integer(output, left);
}

/// Returns the time after so many milliseconds, unless it is too far away.
fn after(ms: i64) -> Option<Instant> {
    let ms = u64::try_from(ms).ok()?;
    Instant::now().checked_add(Duration::from_millis(ms))
}

/// Returns a time given in milliseconds since 1970. A time that has passed is now.
fn at_unix_time(ms: i64) -> Option<Instant> {
    let at = UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(ms).ok()?))?;
    let left = at.duration_since(SystemTime::now()).unwrap_or_default();
    Instant::now().checked_add(left)
}

/// `HELLO [2]`: clients ask which protocol is spoken.
fn hello(request: Request<'_>, output: &mut Vec<u8>) {
    if request.len() > 1 && number(request.word(1)) != Some(2) {
        return reply::error(output, "NOPROTO unsupported protocol version");
    }
    reply::array(output, 4);
    reply::string(output, b"server");
    reply::string(output, b"bowline-kv");
    reply::string(output, b"proto");
    reply::integer(output, 2);
}

/// `CLIENT SETINFO ..`: clients introduce themselves, and want to hear that this is fine.
fn client(request: Request<'_>, output: &mut Vec<u8>) {
    let mut name = [0; LONGEST_NAME];
    match upper_case(request.word(1), &mut name) {
        Some(b"SETINFO" | b"SETNAME") => reply::text(output, "OK"),
        Some(b"GETNAME") => reply::null(output),
        _ => reply::error(output, "ERR unknown subcommand of 'client'"),
    }
}

/// `CONFIG GET name`: redis-benchmark asks for settings that this server does not have.
fn config(request: Request<'_>, output: &mut Vec<u8>) {
    let mut name = [0; LONGEST_NAME];
    match (upper_case(request.word(1), &mut name), request.len()) {
        (Some(b"GET"), 3) => {
            reply::array(output, 2);
            reply::string(output, request.word(2));
            reply::string(output, b"");
        }
        _ => reply::error(output, "ERR unknown subcommand of 'config'"),
    }
}
