//! `Debug` for types whose contents tell a user nothing.

/// Implements `Debug` for a type, given its parameters and its name: prints only the name.
macro_rules! opaque {
    ([$($parameter:tt)*] $name:ident $($arguments:tt)*) => {
        impl<$($parameter)*> ::core::fmt::Debug for $name $($arguments)* {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(::core::stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use opaque;
