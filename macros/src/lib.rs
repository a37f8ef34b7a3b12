//! The attributes `#[bowline::main]` and `#[bowline::test]`, which `bowline` re-exports, and `#[bowline_tokio::main]`.
//!
//! They wrap the function in a plain function of the same name:
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
use options::{PoolOptions, RuntimeOptions};
use proc_macro::TokenStream;

/// Runs an `async fn main` on a run loop of the main thread.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = Function::parse(item);
    match PoolOptions::parse(arguments).and_then(|options| function.check().map(|()| options)) {
        Ok(options) => {
            let (runner, arguments) = options.runner();
            function.wrapped("", runner, &arguments)
        }
        Err(complaint) => function.refused(&complaint),
    }
}

/// Makes an `async fn` a test, run on a run loop of the test's thread.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = Function::parse(item);
    let checked = match arguments.into_iter().next() {
        Some(argument) => Err(Complaint::new(
            "the attribute takes no arguments: the tests of a program share the global pool",
            argument.span(),
        )),
        None => function.check(),
    };
    match checked {
        Ok(()) => function.wrapped("#[::core::prelude::v1::test]", "::bowline::task::block_on", ""),
        Err(complaint) => function.refused(&complaint),
    }
}

/// Runs an `async fn main` as a task on the threads of a tokio runtime. Re-exported as `#[bowline_tokio::main]`.
#[proc_macro_attribute]
pub fn tokio_main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = Function::parse(item);
    match RuntimeOptions::parse(arguments).and_then(|options| function.check().map(|()| options)) {
        Ok(options) => function.wrapped("", &options.runner(), ""),
        Err(complaint) => function.refused(&complaint),
    }
}
