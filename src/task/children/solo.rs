//! A child by itself: a task that is detached, or bound to a variable, and whoever waits for its end.

use core::cell::Cell;
use core::convert::Infallible;
use core::future::Future;
use core::marker::{PhantomData, PhantomPinned};
use core::mem;
use core::pin::Pin;
use core::ptr::{self, NonNull};
use std::boxed::Box;

use crate::memory::OutOfMemory;
use crate::report::{Report, report};
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, Relay, StopSlot, StopToken, Why};
use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::task::children::error::TaskError;
use crate::task::children::spawned::Place;
use crate::task::coroutine::context::TaskContext;
use crate::task::coroutine::typed_frame::{Frame, Plain};
use crate::task::frame::{ContextScope, Header, Home, Placement, Polling, Successor, Tracker};
use crate::task::strand::context::{Awaiter, Context};
use crate::task::strand::locals::Locals;
use crate::task::strand::raising::{self, Link, ToRaise};
use crate::task::strand::task_ref::TaskRef;
use crate::task::strand::tether::{Tether, Tethered};
use crate::task::strand::unit::{Counted, Unit};
use crate::{Completion, Env, Operation, Panic, Priority, Receiver, Sender, Transfer};

/// The tail of the frame of such a child. The unit comes first: a frame points at that, and so at the rest.
#[repr(C)]
pub(in crate::task) struct Solo {
    unit: Unit,
    /// What stops it. That of one that is not detached is linked to the task's token, until it has ended or was let go.
    relay: Relay,
    /// The link is to be ended, by whoever takes this away.
    is_linked: AtomicBool,
    /// One for the link, until that is over, and one for the run. Whoever gives the last one back has its end seen. Given
    /// back with release; the last one acquires.
    ends: AtomicU8,
    /// Its own, made of that of the task, or of none.
    context: Context,
    /// The task-local values that it sees of the task's, until it has ended.
    locals: Cell<Locals>,
    place: Option<Box<Place>>,
    /// The frame of this tail.
    frame: NonNull<Header>,
    /// The frame that is not done before this one is. None of one that is detached.
    parent: Option<NonNull<Header>>,
    /// The scope in that frame that this was started in, which the token that the relay is linked to may be of. It is not
    /// over before the link is.
    scope: Option<NonNull<ContextScope>>,
    /// Ties it to the parent. None where it is detached. Written before the child is started.
    tether: Option<NonNull<Tether<Solo>>>,
    /// The tether has its reference. Belongs to the thread that polls the parent, or that frees it.
    has_tether: Cell<bool>,
    /// The tether is to be untied, by the first that swaps this: the child in its end, the claim, or the parent in its end.
    is_tied: AtomicBool,
    counted: Counted,
    /// The token that the relay is linked to. Only compared, once the link is over.
    outer: ErasedStopToken,
    /// The outermost token whose stop reaches the child: that of the parent, unless there is a shield between.
    reaching: ErasedStopToken,
    /// Has it raised with the parent, until it has ended.
    link: Link,
    /// Drops the result. What it panicked with is returned.
    discard: unsafe fn(NonNull<Header>) -> Option<Panic>,
    /// Whose the result is.
    ///
    /// | value | means |
    /// |---|---|
    /// | null | it runs, and nobody waits |
    /// | a [`Joiner`], with `STARTING` | it runs, and that begins to wait. Whoever takes it out of here has nothing to do: its start sees that |
    /// | a joiner | it runs, and that waits. Whoever takes it out of here completes it |
    /// | `DONE` | it has ended; the result is in the frame, and belongs to the owner of the [`Claim`] |
    /// | `TAKEN` | it has ended; the result belongs to the joiner that waited |
    /// | `GONE` | nobody will ask: the end drops the result |
    /// | `ORPHAN` | the same, and then wakes the parent, which has counted an await |
    /// | `OVER` | it has ended, and the result was dropped by that |
    ///
    /// | from | to | by |
    /// |---|---|---|
    /// | null | a joiner, with `STARTING` | the joiner's start |
    /// | that | the joiner | the same, when it listens to its stop token |
    /// | either of those | null | its stop |
    /// | null, a joiner with `STARTING` | `DONE` | the end |
    /// | a joiner | `TAKEN` | the end, which completes the joiner |
    /// | null, a joiner | `GONE`, `ORPHAN` | the claim, when it is dropped |
    /// | null, a joiner, `GONE` | `ORPHAN` | the parent, when its future is gone |
    /// | `GONE`, `ORPHAN` | `OVER` | the end, when the result was dropped |
    ///
    /// Every change acquires and releases: who finds `DONE` sees the result, and who completes a joiner sees all of that.
    joiner: AtomicPtr<Joiner>,
}

const DONE: *mut Joiner = ptr::without_provenance_mut(1);
const GONE: *mut Joiner = ptr::without_provenance_mut(2);
const ORPHAN: *mut Joiner = ptr::without_provenance_mut(3);
const OVER: *mut Joiner = ptr::without_provenance_mut(5);
const TAKEN: *mut Joiner = ptr::without_provenance_mut(7);
/// The lowest bit of the address of a joiner.
const STARTING: usize = 1;

/// The joiner that a value of the word is, if it waits.
fn waiting(word: *mut Joiner) -> Option<NonNull<Joiner>> {
    NonNull::new(word).filter(|joiner| joiner.addr().get() & STARTING == 0 && word != GONE)
}

/// What a child is started with.
pub(in crate::task) struct Start<A> {
    pub(in crate::task) place: Option<Box<Place>>,
    pub(in crate::task) allocator: A,
}

/// The frame of such a child.
type Child<F, T, Cx> = Frame<Plain<F>, T, Infallible, Cx, Solo>;

/// A counted frame of such a child.
pub(in crate::task) struct SoloRef(NonNull<Header>);

// SAFETY: a frame is counted by atomics; what is reached through this is made for all threads.
unsafe impl Send for SoloRef {}
// SAFETY: as above.
unsafe impl Sync for SoloRef {}

impl Clone for SoloRef {
    fn clone(&self) -> Self {
        // SAFETY: it is counted.
        unsafe { Header::count(self.0) };
        SoloRef(self.0)
    }
}

impl Drop for SoloRef {
    fn drop(&mut self) {
        // SAFETY: it is counted, and not used any more.
        unsafe { Header::release(self.0) };
    }
}

impl SoloRef {
    #[inline]
    fn solo(&self) -> &Solo {
        // SAFETY: the frame is counted, and with it its tail.
        unsafe { Solo::of(self.0) }
    }

    pub(in crate::task) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    pub(in crate::task) fn cancel(&self, why: Why) {
        self.solo().relay.request_stop(why).unwrap_or_default().run();
    }

    pub(in crate::task) fn why(&self) -> Option<Why> {
        self.solo().relay.registry().why()
    }

    /// What is known of a task that is detached.
    pub(in crate::task) fn task(&self) -> TaskRef {
        // SAFETY: it has no parent; its context is in the tail, which is counted.
        unsafe { self.solo().unit.task_of_handle() }
    }

    pub(in crate::task) fn is_finished(&self) -> bool {
        matches!(self.solo().joiner.load(Acquire), DONE | TAKEN)
    }

    /// Makes it at least as urgent, for good.
    pub(in crate::task) fn raise(&self, level: Priority) {
        // SAFETY: it is counted, and the first frame of its strand.
        unsafe { raising::raise(self.0, level) };
    }
}

/// Starts a child by itself.
///
/// With `parent` it is one of the frame that this thread polls, which waits for it; otherwise it is detached.
pub(in crate::task) fn start<T, F, Cx>(
    future: F,
    polling: Option<Polling<'_>>,
    start: Start<Cx::Allocator>,
) -> Result<Claim<T>, OutOfMemory>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
    Cx: TaskContext,
{
    /// # Safety
    ///
    /// The frame is done, its result is of this type, the caller's, and was not taken.
    unsafe fn discard<T>(frame: NonNull<Header>) -> Option<Panic> {
        // SAFETY: by the caller's promise.
        match unsafe { Header::take_result::<Completion<T, Infallible>>(frame) } {
            Completion::Panicked(payload) => Some(payload),
            completion => Panic::catch(|| drop(completion)).err(),
        }
    }

    let parent = polling.map(Polling::frame);
    let (context, scope, unit) = match polling {
        Some(polling) => {
            let here = polling.context();
            let mut context = here.of_child();
            context.placement.priority = polling.level();
            (context, here.scope(), ptr::from_ref(polling.unit()))
        }
        None => (Context::of_home(Home::global_pool()), None, ptr::null()),
    };
    let reaching = polling.map_or(context.token, |polling| polling.context().reaching_token());
    let (outer, inherited) = (context.token, context.priority());
    let locals = if parent.is_some() {
        Locals::current()
    } else {
        Locals::default()
    };
    let solo = Solo {
        unit: if parent.is_some() {
            Unit::spawned(unit)
        } else {
            Unit::new(unit)
        },
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
    let frame = Child::<F, T, Cx>::make(Plain(future), start.allocator, solo)?;
    // SAFETY: it was just made, so it is ours, and its tail is there, where it stays. What is linked is unlinked before the
    // frame, or the scope in it that the token is of, is over.
    unsafe {
        let place = Child::<F, T, Cx>::tail(frame).as_ptr();
        (*place).frame = frame;
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
                        // The frame was not started, and goes whatever its references.
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
        let successor = Successor::operation(frame.cast(), Solo::complete);
        mem::forget(Header::begin(frame, context, unit, successor));
        if let Some(polling) = polling {
            // One for the link, with which it is raised, and one for the tether.
            Header::count(frame);
            Header::count(frame);
            Link::enter(NonNull::new_unchecked(&raw mut (*place).link), polling.frame());
            // What comes after that is told.
            match polling.level() {
                Some(level) if Some(level) > inherited => raising::raise(frame, level),
                _ => {}
            }
            polling.context().enter();
            Relay::link(NonNull::new_unchecked(&raw mut (*place).relay), outer);
            Counted::link(NonNull::new_unchecked(&raw mut (*place).counted), polling.unit());
        }
        // The parent waits for it by now.
        if let Some(name) = (*place).place.as_mut().and_then(|own| own.take_name()) {
            unit.as_ref().set_name(name);
        }
        if parent.is_none() {
            Tracker::queue_first(frame);
        }
        // One for the claim; the first is that of the run.
        Header::count(frame);
        let claim = Claim {
            task: SoloRef(frame),
            _value: PhantomData,
        };
        Header::enqueue(frame).run();
        Ok(claim)
    }
}

impl Solo {
    /// # Safety
    ///
    /// The frame is that of such a child, which was started and not freed.
    unsafe fn of<'a>(frame: NonNull<Header>) -> &'a Solo {
        // SAFETY: by the caller's promise, its unit is the first field of such a tail.
        unsafe { Header::unit(frame).cast::<Solo>().as_ref() }
    }

    /// The child is done.
    ///
    /// # Safety
    ///
    /// The pointer is to its frame.
    unsafe fn complete(frame: NonNull<()>) -> Transfer {
        let frame = frame.cast::<Header>();
        // SAFETY: by the caller's promise. The run has a count.
        unsafe {
            let solo = Solo::of(frame);
            if let Some(place) = &solo.place {
                place.take_back(frame);
            }
            solo.unit.end_with_handle();
            drop(solo.locals.take());
            // What stops it may be gone once its end is known.
            solo.unlink().and(Solo::one_end(NonNull::from(solo)))
        }
    }

    /// Ends the link to what stops it, if nobody has.
    ///
    /// # Safety
    ///
    /// The parent, if there is one, is not done before this returns.
    unsafe fn unlink(&self) -> Transfer {
        if self.is_linked.swap(false, Relaxed) {
            // SAFETY: it is ended this once. It is there until its end was seen, which waits for this.
            unsafe { Relay::end(NonNull::from(&self.relay)) }
        } else {
            Transfer::none()
        }
    }

    /// No stop is on its way any more.
    ///
    /// # Safety
    ///
    /// The relay is that of such a child.
    unsafe fn unlinked(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: the run has a count until its end was seen, which waits for this. So does the scope.
        unsafe {
            let solo = container_of!(relay, Solo, relay);
            if let Some(scope) = solo.as_ref().scope {
                scope.as_ref().exit();
            }
            Solo::one_end(solo)
        }
    }

    /// # Safety
    ///
    /// The link is over, or the run: each says so once. It may be gone when this returns.
    unsafe fn one_end(this: NonNull<Solo>) -> Transfer {
        // SAFETY: the run has a count until its end was seen.
        let solo = unsafe { this.as_ref() };
        if solo.ends.fetch_sub(1, AcqRel) != 1 {
            return Transfer::none();
        }
        // Before the parent may be done.
        solo.link.leave();
        if let Some(tether) = solo.tether {
            // SAFETY: the parent is not done before this one has ended. The run still has a reference when that of the link is
            // given up.
            unsafe {
                solo.counted.unlink(solo.unit.parent());
                if solo.is_tied.swap(false, AcqRel) {
                    Tether::loosen(tether);
                }
                Header::release(solo.frame);
            }
        }
        // SAFETY: it is done, and nothing of what is around it is used any more but its parent.
        unsafe { Solo::settle(solo) }
    }

    /// # Safety
    ///
    /// It is done, and nothing of what is around it is used any more but its parent.
    unsafe fn settle(solo: &Solo) -> Transfer {
        let (frame, parent) = (solo.frame, solo.parent);
        // SAFETY: the run has a count.
        unsafe {
            let seen = solo.joiner.load(Acquire);
            if seen == GONE || seen == ORPHAN {
                Solo::drop_result(frame);
                // The parent may have begun to wait meanwhile.
                let seen = solo.joiner.swap(OVER, AcqRel);
                Header::release(frame);
                return match parent {
                    Some(parent) if seen == ORPHAN => Header::end_wait(parent, Placement::is_here),
                    _ => Transfer::none(),
                };
            }
            let joiner = waiting(seen);
            let next = if joiner.is_some() { TAKEN } else { DONE };
            if solo.joiner.compare_exchange(seen, next, AcqRel, Acquire).is_err() {
                return Solo::settle(solo);
            }
            let resumed = joiner.map_or_else(Transfer::none, |joiner| Joiner::complete(joiner, true));
            Header::release(frame);
            resumed
        }
    }

    /// # Safety
    ///
    /// The frame is done, and its result the caller's.
    unsafe fn drop_result(frame: NonNull<Header>) {
        // SAFETY: by the caller's promise.
        unsafe {
            let solo = Solo::of(frame);
            if let Some(payload) = (solo.discard)(frame) {
                let task = solo.parent.is_none().then(|| solo.unit.task_of_handle());
                report(Report::DetachedPanic {
                    name: task.as_ref().and_then(|task| task.name()),
                    panic: &payload,
                });
                drop(Panic::catch(|| drop(payload)));
            }
        }
    }

    /// Nobody will ask for the result any more. With `counted` the parent has counted an await, and the end is to give it
    /// back. `false` where there is nothing to wait for, or another await was counted for it: it has ended, and the result
    /// is for who has the claim; or the parent has let go of it before.
    fn let_go(&self, counted: bool) -> bool {
        let gone = if counted { ORPHAN } else { GONE };
        let mut seen = self.joiner.load(Acquire);
        while !matches!(seen, DONE | TAKEN | ORPHAN | OVER) {
            match self.joiner.compare_exchange(seen, gone, AcqRel, Acquire) {
                Err(now) => seen = now,
                Ok(joiner) => {
                    if let Some(joiner) = waiting(joiner) {
                        // SAFETY: we took it out.
                        unsafe { Joiner::complete(joiner, false) }.run();
                    }
                    return true;
                }
            }
        }
        false
    }

    /// Unties it from the parent, unless it was abandoned, or is just ending on another thread: then the frame does that later.
    ///
    /// # Safety
    ///
    /// The caller is what the parent's poll is running, and has a reference.
    unsafe fn untie(&self) {
        let was_tied = self.is_tied.swap(false, AcqRel);
        if let Some(tether) = self.tether
            && self.has_tether.get()
            // SAFETY: the tether was not untied, so its block is alive.
            && (was_tied || unsafe { Tether::is_loose(tether) })
        {
            // SAFETY: the caller's promise.
            unsafe { Tether::untie(tether) };
        }
    }

    /// Keeps a child that is to be raised.
    ///
    /// # Safety
    ///
    /// The link is that of such a child, which has not left.
    unsafe fn hold(link: NonNull<Link>) -> Option<ToRaise> {
        // SAFETY: by the caller's promise, it has not ended, and the link has a count.
        Some(unsafe { ToRaise::strand(container_of!(link, Solo, link).as_ref().frame) })
    }
}

// SAFETY: the reference is one of the child's frame.
unsafe impl Tethered for Solo {
    unsafe fn abandon(this: NonNull<Self>, polling: Polling<'_>) -> Transfer {
        // SAFETY: the tether has a reference. The caller polls the parent.
        unsafe {
            let solo = this.as_ref();
            solo.is_tied.store(false, Relaxed);
            let resumed = solo.relay.request_stop(Why::SCOPE_LEFT).unwrap_or_default();
            polling.count_wait();
            if !solo.let_go(true) {
                polling.uncount_wait();
            }
            resumed.and(solo.unlink())
        }
    }

    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        unsafe {
            this.as_ref().has_tether.set(false);
            Header::release(this.as_ref().frame);
        }
    }
}

/// The right to the result of a child. Dropped, nobody asks for it: one that is detached runs on, and any other is stopped,
/// and its parent waits for it.
pub(in crate::task) struct Claim<T> {
    task: SoloRef,
    _value: PhantomData<fn() -> T>,
}

impl<T> Claim<T> {
    pub(in crate::task) fn task(&self) -> &SoloRef {
        &self.task
    }

    /// A sender of the result.
    pub(in crate::task) fn join<D: Deliver<T>>(&self) -> Join<T, D> {
        Join {
            task: self.task.clone(),
            _value: PhantomData,
        }
    }
}

impl<T> Drop for Claim<T> {
    fn drop(&mut self) {
        let solo = self.task.solo();
        let let_go = match solo.parent {
            None => solo.let_go(false),
            Some(parent) => {
                if !self.task.is_finished() {
                    self.task.cancel(Why::SCOPE_LEFT);
                }
                Polling::with_frame(parent, |polling| {
                    let Some(polling) = polling else {
                        // It stays tied, and the frame waits for it when its future is gone.
                        return solo.let_go(false);
                    };
                    // SAFETY: this is what the frame's poll is running. The await is counted here.
                    unsafe {
                        solo.untie();
                        polling.count_wait();
                        let counted = solo.let_go(true);
                        if counted {
                            // It was stopped, so there is nothing to be passed on. A scope that it was started in need not wait.
                            solo.unlink().run();
                        } else {
                            polling.uncount_wait();
                        }
                        counted
                    }
                })
            }
        };
        if !let_go && solo.joiner.load(Acquire) == DONE {
            // SAFETY: it has ended, and the result is ours. If it was taken, there is none.
            unsafe { Solo::drop_result(self.task.0) };
        }
    }
}

/// How the result of a child is delivered.
pub(in crate::task) trait Deliver<T>: 'static {
    type Value: Send;

    fn deliver<R: Receiver<Self::Value, Infallible>>(completion: Completion<T, Infallible>, receiver: R) -> Transfer;
}

/// As a value, whatever it is.
pub(in crate::task) struct AsResult;

impl<T: Send + 'static> Deliver<T> for AsResult {
    type Value = Result<T, TaskError>;

    fn deliver<R: Receiver<Self::Value, Infallible>>(completion: Completion<T, Infallible>, receiver: R) -> Transfer {
        receiver.set_value(TaskError::result(completion))
    }
}

/// As it is: a child that stopped stops who awaits it, and a panic unwinds there.
pub(in crate::task) struct AsItIs;

impl<T: Send + 'static> Deliver<T> for AsItIs {
    type Value = T;

    fn deliver<R: Receiver<Self::Value, Infallible>>(completion: Completion<T, Infallible>, receiver: R) -> Transfer {
        completion.deliver(receiver)
    }
}

/// A sender of the result of a child.
pub(in crate::task) struct Join<T, D> {
    task: SoloRef,
    _value: PhantomData<fn() -> (T, D)>,
}

// SAFETY: the operation touches nothing once somebody else may complete it, nor after its completion; it is `!Unpin`.
unsafe impl<T: Send + 'static, D: Deliver<T>> Sender for Join<T, D> {
    type Value = D::Value;
    type Error = Infallible;
    type Operation<R: Receiver<D::Value, Infallible>> = JoinOperation<T, D, R>;

    fn connect<R: Receiver<D::Value, Infallible>>(self, receiver: R) -> JoinOperation<T, D, R> {
        JoinOperation {
            joiner: Joiner {
                complete: JoinOperation::<T, D, R>::complete,
            },
            link: Link::new(JoinOperation::<T, D, R>::hold),
            task: Some(self.task),
            receiver: Some(receiver),
            reached: None,
            slot: StopSlot::new(JoinOperation::<T, D, R>::stop_requested),
            _pinned: PhantomPinned,
            _value: PhantomData,
        }
    }
}

/// The part of a join that the child knows.
#[repr(align(8))]
struct Joiner {
    /// The child has ended, and the result is there; or nobody asks for it any more.
    complete: unsafe fn(NonNull<Joiner>, bool) -> Transfer,
}

impl Joiner {
    /// # Safety
    ///
    /// The caller took it out of the child.
    unsafe fn complete(this: NonNull<Joiner>, done: bool) -> Transfer {
        // SAFETY: it is there until it was completed.
        let complete = unsafe { this.as_ref() }.complete;
        // SAFETY: the caller's promise.
        unsafe { complete(this, done) }
    }
}

type Token<D, T, R> = <<R as Receiver<<D as Deliver<T>>::Value, Infallible>>::Env as Env>::StopToken;

/// The operation of [`Join`]. The joiner comes first, so that its address is that of the whole.
#[repr(C)]
pub(in crate::task) struct JoinOperation<T, D: Deliver<T>, R: Receiver<D::Value, Infallible>> {
    joiner: Joiner,
    /// Has the child raised with who awaits it.
    link: Link,
    /// Taken by the completion.
    task: Option<SoloRef>,
    receiver: Option<R>,
    /// A token whose stop reaches what awaits this and the child as well: the child's end is waited for then.
    reached: Option<ErasedStopToken>,
    slot: StopSlot<Token<D, T, R>>,
    _pinned: PhantomPinned,
    _value: PhantomData<fn() -> (T, D)>,
}

impl<T: Send + 'static, D: Deliver<T>, R: Receiver<D::Value, Infallible>> JoinOperation<T, D, R> {
    /// # Safety
    ///
    /// The joiner is that of such an operation, which is the caller's to complete.
    unsafe fn complete(joiner: NonNull<Joiner>, done: bool) -> Transfer {
        let this = joiner.cast::<Self>().as_ptr();
        // SAFETY: by the caller's promise. A callback that still runs finds that it came too late, and is waited for.
        unsafe {
            (*this).slot.leave();
            Self::finish(this, done)
        }
    }

    /// # Safety
    ///
    /// As above; and no callback uses the operation any more.
    unsafe fn finish(this: *mut Self, done: bool) -> Transfer {
        // SAFETY: by the caller's promise, all of it is ours. Who awaits this is not done.
        let (task, receiver) = unsafe {
            (*this).link.leave();
            ((*this).task.take(), (*this).receiver.take())
        };
        let (Some(task), Some(receiver)) = (task, receiver) else {
            return Transfer::none();
        };
        if !done {
            drop(task);
            return receiver.set_stopped();
        }
        // SAFETY: the child has ended, and the result is for who has the claim, on behalf of whom this waits.
        let completion = unsafe { Header::take_result::<Completion<T, Infallible>>(task.0) };
        drop(task);
        D::deliver(completion, receiver)
    }

    /// Whether a stop is to be ignored: the child was asked to stop as well, and its result is waited for.
    fn ignores_stop(&self) -> bool {
        self.reached.is_some_and(|token| token.stop_requested())
    }

    /// # Safety
    ///
    /// The link is that of such an operation, which has not left.
    unsafe fn hold(link: NonNull<Link>) -> Option<ToRaise> {
        // SAFETY: by the caller's promise, the operation is there, and has not let go of the child.
        unsafe {
            let task = &(*container_of!(link, Self, link).as_ptr()).task;
            task.as_ref().map(|task| ToRaise::strand(task.0))
        }
    }

    /// # Safety
    ///
    /// The slot is that of such an operation, which is there until the slot is released.
    unsafe fn stop_requested(slot: NonNull<StopSlot<Token<D, T, R>>>) -> Transfer {
        // SAFETY: by the caller's promise.
        unsafe {
            let this = container_of!(slot, Self, slot).as_ptr();
            let word = this.cast::<Joiner>();
            let taken = match &(*this).task {
                Some(task) if !(*this).ignores_stop() => {
                    let joiner = &task.solo().joiner;
                    let starting = word.map_addr(|address| address | STARTING);
                    if joiner
                        .compare_exchange(starting, ptr::null_mut(), AcqRel, Acquire)
                        .is_ok()
                    {
                        // Its start sees that.
                        None
                    } else {
                        joiner.compare_exchange(word, ptr::null_mut(), AcqRel, Acquire).ok()
                    }
                }
                _ => None,
            };
            slot.as_ref().release();
            match taken {
                Some(_) => Self::finish(this, false),
                None => Transfer::none(),
            }
        }
    }
}

impl<T: Send + 'static, D: Deliver<T>, R: Receiver<D::Value, Infallible>> Operation for JoinOperation<T, D, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved but what is not pinned.
        let this = unsafe { self.get_unchecked_mut() } as *mut Self;
        // SAFETY: it is ours until it waits; pinned; started once. The slot is left, or released, before it completes.
        unsafe {
            let (Some(task), Some(receiver)) = (&(*this).task, &(*this).receiver) else {
                return Transfer::none();
            };
            // The environment is the user's, so it is asked before anything is entered.
            let env = receiver.env();
            let (token, level, around) = (env.stop_token(), env.priority(), Awaiter::of(&env));
            drop(env);
            let task = task.clone();
            let joiner = &task.solo().joiner;
            let word = this.cast::<Joiner>();
            let starting = word.map_addr(|address| address | STARTING);
            if let Err(seen) = joiner.compare_exchange(ptr::null_mut(), starting, AcqRel, Acquire) {
                drop(token);
                // Otherwise somebody else waits for it, or nobody may.
                return Self::finish(this, seen == DONE);
            }
            if let Some(around) = around {
                let (context, solo) = (around.context.as_ref(), task.solo());
                let is = |one: ErasedStopToken, other: ErasedStopToken| one.stop_possible() && one.is_same(&other);
                (*this).reached = if is(context.token, solo.outer) {
                    Some(solo.outer)
                } else {
                    // It was bound in another scope, or this one is. A stop of the task reaches both.
                    let token = context.reaching_token();
                    is(token, solo.reaching).then_some(token)
                };
                Link::enter(NonNull::new_unchecked(&raw mut (*this).link), around.frame);
            }
            // What comes after that is told.
            if let Some(level) = level {
                task.raise(level);
            }
            let listening = StopSlot::listen(NonNull::new_unchecked(&raw mut (*this).slot), token);
            let waits = listening || (*this).ignores_stop();
            let next = if waits { word } else { ptr::null_mut() };
            match joiner.compare_exchange(starting, next, AcqRel, Acquire) {
                Ok(_) if waits => Transfer::none(),
                Ok(_) => Self::finish(this, false),
                Err(seen) => Self::complete(NonNull::new_unchecked(word), seen == DONE),
            }
        }
    }
}
