//! The arguments of `#[bowline::main]` and `#[bowline_tokio::main]`.

use std::iter::Peekable;

use proc_macro::token_stream::IntoIter;
use proc_macro::{Span, TokenStream, TokenTree};

use crate::function::Complaint;

const THREADS_TWICE: &str = "the option `threads` is given twice";

/// The options of a global pool: `threads = 4`.
#[derive(Default)]
pub(crate) struct PoolOptions {
    threads: Option<usize>,
}

impl PoolOptions {
    pub(crate) fn parse(arguments: TokenStream) -> Result<Self, Complaint> {
        const USAGE: &str = "the only option is `threads = 4`";
        let mut options = PoolOptions::default();
        let mut tokens = arguments.into_iter().peekable();
        while let Some(name) = tokens.next() {
            if name.to_string() != "threads" {
                return Err(Complaint::new(USAGE, name.span()));
            }
            let value = value(&mut tokens).ok_or(Complaint::new(USAGE, name.span()))?;
            if options.threads.replace(number(&value)?).is_some() {
                return Err(Complaint::new(THREADS_TWICE, name.span()));
            }
        }
        Ok(options)
    }

    /// Returns the function that runs the future, up to its last argument, and the arguments before that.
    pub(crate) fn runner(&self) -> (&'static str, String) {
        match self.threads {
            None => ("::bowline::task::block_on", String::new()),
            Some(threads) => ("::bowline::task::block_on_with_threads", format!("{threads}usize,")),
        }
    }
}

/// The options of a runtime: `flavor = "current_thread"` and `threads = 4`.
#[derive(Default)]
pub(crate) struct RuntimeOptions {
    current_thread: bool,
    threads: Option<usize>,
}

const USAGE: &str = "the options are `flavor = \"multi_thread\"`, `flavor = \"current_thread\"` and `threads = 4`";

impl RuntimeOptions {
    pub(crate) fn parse(arguments: TokenStream) -> Result<Self, Complaint> {
        let mut options = RuntimeOptions::default();
        let mut has_flavor = false;
        let mut tokens = arguments.into_iter().peekable();
        while let Some(name) = tokens.next() {
            let value = value(&mut tokens).ok_or(Complaint::new(USAGE, name.span()))?;
            match (name.to_string().as_str(), value.to_string().as_str()) {
                ("flavor", _) if has_flavor => {
                    return Err(Complaint::new("the option `flavor` is given twice", name.span()));
                }
                ("threads", _) if options.threads.is_some() => {
                    return Err(Complaint::new(THREADS_TWICE, name.span()));
                }
                ("flavor", "\"multi_thread\"") => has_flavor = true,
                ("flavor", "\"current_thread\"") => (has_flavor, options.current_thread) = (true, true),
                ("threads", _) => options.threads = Some(number(&value)?),
                ("flavor", _) => return Err(Complaint::new(USAGE, value.span())),
                _ => return Err(Complaint::new(USAGE, name.span())),
            }
        }
        if options.current_thread && options.threads.is_some() {
            let message = "the flavor `current_thread` has no number of threads";
            return Err(Complaint::new(message, Span::call_site()));
        }
        Ok(options)
    }

    /// Returns the function that runs the future, up to its argument.
    pub(crate) fn runner(&self) -> String {
        let flavor = if self.current_thread {
            "current_thread()"
        } else {
            "multi_thread()"
        };
        let threads = self
            .threads
            .map_or_else(String::new, |threads| format!(".threads({threads}usize)"));
        format!("::bowline_tokio::Main::{flavor}{threads}.run")
    }
}

/// Parses a number of threads.
fn number(value: &TokenTree) -> Result<usize, Complaint> {
    match value.to_string().parse() {
        Ok(0) | Err(_) => Err(Complaint::new(
            "the number of threads is a whole number, at least one",
            value.span(),
        )),
        Ok(threads) => Ok(threads),
    }
}

/// Parses `= value`, and a comma behind it.
fn value(tokens: &mut Peekable<IntoIter>) -> Option<TokenTree> {
    tokens.next().filter(|token| token.to_string() == "=")?;
    let value = tokens.next()?;
    match tokens.next() {
        None => Some(value),
        Some(comma) => (comma.to_string() == ",").then_some(value),
    }
}
