//! The attributes `#[bowline::main]` and `#[bowline::test]`, which `bowline` re-exports, and `#[bowline_tokio::main]`.
//!
//! Both wrap the function in a plain function of the same name:
//!
//! ```text
//! fn main() -> Result {
//!     async fn main() -> Result { … }
//!     ::bowline::task::block_on(main())
//! }
//! ```

mod function;
mod options;

use function::{Complaint, Function};
use options::RuntimeOptions;
use proc_macro::TokenStream;

/// Runs an `async fn main` on a run loop of the main thread.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(&arguments, item, "")
}

/// Makes an `async fn` a test, run on a run loop of the test's thread.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(&arguments, item, "#[::core::prelude::v1::test]")
}

/// Runs an `async fn main` as a task on the threads of a tokio runtime. Re-exported as `#[bowline_tokio::main]`.
#[proc_macro_attribute]
pub fn tokio_main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = Function::parse(item);
    match RuntimeOptions::parse(arguments).and_then(|options| function.check().map(|()| options)) {
        Ok(options) => function.wrapped("", &options.runner()),
        Err(complaint) => function.refused(&complaint),
    }
}

/// Expands to the plain function, with `attribute` before its own attributes, or to a compile error.
fn expand(arguments: &TokenStream, item: TokenStream, attribute: &str) -> TokenStream {
    let function = Function::parse(item);
    let complaint = match arguments.clone().into_iter().next() {
        Some(argument) => Err(Complaint::new("the attribute takes no arguments", argument.span())),
        None => function.check(),
    };
    match complaint {
        Ok(()) => function.wrapped(attribute, "::bowline::task::block_on"),
        Err(complaint) => function.refused(&complaint),
    }
}
