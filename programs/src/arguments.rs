//! Command lines: options, flags, and what is left.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

/// The exit code of a program whose command line is wrong.
pub const BAD_COMMAND_LINE: u8 = 2;

/// Reads the command line of the process.
///
/// # Errors
///
/// The exit code of the process, if the program is not to run: after `--help`, or for a command line that `read` refuses. The help or
/// the error was printed.
pub fn read<T>(help: &str, read: impl FnOnce(&mut Arguments) -> Result<T, ArgumentError>) -> Result<T, ExitCode> {
    let read_words = || {
        let words = std::env::args_os().skip(1).map(std::ffi::OsString::into_string);
        let words = words.collect::<Result<Vec<_>, _>>();
        let words = words.map_err(|word| ArgumentError(format!("not valid UTF-8: {}", word.display())))?;
        let mut arguments = Arguments::new(words);
        if arguments.flag("--help") {
            return Ok(None);
        }
        let options = read(&mut arguments)?;
        arguments.finish()?;
        Ok(Some(options))
    };
    match read_words() {
        Ok(Some(options)) => Ok(options),
        Ok(None) => {
            // The reader may leave early, as in `kv --help | head -1`.
            let _ = io::stdout().write_all(help.as_bytes());
            Err(ExitCode::SUCCESS)
        }
        Err(error) => {
            let ArgumentError(message) = error;
            eprintln!("{message}\nTry --help.");
            Err(ExitCode::from(BAD_COMMAND_LINE))
        }
    }
}

/// The words of a command line that were not read yet.
#[derive(Clone, Debug)]
pub struct Arguments {
    words: Vec<String>,
}

impl Arguments {
    /// Takes the words after the name of the program.
    pub fn new(words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Arguments {
            words: words.into_iter().map(Into::into).collect(),
        }
    }

    /// Reads a flag: returns whether it is present.
    pub fn flag(&mut self, name: &str) -> bool {
        let index = self.options().position(|word| word == name);
        index.map(|index| self.words.remove(index)).is_some()
    }

    /// Reads the value of an option, written `--name value` or `--name=value`.
    ///
    /// # Errors
    ///
    /// The value is missing or is not a `T`.
    pub fn value<T>(&mut self, name: &str) -> Result<Option<T>, ArgumentError>
    where
        T: FromStr<Err: fmt::Display>,
    {
        let is_it = |word: &str| {
            word.strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        let Some(index) = self.options().position(is_it) else {
            return Ok(None);
        };
        let word = self.words.remove(index);
        let text = match word.split_once('=') {
            Some((_, text)) => text.to_owned(),
            None if index < self.words.len() => self.words.remove(index),
            None => return Err(ArgumentError(format!("{name} needs a value"))),
        };
        match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(ArgumentError(format!("{name} {text}: {error}"))),
        }
    }

    /// Reads the value of an option that has a default.
    ///
    /// # Errors
    ///
    /// The value is missing or is not a `T`.
    pub fn value_or<T>(&mut self, name: &str, default: T) -> Result<T, ArgumentError>
    where
        T: FromStr<Err: fmt::Display>,
    {
        Ok(self.value(name)?.unwrap_or(default))
    }

    /// Reads the value of an option that has a default and must not be zero.
    ///
    /// # Errors
    ///
    /// The value is missing, is zero, or is not a number.
    pub fn count_or(&mut self, name: &str, default: usize) -> Result<usize, ArgumentError> {
        match self.value_or(name, default)? {
            0 => Err(ArgumentError(format!("{name} 0: must be at least 1"))),
            count => Ok(count),
        }
    }

    /// Reads the words that are no options. Call it after all options were read.
    ///
    /// # Errors
    ///
    /// An option is left, which the program does not know.
    pub fn words(&mut self) -> Result<Vec<String>, ArgumentError> {
        if let Some(unknown) = self.options().find(|word| word.starts_with('-') && word.len() > 1) {
            return Err(ArgumentError(format!("unknown option {unknown}")));
        }
        let mut words = std::mem::take(&mut self.words);
        // What follows `--` is no option.
        if let Some(index) = words.iter().position(|word| word == "--") {
            words.remove(index);
        }
        Ok(words)
    }

    /// Checks that every word was read.
    ///
    /// # Errors
    ///
    /// One was not.
    pub fn finish(&mut self) -> Result<(), ArgumentError> {
        match self.words()?.first() {
            None => Ok(()),
            Some(word) => Err(ArgumentError(format!("unexpected argument {word}"))),
        }
    }

    /// Iterates over the words up to `--`.
    fn options(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str).take_while(|word| *word != "--")
    }
}

/// A command line that a program refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentError(pub String);

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ArgumentError {}

/// A positive number of seconds, with a fraction: `0.5`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seconds(pub Duration);

impl FromStr for Seconds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let seconds = text.parse::<f64>().map_err(|_| "not a number of seconds")?;
        match Duration::try_from_secs_f64(seconds) {
            Ok(Duration::ZERO) | Err(_) => Err("must be a positive number of seconds"),
            Ok(duration) => Ok(Seconds(duration)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_flags_and_words_are_told_apart() {
        let mut arguments = Arguments::new(["one", "--width", "4", "--quiet", "--name=knot", "--", "--two"]);
        assert_eq!(arguments.value("--width"), Ok(Some(4)));
        assert_eq!(arguments.value::<String>("--name"), Ok(Some("knot".to_owned())));
        assert!(arguments.flag("--quiet"));
        assert!(!arguments.flag("--two"));
        assert_eq!(arguments.words(), Ok(vec!["one".to_owned(), "--two".to_owned()]));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let refused = |words: &[&str]| {
            let mut arguments = Arguments::new(words.iter().copied());
            let count = arguments.count_or("--count", 1);
            count.and_then(|_| arguments.finish()).unwrap_err().to_string()
        };
        assert_eq!(refused(&["--count"]), "--count needs a value");
        assert_eq!(refused(&["--count", "0"]), "--count 0: must be at least 1");
        assert_eq!(refused(&["--count", "x"]), "--count x: invalid digit found in string");
        assert_eq!(refused(&["--cuont=1"]), "unknown option --cuont=1");
        assert_eq!(refused(&["more"]), "unexpected argument more");
    }

    #[test]
    fn seconds_are_positive() {
        assert_eq!("0.25".parse(), Ok(Seconds(Duration::from_millis(250))));
        for refused in ["0", "-1", "nan", "inf", "1e300", "soon"] {
            assert!(refused.parse::<Seconds>().is_err(), "{refused}");
        }
    }
}
