//! One run of a sender on the heap, and the operations that wait for its result: the state of `split` and
//! `ensure_started`.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;

use super::waiters::{Awaited, Begin, Waiters};
use crate::memory::Count;
use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::dismantle::{DropList, DropNode};
use crate::sender::in_place::InPlace;
use crate::sender::stage::container_of;
use crate::stop::{InplaceStopSource, InplaceStopToken};
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::{Completion, EmptyEnv, Job, Patched, Sender, Transfer, WithStopToken};

/// The state on the heap.
///
/// Two counts keep it alive. `interested` counts the handles, and the operations that wait with one. When it falls to
/// zero while the sender runs, the sender is stopped. `references` counts one for all interested together, one for the
/// running sender, and one for a stop that is being passed on. When it falls to zero, the memory is freed.
#[repr(C)]
pub(super) struct Shared<S: Sender> {
    /// The first field, so that a handle finds it without the sender's type.
    lose_interest: LoseInterest,
    /// Destroys the state.
    node: DropNode,
    /// Accessed by the thread that starts the sender, then by the completion of the operation. Other threads use the
    /// other fields meanwhile.
    operation: InPlace<S, S::Operation<ChildReceiver<Self, 0>>>,
    /// The stop source of the sender. It is declared after the operation, and so dropped after it.
    source: InplaceStopSource,
    /// Written by the completion, before the waiters are taken. From then on it is only read, or taken by the only
    /// handle.
    completion: UnsafeCell<Option<Completion<S::Value, S::Error>>>,
    waiters: SpinLock<Waiters>,
    /// Whether the first waiter has started the sender. Relaxed: written once, under the lock of `waiters`.
    begun: AtomicBool,
    interested: Count,
    references: Count,
    /// Requests the stop of the sender, from the loop of the thread that released the last interest.
    stop: Job,
}

/// # Safety
///
/// The pointer is to a [`Shared`] that has this function. One interest is released.
type LoseInterest = unsafe fn(NonNull<()>) -> Transfer;

// SAFETY: the completion is `Send` by the bounds of `SharedRef::new`, and released and acquired through the lock. The
// operation is only destroyed, by its own completion.
unsafe impl<S: Sender> Parent<0> for Shared<S> {
    type Value = S::Value;
    type Error = S::Error;
    type Env = Patched<WithStopToken<InplaceStopToken<'static>>, EmptyEnv>;

    fn env(this: &Waiting<Self>) -> Self::Env {
        // SAFETY: the running sender keeps the memory, and so the source, until it has completed.
        let token = unsafe { this.parent().source.token().extend() };
        Patched::new(WithStopToken(token), EmptyEnv)
    }

    fn child_completed(this: Waiting<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        if !this.parent().operation.prefix.progress.completes() {
            return Transfer::none();
        }
        // The reference of the running sender.
        Run(Reference(this.as_ptr())).complete(completion)
    }
}

/// One counted reference to the state.
struct Reference<S: Sender>(NonNull<Shared<S>>);

impl<S: Sender> Deref for Reference<S> {
    type Target = Shared<S>;

    fn deref(&self) -> &Shared<S> {
        // SAFETY: the reference keeps the state alive.
        unsafe { self.0.as_ref() }
    }
}

impl<S: Sender> Drop for Reference<S> {
    fn drop(&mut self) {
        if self.references.release() {
            // SAFETY: this was the last reference. The sender is `'static`, or has run and was destroyed.
            unsafe { DropNode::destroy(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).node)) };
        }
    }
}

/// The right to run the sender, with its reference. It is owned by the thread that has set `begun`, then by the running
/// sender.
pub struct Run<S: Sender>(Reference<S>);

impl<S: Sender> Run<S> {
    fn start(self) -> Transfer {
        let this = ManuallyDrop::new(self).0.0;
        // SAFETY: the reference of the run keeps the memory alive until the sender has completed, or was not connected.
        // The state is pinned on the heap.
        unsafe {
            let operation = NonNull::new_unchecked(&raw mut (*this.as_ptr()).operation);
            match InPlace::connect(operation, |sender| sender.connect(ChildReceiver::new(this))) {
                Ok(()) => InPlace::start(operation),
                Err(completion) => Run(Reference(this)).complete(completion),
            }
        }
    }

    /// Stores the completion and resumes the waiters. The sender has completed, or was not connected.
    fn complete(self, completion: Completion<S::Value, S::Error>) -> Transfer {
        let Run(shared) = &self;
        // SAFETY: no thread reads the completion before the waiters are taken. The operation accesses nothing of itself
        // any more.
        unsafe {
            InPlace::clear(NonNull::new_unchecked(&raw mut (*shared.0.as_ptr()).operation));
            *shared.completion.get() = Some(completion);
        }
        let waiters = shared.waiters.lock().take();
        waiters.deliver()
    }
}

crate::opaque!([S: Sender] Run<S>);

impl<S: Sender> Shared<S> {
    /// # Safety
    ///
    /// The node is that of a state to which the caller has exclusive access, and which is not used afterwards.
    unsafe fn destroy(node: NonNull<DropNode>, list: &mut DropList<'_>) {
        // SAFETY: the node is a field of a state, which was leaked by `SharedRef::new`.
        let mut this = unsafe { Box::from_raw(container_of!(node, Self, node).as_ptr()) };
        this.operation.dismantle(list);
    }

    /// # Safety
    ///
    /// The contract of [`LoseInterest`].
    unsafe fn lose_interest(this: NonNull<()>) -> Transfer {
        let this = this.cast::<Self>();
        // SAFETY: the interest is counted until here, and keeps the state alive.
        if !unsafe { this.as_ref() }.interested.release() {
            return Transfer::none();
        }
        // The reference that all interested share.
        let shared = Reference(this);
        let waiters = shared.waiters.lock();
        let runs = shared.begun.load(Relaxed) && !waiters.is_over();
        drop(waiters);
        if !runs {
            return Transfer::none();
        }
        let this = ManuallyDrop::new(shared).0;
        // SAFETY: interest does not rise from zero, so the job is returned once. The reference passes to it.
        unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).stop)) }
    }

    /// # Safety
    ///
    /// The job is that of a state, with a reference.
    unsafe fn request_stop(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a state. Its reference is released here.
        let shared = Reference(unsafe { container_of!(job, Self, stop) });
        shared.source.request_stop_later()
    }
}

/// One interest in a shared run.
///
/// It has no bound on `S`, so that it is `Send` wherever `S` is. For an `async` block that holds a handle, the compiler
/// checks `Send` with the lifetimes in `S` erased, and cannot prove the bound then.
pub(super) struct SharedRef<S> {
    /// A [`Shared<S>`](Shared).
    shared: NonNull<()>,
    _sender: PhantomData<*mut S>,
}

// SAFETY: the state may be used on any thread. One thread connects and starts the sender. Value and error are `Send` by
// the bounds of `new`, and `Sync` where several threads read them.
unsafe impl<S: Send> Send for SharedRef<S> {}
// SAFETY: through a shared reference a handle is only cloned.
unsafe impl<S: Send> Sync for SharedRef<S> {}

impl<S: Sender<Value: Send, Error: Send>> SharedRef<S> {
    pub(super) fn new(sender: S) -> Self {
        let shared = Box::new(Shared {
            lose_interest: Shared::<S>::lose_interest,
            node: DropNode::new(Shared::<S>::destroy),
            operation: InPlace::new((), sender),
            source: InplaceStopSource::new(),
            completion: UnsafeCell::new(None),
            waiters: SpinLock::new(Waiters::new()),
            begun: AtomicBool::new(false),
            interested: Count::one(),
            references: Count::one(),
            stop: Job::new(Shared::<S>::request_stop),
        });
        SharedRef {
            shared: NonNull::from(Box::leak(shared)).cast(),
            _sender: PhantomData,
        }
    }
}

impl<S: Sender> SharedRef<S> {
    fn shared(&self) -> &Shared<S> {
        // SAFETY: the handle keeps the state alive.
        unsafe { self.shared.cast().as_ref() }
    }

    /// Returns the right to run to the first caller, under the lock.
    fn begin(&self, _: &mut Waiters) -> Option<Run<S>> {
        let shared = self.shared();
        if shared.begun.load(Relaxed) {
            return None;
        }
        shared.begun.store(true, Relaxed);
        shared.references.add();
        Some(Run(Reference(self.shared.cast())))
    }

    /// Starts the sender, unless it was started.
    pub(super) fn start(&self) -> Transfer {
        let run = self.begin(&mut self.shared().waiters.lock());
        run.map_or_else(Transfer::none, Run::start)
    }

    /// Moves the state to `list` if this is the last handle, and the run has not begun. Otherwise drops the handle.
    pub(super) fn give_to<'a>(self, list: &mut DropList<'a>)
    where
        S: 'a,
    {
        // This is the last handle, so no other can be made. Pairs with the release of every other handle.
        if self.shared().interested.is_one() && !self.shared().begun.load(Relaxed) {
            let this = ManuallyDrop::new(self).shared.cast::<Shared<S>>();
            // SAFETY: this handle has exclusive access: its reference is the only one before the run begins. The state
            // borrows what `S` borrows.
            unsafe { list.push(NonNull::new_unchecked(&raw mut (*this.as_ptr()).node)) };
        }
    }

    pub(super) fn clone(&self) -> Self {
        self.shared().interested.add();
        SharedRef {
            shared: self.shared,
            _sender: PhantomData,
        }
    }
}

impl<S> SharedRef<S> {
    /// Releases the interest, and returns the transfer of that.
    fn give_back(self) -> Transfer {
        let this = ManuallyDrop::new(self);
        // SAFETY: the interest is released once: the handle is not dropped.
        unsafe { this.lose() }
    }

    /// # Safety
    ///
    /// The handle is not used afterwards.
    unsafe fn lose(&self) -> Transfer {
        // SAFETY: the function is the first field of the state, and the handle's interest is released.
        unsafe { self.shared.cast::<LoseInterest>().read()(self.shared) }
    }
}

impl<S> Drop for SharedRef<S> {
    fn drop(&mut self) {
        // SAFETY: the handle is being dropped, so it is not used afterwards.
        unsafe { self.lose() }.run();
    }
}

impl<S> fmt::Debug for SharedRef<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// The way in which a waiter gets the completion.
pub trait Fetch<T, E> {
    /// Returns this waiter's own completion.
    ///
    /// # Safety
    ///
    /// The completion was written. Where it is taken, the caller is the only waiter.
    unsafe fn fetch(completion: *mut Option<Completion<T, E>>) -> Completion<T, E>;
}

/// One interest in a shared run, whose completion is delivered as `D` says.
pub struct Interest<S, D> {
    handle: SharedRef<S>,
    _fetch: PhantomData<fn() -> D>,
}

impl<S, D> Interest<S, D> {
    pub(super) fn new(handle: SharedRef<S>) -> Self {
        Interest {
            handle,
            _fetch: PhantomData,
        }
    }
}

crate::opaque!([S, D] Interest<S, D>);

// SAFETY: a handle keeps the state, and so the list, alive. The completion is stored before the waiters are taken.
// After that only a waiter that is alone takes it. The state may be used on any thread.
unsafe impl<S: Sender, D: Fetch<S::Value, S::Error>> Awaited for Interest<S, D> {
    type Value = S::Value;
    type Error = S::Error;
    type Run = Run<S>;

    fn waiters(&self) -> &SpinLock<Waiters> {
        &self.handle.shared().waiters
    }

    fn begin(&self, waiters: &mut Waiters) -> Begin<Run<S>> {
        if waiters.is_over() {
            Begin::Over
        } else {
            Begin::Wait(self.handle.begin(waiters))
        }
    }

    fn run(run: Run<S>) -> Transfer {
        run.start()
    }

    unsafe fn result(self) -> (Completion<S::Value, S::Error>, Transfer) {
        // SAFETY: the run is over, so the completion was written. The handle keeps it alive.
        let completion = unsafe { D::fetch(self.handle.shared().completion.get()) };
        (completion, self.handle.give_back())
    }

    fn give_back(self) -> Transfer {
        self.handle.give_back()
    }
}
