//! The attributes of `bowline`, which has them under its own name: `#[bowline::main]` and `#[bowline::test]`.
//!
//! Both keep the function as it is, and put a plain function of the same name around it:
//!
//! ```text
//! fn main() -> Result {
//!     async fn main() -> Result { … }
//!     ::bowline::task::block_on(main())
//! }
//! ```

mod function;

use function::{Complaint, Function};
use proc_macro::TokenStream;

/// Runs an `async fn main` on a run loop of the main thread.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(&arguments, item, "")
}

/// A test that is an `async fn`, run on a run loop of the test's thread.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(&arguments, item, "#[::core::prelude::v1::test]")
}

/// The function as a plain one, with an attribute before its own; or else what is wrong with it.
fn expand(arguments: &TokenStream, item: TokenStream, attribute: &str) -> TokenStream {
    let function = Function::parse(item);
    let complaint = match arguments.clone().into_iter().next() {
        Some(argument) => Err(Complaint::new("the attribute takes no arguments", argument.span())),
        None => function.check(),
    };
    match complaint {
        Ok(()) => function.wrapped(attribute),
        Err(complaint) => function.refused(&complaint),
    }
}
