//! One connection, without its socket: bytes in, bytes out.

use super::commands::{self, Then};
use super::protocol::Decoder;
use super::{Options, Store, reply};

/// The number of bytes to read at a time.
const READ: usize = 16 * 1024;
/// The answers are written before more requests are executed once there are this many bytes of them.
const WRITE: usize = 64 * 1024;
/// Buffers that have grown beyond this are freed when they are empty.
const KEEP: usize = 64 * 1024;

/// The buffers of a connection. Both are bounded: the input by the largest request, the output because requests wait.
#[derive(Debug)]
pub struct Session {
    input: Vec<u8>,
    decoder: Decoder,
    output: Vec<u8>,
}

/// What a connection does next, after it has written the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read more input.
    Read,
    /// Execute the requests that wait in the input.
    Execute,
    /// Close the connection.
    Close,
}

impl Session {
    /// Makes the session of a new connection.
    pub fn new(options: &Options) -> Self {
        Session {
            input: Vec::new(),
            decoder: Decoder::new(options.max_request),
            output: Vec::new(),
        }
    }

    /// Returns the buffer to append input to, with room for some.
    pub fn input(&mut self) -> &mut Vec<u8> {
        if self.input.is_empty() && self.input.capacity() > KEEP {
            self.input = Vec::new();
        }
        self.input.reserve(READ);
        &mut self.input
    }

    /// Executes the requests that have arrived, and appends their answers to the output.
    pub fn execute(&mut self, store: &Store) -> Step {
        let mut executed = 0;
        let mut begin = 0;
        let step = loop {
            if self.output.len() >= WRITE {
                break Step::Execute;
            }
            match self.decoder.decode(&self.input[begin..]) {
                Ok(None) => break Step::Read,
                Ok(Some((request, length))) => {
                    begin += length;
                    if request.is_empty() {
                        continue;
                    }
                    executed += 1;
                    if commands::execute(store, request, &mut self.output) == Then::Close {
                        break Step::Close;
                    }
                }
                Err(error) => {
                    reply::error(&mut self.output, format_args!("ERR {error}"));
                    break Step::Close;
                }
            }
        };
        self.input.drain(..begin);
        if executed > 0 {
            store.count_requests(executed);
        }
        step
    }

    /// Returns the answers to write.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Removes answers that were written.
    pub fn written(&mut self, bytes: usize) {
        if bytes == self.output.len() {
            self.output.clear();
            self.output.shrink_to(KEEP);
        } else {
            self.output.drain(..bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends bytes in one piece. Returns the answer, and what the connection does next.
    fn answer(session: &mut Session, store: &Store, bytes: &[u8]) -> (String, Step) {
        session.input().extend_from_slice(bytes);
        let step = session.execute(store);
        let answer = String::from_utf8_lossy(session.output()).replace("\r\n", " ");
        session.written(session.output().len());
        (answer, step)
    }

    fn answers(requests: &[(&str, &str)]) {
        let (store, mut session) = (Store::default(), Session::new(&Options::default()));
        for (request, expected) in requests {
            let bytes = format!("{request}\r\n");
            let (answer, step) = answer(&mut session, &store, bytes.as_bytes());
            assert_eq!(answer.trim_end(), *expected, "{request}");
            assert_eq!(step, Step::Read, "{request}");
        }
    }

    #[test]
    fn set_has_conditions() {
        answers(&[
            ("SET a 1 XX", "$-1"),
            ("SET a 1 nx", "+OK"),
            ("SET a 2 NX", "$-1"),
            ("SET a 2 XX", "+OK"),
            ("GET a", "$1 2"),
            ("SET a 3 NX XX", "-ERR syntax error"),
            ("SET a 3 EX", "-ERR syntax error"),
            ("SET a 3 EX 1 PX 1", "-ERR syntax error"),
            ("SET a 3 EX 0", "-ERR invalid expire time in 'set' command"),
            (
                "SET a 3 EX 9223372036854775807",
                "-ERR invalid expire time in 'set' command",
            ),
            ("SET a 3 PX soon", "-ERR value is not an integer or out of range"),
            ("SET a", "-ERR wrong number of arguments for 'set' command"),
            ("GET a", "$1 2"),
        ]);
    }

    #[test]
    fn keys_expire() {
        answers(&[
            ("SET a 1 EX 100", "+OK"),
            ("TTL a", ":100"),
            ("SET a 2 KEEPTTL", "+OK"),
            ("TTL a", ":100"),
            ("INCR a", ":3"),
            ("TTL a", ":100"),
            ("PERSIST a", ":1"),
            ("PERSIST a", ":0"),
            ("TTL a", ":-1"),
            ("EXPIRE a 50", ":1"),
            ("TTL a", ":50"),
            ("SET a 1", "+OK"),
            ("TTL a", ":-1"),
            ("EXPIRE a -1", ":1"),
            ("TTL a", ":-2"),
            ("EXPIRE a 10", ":0"),
            ("SET b 1 PXAT 1", "+OK"),
            ("EXISTS b", ":0"),
            ("DBSIZE", ":0"),
        ]);
    }

    #[test]
    fn many_keys_at_a_time() {
        answers(&[
            ("MSET a 1 b 2", "+OK"),
            ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
            ("MGET a c b", "*3 $1 1 $-1 $1 2"),
            ("EXISTS a a c", ":2"),
            ("DEL a a c", ":1"),
            ("DBSIZE", ":1"),
            ("FLUSHALL", "+OK"),
            ("DBSIZE", ":0"),
        ]);
    }

    #[test]
    fn numbers() {
        answers(&[
            ("INCR n", ":1"),
            ("INCRBY n -5", ":-4"),
            ("DECR n", ":-5"),
            ("INCRBY n x", "-ERR value is not an integer or out of range"),
            ("SET n 9223372036854775807", "+OK"),
            ("INCR n", "-ERR increment or decrement would overflow"),
            ("SET n knot", "+OK"),
            ("INCR n", "-ERR value is not an integer or out of range"),
        ]);
    }

    #[test]
    fn other_commands() {
        answers(&[
            ("ping", "+PONG"),
            ("PING knot", "$4 knot"),
            ("ECHO knot", "$4 knot"),
            ("ECHO", "-ERR wrong number of arguments for 'echo' command"),
            ("SELECT 0", "+OK"),
            ("SELECT 1", "-ERR DB index is out of range"),
            ("HELLO 3", "-NOPROTO unsupported protocol version"),
            ("COMMAND DOCS", "*0"),
            ("CONFIG GET save", "*2 $4 save $0"),
            ("CLIENT SETINFO LIB-NAME x", "+OK"),
            ("FLY", "-ERR unknown command 'FLY'"),
            (
                "FLY-A-VERY-LONG-WAY-TO-THE-MOON",
                "-ERR unknown command 'FLY-A-VERY-LONG-WAY-TO-THE-MOON'",
            ),
            ("\u{1}\u{2}", "-ERR unknown command '\\x01\\x02'"),
            ("", ""),
        ]);
    }

    #[test]
    fn requests_may_arrive_in_pieces_and_together() {
        let (store, mut session) = (Store::default(), Session::new(&Options::default()));
        let bytes = b"*1\r\n$4\r\nPING\r\nECHO knot\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n".repeat(3);
        for size in 1..bytes.len() {
            let mut all = String::new();
            for piece in bytes.chunks(size) {
                let (answer, step) = answer(&mut session, &store, piece);
                assert_eq!(step, Step::Read);
                all += &answer;
            }
            assert_eq!(all, "+PONG $4 knot $-1 ".repeat(3));
        }
        assert_eq!(store.requests(), 9 * (bytes.len() as u64 - 1));
    }

    #[test]
    fn requests_wait_until_the_answers_are_written() {
        let (store, mut session) = (Store::default(), Session::new(&Options::default()));
        let word = "x".repeat(1000);
        session
            .input()
            .extend_from_slice(format!("ECHO {word}\r\n").repeat(1000).as_bytes());
        let mut written = 0;
        loop {
            let step = session.execute(&store);
            assert!(session.output().len() < WRITE + 2000);
            written += session.output().len();
            session.written(session.output().len());
            match step {
                Step::Execute => {}
                Step::Read => break,
                Step::Close => unreachable!("no request closes the connection"),
            }
        }
        assert_eq!(written, 1000 * (1000 + "$1000\r\n\r\n".len()));
        assert_eq!(store.requests(), 1000);
    }

    #[test]
    fn an_error_of_the_protocol_closes_after_the_answers_before_it() {
        let (store, mut session) = (Store::default(), Session::new(&Options::default()));
        let (answer, step) = answer(&mut session, &store, b"PING\r\n*1\r\n!\r\nPING\r\n");
        assert_eq!(answer, "+PONG -ERR Protocol error: expected '$', got '!' ");
        assert_eq!(step, Step::Close);
    }

    #[test]
    fn quit_is_answered() {
        let (store, mut session) = (Store::default(), Session::new(&Options::default()));
        assert_eq!(
            answer(&mut session, &store, b"QUIT\r\nSET a 1\r\n"),
            ("+OK ".to_owned(), Step::Close)
        );
        assert!(store.is_empty());
    }
}
