//! The part that a group and a single child have in common.

use core::cell::Cell;
use core::convert::Infallible;
use core::ptr::{self, NonNull};

use crate::stop::{ErasedStopToken, Relay};
use crate::task::frame::{ContextScope, Header, Home, Polling};
use crate::task::strand::{Awaiter, Context, Counted, Link, Locals, ToRaise, Unit};
use crate::{Completion, Panic, Transfer};

/// A branch of a strand: what its children inherit from the frame they began in, and how they are stopped, raised and counted with
/// that frame.
pub(super) struct Branch {
    /// Stops the children. Linked to `outer`, if there is a frame.
    pub(super) relay: Relay,
    /// Raises the children with the frame. Listed until they have ended.
    pub(super) link: Link,
    pub(super) counted: Counted,
    /// The context of the children. Its token, locals and place are pointers into the branch.
    pub(super) context: Context,
    /// The task-local values that the children inherit.
    pub(super) locals: Cell<Locals>,
    /// The frame, which is not done before the children are. `None` outside of a task.
    pub(super) frame: Option<NonNull<Header>>,
    /// The strand of the frame, or null.
    pub(super) unit: *const Unit,
    /// The scope of the frame that the branch is in. `outer` may belong to it, so it ends after the relay's link.
    scope: Option<NonNull<ContextScope>>,
    /// The token that the relay is linked to. Only compared once the link is over.
    pub(super) outer: ErasedStopToken,
}

impl Branch {
    /// Creates a branch of a frame that this thread polls, or of none. The functions are those of its relay, counter and link.
    pub(super) fn new(
        polling: Option<Polling<'_>>,
        locals: Locals,
        over: unsafe fn(NonNull<Relay>) -> Transfer,
        running: unsafe fn(NonNull<Counted>) -> usize,
        hold: unsafe fn(NonNull<Link>) -> Option<ToRaise>,
    ) -> Self {
        let (context, scope, unit) = match polling {
            Some(polling) => {
                let (here, unit) = (polling.context(), ptr::from_ref(polling.unit()));
                let mut context = here.of_child();
                context.placement.priority = polling.level();
                (context, here.scope, unit)
            }
            None => (Context::of_home(Home::global_pool()), None, ptr::null()),
        };
        Branch {
            relay: Relay::new(over),
            link: Link::new(hold),
            counted: Counted::new(running),
            outer: context.token,
            context: Context {
                locals: locals.as_raw(),
                ..context
            },
            locals: Cell::new(locals),
            frame: polling.map(Polling::frame),
            unit,
            scope,
        }
    }

    /// Writes the pointers into the branch itself.
    ///
    /// # Safety
    ///
    /// The caller has exclusive access to the branch, which is pinned from here on.
    pub(super) unsafe fn pin(this: NonNull<Branch>) {
        let branch = this.as_ptr();
        // SAFETY: the caller's promise. The context is used as long as the branch, and so the relay, is alive.
        unsafe {
            (*branch).context.token = (*branch).relay.token();
            (*branch).context.around = (*branch).frame.map(|frame| Awaiter {
                frame,
                context: NonNull::new_unchecked(&raw mut (*branch).context),
            });
        }
    }

    /// Links the branch to its frame.
    ///
    /// # Safety
    ///
    /// Called once, on a pinned branch of that frame. The relay is ended, and the link and the counter removed, before the frame is
    /// done. [`unscope`](Branch::unscope) follows the end of the relay.
    pub(super) unsafe fn link(this: NonNull<Branch>, polling: Polling<'_>) {
        let branch = this.as_ptr();
        // SAFETY: the caller's promise. The outer source is alive as long as the frame, or the scope in it that is entered here.
        unsafe {
            polling.context().enter();
            Link::enter(NonNull::new_unchecked(&raw mut (*branch).link), polling.frame());
            Relay::link(NonNull::new_unchecked(&raw mut (*branch).relay), (*branch).outer);
            Counted::link(NonNull::new_unchecked(&raw mut (*branch).counted), polling.unit());
        }
    }

    /// Releases the relay's use of the scope.
    ///
    /// # Safety
    ///
    /// The relay was linked, and its link is over. Called once, before the frame is done.
    pub(super) unsafe fn unscope(&self) {
        if let Some(scope) = self.scope {
            // SAFETY: `link` entered the scope, which is alive until this.
            unsafe { scope.as_ref().exit() };
        }
    }
}

/// Takes the result of a child, and drops it. Returns its panic, or that of its destructor.
///
/// # Safety
///
/// The frame is done. The caller owns its result, which has this type and was not taken.
pub(super) unsafe fn discard<T>(frame: NonNull<Header>) -> Option<Panic> {
    // SAFETY: the caller's promise.
    match unsafe { Header::take_result::<Completion<T, Infallible>>(frame) } {
        Completion::Panicked(payload) => Some(payload),
        completion => Panic::catch(|| drop(completion)).err(),
    }
}
