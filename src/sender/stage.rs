//! One piece of memory for what an operation holds in turn.

use core::convert::Infallible;
use core::pin::Pin;
use core::ptr;

/// A sender, then the operation it is connected to, then perhaps what follows it: never two at once, in the storage of
/// the largest.
///
/// It always lives inside a pinned operation, so nothing in it moves once it was started; replacing a variant drops
/// what was there, in place.
#[derive(Debug)]
pub(crate) enum Stage<S, O, N = Infallible> {
    /// Not started: dropping it runs nothing.
    Sender(S),
    /// Started.
    Running(O),
    /// What came of it: a second operation, or a result.
    Next(N),
    /// Between two of the others, or over.
    Empty,
}

impl<S, O, N> Stage<S, O, N> {
    /// Takes the sender out.
    ///
    /// # Safety
    ///
    /// `this` is valid, and holds a sender.
    #[inline]
    pub(crate) unsafe fn take_sender(this: *mut Self) -> S {
        // SAFETY: `this` is valid, and a sender is not pinned.
        match unsafe { this.replace(Stage::Empty) } {
            Stage::Sender(sender) => sender,
            // SAFETY: it holds a sender, by the caller's promise.
            _ => unsafe { core::hint::unreachable_unchecked() },
        }
    }

    /// Puts a connected operation in, in place of what is there, and pins it.
    ///
    /// # Safety
    ///
    /// `this` is valid and pinned, and what is there may be dropped.
    #[inline]
    pub(crate) unsafe fn set_running<'a>(this: *mut Self, operation: O) -> Pin<&'a mut O> {
        // SAFETY: `this` is valid, and what is there may be dropped, by the caller's promise.
        unsafe { *this = Stage::Running(operation) };
        // SAFETY: `this` is valid and nobody else looks at it now.
        match unsafe { &mut *this } {
            // SAFETY: `this` is pinned, and the operation is dropped in place only.
            Stage::Running(operation) => unsafe { Pin::new_unchecked(operation) },
            // SAFETY: it was put there just now.
            _ => unsafe { core::hint::unreachable_unchecked() },
        }
    }

    /// Puts what follows in, in place of what is there, and pins it.
    ///
    /// # Safety
    ///
    /// As for [`Stage::set_running`].
    #[inline]
    pub(crate) unsafe fn set_next<'a>(this: *mut Self, next: N) -> Pin<&'a mut N> {
        // SAFETY: `this` is valid, and what is there may be dropped, by the caller's promise.
        unsafe { *this = Stage::Next(next) };
        // SAFETY: `this` is valid and nobody else looks at it now.
        match unsafe { &mut *this } {
            // SAFETY: `this` is pinned, and what follows is dropped in place only.
            Stage::Next(next) => unsafe { Pin::new_unchecked(next) },
            // SAFETY: it was put there just now.
            _ => unsafe { core::hint::unreachable_unchecked() },
        }
    }

    /// Drops what is there, in place, and leaves what comes of it, if anything does.
    ///
    /// # Safety
    ///
    /// As for [`Stage::set_running`].
    #[inline]
    pub(crate) unsafe fn set_kept(this: *mut Self, kept: Option<N>) {
        // SAFETY: `this` is valid, and what is there may be dropped, by the caller's promise.
        unsafe { *this = kept.map_or(Stage::Empty, Stage::Next) };
    }

    /// Takes what came of it out. Only for a result, which is not pinned.
    #[inline]
    pub(crate) fn take_next(&mut self) -> Option<N> {
        let Stage::Next(next) = self else { return None };
        // SAFETY: it is moved out of what is overwritten, and not dropped, next. Only this much is moved: the stage has room
        // for an operation too.
        unsafe {
            let next = ptr::read(next);
            ptr::write(self, Stage::Empty);
            Some(next)
        }
    }

    /// Drops what is there, in place.
    ///
    /// # Safety
    ///
    /// `this` is valid, and what is there may be dropped.
    #[inline]
    pub(crate) unsafe fn clear(this: *mut Self) {
        // SAFETY: `this` is valid, and what is there may be dropped, by the caller's promise.
        unsafe { *this = Stage::Empty };
    }
}

/// The operation that embeds a field at this address.
macro_rules! container_of {
    ($pointer:expr, $container:ty, $field:ident) => {
        $pointer
            .byte_sub(core::mem::offset_of!($container, $field))
            .cast::<$container>()
    };
}
pub(crate) use container_of;
