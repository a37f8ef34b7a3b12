//! Requests of RESP2, the protocol of Redis, and how they are found in a stream of bytes.
//!
//! A request is an array of strings, `*2\r\n$3\r\nGET\r\n$4\r\nname\r\n`, or a line of words, `GET name\r\n`. The input is not
//! trusted: every length is checked before anything is kept for it.

use std::fmt;
use std::ops::Range;

/// The maximum number of words in a request.
const MOST_WORDS: usize = 64 * 1024;
/// The maximum length of a request that is a line of words.
const LONGEST_LINE: usize = 64 * 1024;
/// The maximum length of a line that says how long something is.
const LONGEST_LENGTH: usize = 32;

/// Finds requests in a stream of bytes. Keeps the memory for the words of one request.
#[derive(Clone, Debug)]
pub struct Decoder {
    longest: usize,
    words: Vec<Range<usize>>,
}

/// A request: the words of a command.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    input: &'a [u8],
    words: &'a [Range<usize>],
}

impl<'a> Request<'a> {
    /// Returns the number of words.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns whether the request has no words. Such a request is valid, and has no answer.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns a word. Those that do not exist are empty.
    pub fn word(&self, index: usize) -> &'a [u8] {
        self.words.get(index).map_or(b"", |range| &self.input[range.clone()])
    }

    /// Iterates over the words from an index on.
    pub fn words_from(&self, first: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let input = self.input;
        let rest = self.words.get(first..).unwrap_or_default();
        rest.iter().map(move |range| &input[range.clone()])
    }
}

impl Decoder {
    /// Makes a decoder that refuses requests of more bytes than `longest`.
    pub fn new(longest: usize) -> Self {
        Decoder {
            longest,
            words: Vec::new(),
        }
    }

    /// Finds the request at the beginning of the input. Returns it and its length, or `None` if the input ends before it.
    ///
    /// # Errors
    ///
    /// The input is not the beginning of a request, or that of one that is too large.
    pub fn decode<'a>(&'a mut self, input: &'a [u8]) -> Result<Option<(Request<'a>, usize)>, ProtocolError> {
        self.words.clear();
        let end = match input.first() {
            None => None,
            Some(b'*') => self.array(input)?,
            Some(_) => self.line(input)?,
        };
        match end {
            Some(end) if end > self.longest => Err(ProtocolError::TooLarge(self.longest)),
            None if input.len() > self.longest => Err(ProtocolError::TooLarge(self.longest)),
            None => Ok(None),
            Some(end) => {
                let words = &self.words;
                Ok(Some((Request { input, words }, end)))
            }
        }
    }

    /// Finds the words of an array. Returns where it ends.
    fn array(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some((count, mut at)) = length(input, 1).map_err(|Malformed| ProtocolError::ArrayLength)? else {
            return Ok(None);
        };
        // No words, or fewer, is a request that has no answer.
        let count = usize::try_from(count).unwrap_or(0);
        if count > MOST_WORDS {
            return Err(ProtocolError::ArrayLength);
        }
        for _ in 0..count {
            match input.get(at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(&other) => return Err(ProtocolError::NoString(other)),
            }
            let Some((bytes, begin)) = length(input, at + 1).map_err(|Malformed| ProtocolError::StringLength)? else {
                return Ok(None);
            };
            let bytes = usize::try_from(bytes).map_err(|_| ProtocolError::StringLength)?;
            // The announced length is refused before the bytes arrive.
            if bytes > self.longest.saturating_sub(begin) {
                return Err(ProtocolError::TooLarge(self.longest));
            }
            let end = begin + bytes;
            match input.get(end..end + 2) {
                None => return Ok(None),
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError::StringLength),
            }
            self.words.push(begin..end);
            at = end + 2;
        }
        Ok(Some(at))
    }

    /// Finds the words of a line. Returns where it ends.
    fn line(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(end) = input.iter().take(LONGEST_LINE).position(|&byte| byte == b'\n') else {
            return match input.len() < LONGEST_LINE {
                true => Ok(None),
                false => Err(ProtocolError::LineTooLong),
            };
        };
        let mut at = 0;
        for word in input[..end].split(u8::is_ascii_whitespace) {
            if !word.is_empty() {
                self.words.push(at..at + word.len());
            }
            at += word.len() + 1;
        }
        Ok(Some(end + 1))
    }
}

/// A line that is no length.
struct Malformed;

/// Reads the line at `at` as a number. Returns it and where the next line begins, or `None` if the input ends before.
fn length(input: &[u8], at: usize) -> Result<Option<(i64, usize)>, Malformed> {
    let rest = &input[at..];
    let Some(end) = rest.iter().take(LONGEST_LENGTH).position(|&byte| byte == b'\n') else {
        return if rest.len() < LONGEST_LENGTH {
            Ok(None)
        } else {
            Err(Malformed)
        };
    };
    let digits = rest[..end].strip_suffix(b"\r").ok_or(Malformed)?;
    Ok(Some((number(digits).ok_or(Malformed)?, at + end + 1)))
}

/// Reads a decimal number as Redis does: no sign but `-`, no spaces.
pub(super) fn number(digits: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    text.parse().ok()
}

/// Input that is not RESP2. Its text is that of the answer, after which the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The number of words is malformed or too large.
    ArrayLength,
    /// The length of a word is malformed, or does not fit the word.
    StringLength,
    /// This byte is where a word should begin.
    NoString(u8),
    /// A line of words is too long.
    LineTooLong,
    /// The request has more bytes than this limit.
    TooLarge(usize),
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            ProtocolError::ArrayLength => f.write_str("invalid multibulk length"),
            ProtocolError::StringLength => f.write_str("invalid bulk length"),
            ProtocolError::NoString(byte) => write!(f, "expected '$', got '{}'", byte.escape_ascii()),
            ProtocolError::LineTooLong => f.write_str("too big inline request"),
            ProtocolError::TooLarge(limit) => write!(f, "request is larger than {limit} bytes"),
        }
    }
}

impl std::error::Error for ProtocolError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes one request. Returns its words and its length.
    fn decode(input: &[u8]) -> Result<Option<(Vec<String>, usize)>, ProtocolError> {
        let mut decoder = Decoder::new(100);
        let decoded = decoder.decode(input)?;
        Ok(decoded.map(|(request, end)| {
            let words = request
                .words_from(0)
                .map(|word| String::from_utf8_lossy(word).into_owned());
            (words.collect(), end)
        }))
    }

    #[test]
    fn a_request_is_found_when_it_is_whole() {
        let whole = b"*2\r\n$3\r\nGET\r\n$4\r\nname\r\n";
        let words = vec!["GET".to_owned(), "name".to_owned()];
        for cut in 0..whole.len() {
            assert_eq!(decode(&whole[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(decode(whole), Ok(Some((words.clone(), whole.len()))));
        // What follows is left alone.
        let more = [&whole[..], b"*1\r\n$4"].concat();
        assert_eq!(decode(&more), Ok(Some((words, whole.len()))));
    }

    #[test]
    fn lines_of_words_are_requests() {
        let words = vec!["GET".to_owned(), "name".to_owned()];
        assert_eq!(decode(b"GET name\r\n"), Ok(Some((words.clone(), 10))));
        assert_eq!(decode(b"  GET\t name \n"), Ok(Some((words, 13))));
        assert_eq!(decode(b"GET na"), Ok(None));
        assert_eq!(decode(b"\r\n"), Ok(Some((vec![], 2))));
    }

    #[test]
    fn empty_requests_are_skipped() {
        assert_eq!(decode(b"*0\r\n"), Ok(Some((vec![], 4))));
        assert_eq!(decode(b"*-1\r\n"), Ok(Some((vec![], 5))));
    }

    #[test]
    fn garbage_is_refused() {
        assert_eq!(decode(b"*x\r\n"), Err(ProtocolError::ArrayLength));
        assert_eq!(decode(b"*+1\r\n"), Err(ProtocolError::ArrayLength));
        assert_eq!(decode(b"*1\n"), Err(ProtocolError::ArrayLength));
        assert_eq!(
            decode(b"*1234567890123456789012345678901234567890"),
            Err(ProtocolError::ArrayLength)
        );
        assert_eq!(decode(b"*99999999\r\n"), Err(ProtocolError::ArrayLength));
        assert_eq!(decode(b"*1\r\n!3\r\n"), Err(ProtocolError::NoString(b'!')));
        assert_eq!(decode(b"*1\r\n$-1\r\n"), Err(ProtocolError::StringLength));
        assert_eq!(decode(b"*1\r\n$3\r\nPINGS\r\n"), Err(ProtocolError::StringLength));
        let long = vec![0xff; LONGEST_LINE];
        assert_eq!(decode(&long), Err(ProtocolError::LineTooLong));
    }

    #[test]
    fn large_requests_are_refused_before_they_arrive() {
        assert_eq!(decode(b"*1\r\n$1000\r\n"), Err(ProtocolError::TooLarge(100)));
        assert_eq!(
            decode(b"*1\r\n$9223372036854775807\r\n"),
            Err(ProtocolError::TooLarge(100))
        );
        // Many small words are too large together.
        let many = [&b"*50\r\n"[..], &b"$1\r\nx\r\n".repeat(49)].concat();
        assert_eq!(decode(&many), Err(ProtocolError::TooLarge(100)));
        assert_eq!(decode(&[b'x'; 101]), Err(ProtocolError::TooLarge(100)));
    }
}
