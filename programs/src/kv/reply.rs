//! Answers of RESP2.

use std::fmt;
use std::io::Write;

/// Appends a short text, such as `OK`.
pub(super) fn text(output: &mut Vec<u8>, text: &str) {
    output.push(b'+');
    output.extend_from_slice(text.as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// Appends an error. Its first word is the kind of error.
pub(super) fn error(output: &mut Vec<u8>, error: impl fmt::Display) {
    write(output, format_args!("-{error}\r\n"));
}

/// Appends a number.
pub(super) fn integer(output: &mut Vec<u8>, number: i64) {
    write(output, format_args!(":{number}\r\n"));
}

/// Appends a string of any bytes.
pub(super) fn string(output: &mut Vec<u8>, bytes: &[u8]) {
    write(output, format_args!("${}\r\n", bytes.len()));
    output.extend_from_slice(bytes);
    output.extend_from_slice(b"\r\n");
}

/// Appends the answer for a value that does not exist.
pub(super) fn null(output: &mut Vec<u8>) {
    output.extend_from_slice(b"$-1\r\n");
}

/// Appends the beginning of an array. Its elements follow.
pub(super) fn array(output: &mut Vec<u8>, elements: usize) {
    write(output, format_args!("*{elements}\r\n"));
}

fn write(output: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    output.write_fmt(text).expect("a vector takes everything");
}
