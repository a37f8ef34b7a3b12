//! Starting a single child.

use core::cell::Cell;
use core::convert::Infallible;
use core::future::Future;
use core::marker::PhantomData;
use core::mem;
use core::ptr::{self, NonNull};
use std::boxed::Box;

use super::join::{ChildJoin, Deliver};
use super::{ChildClaim, Solo, SoloRef};
use crate::memory::OutOfMemoryError;
use crate::sender::stage::container_of;
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8};
use crate::task::awaiting::SenderFuture;
use crate::task::children::ChildPlace;
use crate::task::children::branch::{Branch, discard};
use crate::task::coroutine::{Frame, Plain, TaskContext};
use crate::task::frame::{FrameSuccessor, Header, Polling, Tracker};
use crate::task::strand::{Locals, Tether, ToRaise, Unit, raising};

/// The frame of a single child.
type SoloFrame<F, T, Cx> = Frame<Plain<F>, T, Infallible, Cx, Solo>;

/// Starts a single child: of the frame `polling`, which waits for it, or detached.
pub(in crate::task) fn start<T, D, F, Cx>(
    future: F,
    polling: Option<Polling<'_>>,
    (place, allocator): (Option<Box<ChildPlace>>, Cx::Allocator),
) -> Result<ChildClaim<T, D>, OutOfMemoryError>
where
    T: Send + 'static,
    D: Deliver<T>,
    F: Future<Output = T> + Send + 'static,
    Cx: TaskContext,
{
    // A detached child inherits nothing.
    let (unit, locals) = match polling {
        Some(polling) => (Unit::spawned(polling.unit()), Locals::current()),
        None => (Unit::new(ptr::null()), Locals::default()),
    };
    let branch = Branch::new(
        polling,
        locals,
        Solo::unlinked,
        |_| 1,
        |link| {
            // SAFETY: the link is that of a single child. While it is listed, it holds a reference.
            unsafe {
                let solo = container_of!(container_of!(link, Branch, link), Solo, branch);
                Some(ToRaise::strand(solo.as_ref().frame))
            }
        },
    );
    let inherited = branch.context.priority;
    let solo = Solo {
        unit,
        is_linked: AtomicBool::new(true),
        ends: AtomicU8::new(2),
        place,
        frame: NonNull::dangling(),
        tether: None,
        has_tether: Cell::new(false),
        is_tied: AtomicBool::new(false),
        reaching: polling.map_or(branch.outer, |polling| polling.context().reaching_token()),
        branch,
        discard: discard::<T>,
        joiner: AtomicPtr::new(ptr::null_mut()),
    };
    let frame = SoloFrame::<F, T, Cx>::make(Plain(future), allocator, solo)?;
    // SAFETY: the frame is new and not shared; its tail is pinned. `one_end` and `unlinked` remove the links before the parent's
    // frame, or the scope whose token is linked, has ended.
    unsafe {
        let place = SoloFrame::<F, T, Cx>::tail(frame).as_ptr();
        let branch = NonNull::new_unchecked(&raw mut (*place).branch);
        (*place).frame = frame;
        Branch::pin(branch);
        // First the steps that can fail, while no other party knows the child.
        let context = match &mut (*place).place {
            None => Ok(NonNull::new_unchecked(&raw mut (*place).branch.context)),
            Some(own) => own.settle(&(*place).branch.context, frame),
        };
        let prepared = context.and_then(|context| {
            if let Some(polling) = polling {
                (*place).tether = Some(Tether::tie(NonNull::new_unchecked(place), polling)?);
                (*place).has_tether.set(true);
                (*place).is_tied = AtomicBool::new(true);
            }
            Ok(context)
        });
        let context = match prepared {
            Ok(context) => context,
            Err(error) => {
                if let Some(own) = &(*place).place {
                    own.take_back(frame);
                }
                Header::release(frame);
                return Err(error);
            }
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
            Branch::link(branch, polling);
            // The link tells later raises, but not one since the context was made.
            match polling.level() {
                Some(level) if Some(level) > inherited => raising::raise(frame, level),
                _ => {}
            }
        }
        // `set_name` needs a parent that ends after the child, which holds from here on.
        if let Some(name) = (*place).place.as_mut().and_then(|own| own.take_name()) {
            unit.as_ref().set_name(name);
        }
        if polling.is_none() {
            Tracker::queue_first(frame);
        }
        // One reference for the claim; the run has the first.
        Header::count(frame);
        let task = SoloRef::from_raw(NonNull::new_unchecked(place));
        let join = ChildJoin {
            task: task.clone(),
            _value: PhantomData,
        };
        Header::enqueue(frame).run();
        Ok(ChildClaim {
            join: Some(SenderFuture::new(join)),
            task,
        })
    }
}
