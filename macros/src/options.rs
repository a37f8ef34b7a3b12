//! The arguments of `#[bowline_tokio::main]`.

use std::iter::Peekable;

use proc_macro::token_stream::IntoIter;
use proc_macro::{Span, TokenStream, TokenTree};

use crate::function::Complaint;

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
        let mut tokens = arguments.into_iter().peekable();
        while let Some(name) = tokens.next() {
            let value = value(&mut tokens).ok_or(Complaint::new(USAGE, name.span()))?;
            match (name.to_string().as_str(), value.to_string().as_str()) {
                ("flavor", "\"multi_thread\"") => options.current_thread = false,
                ("flavor", "\"current_thread\"") => options.current_thread = true,
                ("threads", number) => match number.parse() {
                    Ok(0) | Err(_) => {
                        return Err(Complaint::new("the number of threads is at least one", value.span()));
                    }
                    Ok(threads) => options.threads = Some(threads),
                },
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

/// Parses `= value`, and a comma behind it.
fn value(tokens: &mut Peekable<IntoIter>) -> Option<TokenTree> {
    tokens.next().filter(|token| token.to_string() == "=")?;
    let value = tokens.next()?;
    match tokens.next() {
        None => Some(value),
        Some(comma) => (comma.to_string() == ",").then_some(value),
    }
}
