//! The definition of an adaptor that names the value and the error of the sender inside.

use crate::Sender;

/// A sender of the value `T` and the error `E`.
///
/// It says the same as `Sender<Value = T, Error = E>`, in one bound on a trait, whose proof the compiler keeps. Two
/// bounds on associated types are proved anew each time, so a chain of senders would take twice the time per step.
pub trait SenderOf<T, E>: Sender<Value = T, Error = E> {}

impl<T, E, S: Sender<Value = T, Error = E>> SenderOf<T, E> for S {}

/// Defines the sender of an adaptor, with [`Clone`], [`Copy`] and [`Debug`](core::fmt::Debug) as its fields have them.
///
/// The type has two parameters more than its fields need: `T` and `E`, the value and the error of the first parameter. Code
/// that names the type may leave them out. The implementation of [`Sender`](crate::Sender) states its bounds on them. With
/// the projections `S::Value` and `S::Error` in these bounds, the compiler would walk the chain of senders to its beginning
/// each time it needs one of their associated types. That makes the time for a chain cubic in its length.
macro_rules! adapted {
    ($(#[$attribute:meta])* pub struct $name:ident<$first:ident, $($parameter:ident),+> { $($field:ident: $type:ident),+ $(,)? }) => {
        $(#[$attribute])*
        #[must_use = "senders do nothing until they are connected and started"]
        pub struct $name<$first, $($parameter,)+ T = <$first as crate::Sender>::Value, E = <$first as crate::Sender>::Error> {
            $($field: $type,)+
            types: core::marker::PhantomData<fn() -> (T, E)>,
        }

        impl<$first, $($parameter,)+ T, E> $name<$first, $($parameter,)+ T, E> {
            #[inline]
            pub(crate) fn new($($field: $type),+) -> Self {
                $name { $($field,)+ types: core::marker::PhantomData }
            }
        }

        impl<$first: Clone, $($parameter: Clone,)+ T, E> Clone for $name<$first, $($parameter,)+ T, E> {
            #[inline]
            fn clone(&self) -> Self {
                $name::new($(self.$field.clone()),+)
            }
        }

        impl<$first: Copy, $($parameter: Copy,)+ T, E> Copy for $name<$first, $($parameter,)+ T, E> {}

        impl<$first: core::fmt::Debug, $($parameter: core::fmt::Debug,)+ T, E> core::fmt::Debug for $name<$first, $($parameter,)+ T, E> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &self.$field))+.finish()
            }
        }
    };
}

pub(crate) use adapted;
