//! Starting a single child.

use core::cell::Cell;
use core::convert::Infallible;
use core::future::Future;
use core::mem;
use core::ptr::{self, NonNull};
use std::boxed::Box;

use super::claim::ChildClaim;
use super::{Solo, SoloRef};
use crate::memory::OutOfMemoryError;
use crate::stop::Relay;
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8};
use crate::task::children::ChildPlace;
use crate::task::coroutine::{Frame, Plain, TaskContext};
use crate::task::frame::{FrameSuccessor, Header, Home, Polling, Tracker};
use crate::task::strand::{Awaiter, Context, Counted, Link, Locals, Tether, Unit, raising};
use crate::{Completion, Panic};

/// The frame of a single child.
type SoloFrame<F, T, Cx> = Frame<Plain<F>, T, Infallible, Cx, Solo>;

/// The parameters of a child's start.
pub(in crate::task) struct ChildStart<A> {
    pub(in crate::task) place: Option<Box<ChildPlace>>,
    pub(in crate::task) allocator: A,
}

/// Starts a single child: of the frame `polling`, which waits for it, or detached.
pub(in crate::task) fn start<T, F, Cx>(
    future: F,
    polling: Option<Polling<'_>>,
    start: ChildStart<Cx::Allocator>,
) -> Result<ChildClaim<T>, OutOfMemoryError>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
    Cx: TaskContext,
{
    /// # Safety
    ///
    /// The frame is done. The caller owns its result, which has this type and was not taken.
    unsafe fn discard<T>(frame: NonNull<Header>) -> Option<Panic> {
        // SAFETY: the frame is done, and the caller owns the result.
        match unsafe { Header::take_result::<Completion<T, Infallible>>(frame) } {
            Completion::Panicked(payload) => Some(payload),
            completion => Panic::catch(|| drop(completion)).err(),
        }
    }

    // A detached child inherits nothing.
    let parent = polling.map(Polling::frame);
    let (unit, locals, context, scope, reaching) = match polling {
        Some(polling) => {
            let here = polling.context();
            let mut context = here.of_child();
            context.placement.priority = polling.level();
            let unit = Unit::spawned(polling.unit());
            (unit, Locals::current(), context, here.scope(), here.reaching_token())
        }
        None => {
            let context = Context::of_home(Home::global_pool());
            (Unit::new(ptr::null()), Locals::default(), context, None, context.token)
        }
    };
    let (outer, inherited) = (context.token, context.priority());
    let solo = Solo {
        unit,
        relay: Relay::new(Solo::unlinked),
        is_linked: AtomicBool::new(true),
        ends: AtomicU8::new(2),
        context: Context {
            locals: locals.as_raw(),
            ..context
        },
        locals: Cell::new(locals),
        place: start.place,
        frame: NonNull::dangling(),
        parent,
        scope,
        tether: None,
        has_tether: Cell::new(false),
        is_tied: AtomicBool::new(false),
        counted: Counted::new(|_| 1),
        outer,
        reaching,
        link: Link::new(Solo::hold),
        discard: discard::<T>,
        joiner: AtomicPtr::new(ptr::null_mut()),
    };
    let frame = SoloFrame::<F, T, Cx>::make(Plain(future), start.allocator, solo)?;
    // SAFETY: the frame is new and not shared; its tail is pinned. `one_end` and `unlinked` remove the links before the parent's
    // frame, or the scope whose token is linked, has ended.
    unsafe {
        let place = SoloFrame::<F, T, Cx>::tail(frame).as_ptr();
        (*place).frame = frame;
        // First the steps that can fail, while no other party knows the child.
        if let Some(polling) = polling {
            match Tether::tie(NonNull::new_unchecked(place), polling) {
                Ok(tether) => {
                    (*place).tether = Some(tether);
                    (*place).has_tether.set(true);
                    (*place).is_tied = AtomicBool::new(true);
                }
                Err(error) => {
                    Header::release(frame);
                    return Err(error);
                }
            }
        }
        (*place).context.token = (*place).relay.token();
        (*place).context.around = parent.map(|frame| Awaiter {
            frame,
            context: NonNull::new_unchecked(&raw mut (*place).context),
        });
        let context = match &mut (*place).place {
            None => NonNull::new_unchecked(&raw mut (*place).context),
            Some(own) => match own.settle(&(*place).context, frame) {
                Ok(context) => context,
                Err(error) => {
                    if let (Some(parent), Some(tether)) = (parent, (*place).tether) {
                        // Frees the block alone: the tether has no reference yet.
                        Header::free_block(parent, tether.cast());
                    }
                    Header::release(frame);
                    return Err(error);
                }
            },
        };
        let unit = NonNull::new_unchecked(&raw mut (*place).unit);
        unit.as_ref().set_context(context);
        unit.as_ref().track();
        let successor = FrameSuccessor::operation(frame.cast(), Solo::complete);
        mem::forget(Header::begin(frame, context, unit, successor));
        if let Some(polling) = polling {
            // One reference for the link that raises the child, and one for the tether.
            Header::count(frame);
            Header::count(frame);
            Link::enter(NonNull::new_unchecked(&raw mut (*place).link), polling.frame());
            // The link tells later raises, but not one since the context was made.
            match polling.level() {
                Some(level) if Some(level) > inherited => raising::raise(frame, level),
                _ => {}
            }
            // The scope, if any, is kept until `unlinked`.
            polling.context().enter();
            Relay::link(NonNull::new_unchecked(&raw mut (*place).relay), outer);
            Counted::link(NonNull::new_unchecked(&raw mut (*place).counted), polling.unit());
        }
        // `set_name` needs a parent that ends after the child, which holds from here on.
        if let Some(name) = (*place).place.as_mut().and_then(|own| own.take_name()) {
            unit.as_ref().set_name(name);
        }
        if parent.is_none() {
            Tracker::queue_first(frame);
        }
        // One reference for the claim; the run has the first.
        Header::count(frame);
        let claim = ChildClaim::new(SoloRef(frame));
        Header::enqueue(frame).run();
        Ok(claim)
    }
}
