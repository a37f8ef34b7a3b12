//! Stops that are passed on, as jobs, from one source to the next: against the end of the operations they stop.

use std::future::{Future, poll_fn};
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::{RunLoop, Timer};
use bowline::stop::StopSlot;
use bowline::task::{self, DeadlineExceeded, SenderFuture, TaskGroup, group};
use bowline::{Env, Operation, Transfer};
use loom::sync::atomic::AtomicUsize;

use crate::awaits::begin_and_drop;
use crate::support::{Ended, Watched, costly, race};
use crate::task::{Sendable, awaited, begin_and_stop, task};

const HOUR: Duration = Duration::from_secs(3600);

/// A stop passes through a scope to an await inside, while that completes on another thread and the scope is left.
#[test]
fn a_stop_through_two_relays_races_with_the_end_of_both() {
    race(1, &["completed", "stopped"], |world, root, report| {
        // The deadline does not pass.
        let run_loop = RunLoop::new();
        let (sender, timer) = (world.stoppable(6), Timer::on(&run_loop));
        let inside = async move {
            let limited = task::with_timeout(HOUR, SenderFuture::new(sender)).on(&timer);
            drop(timer);
            limited.await.unwrap_or_else(|DeadlineExceeded| Err("exceeded"))
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        match report.get() {
            Ended::Value(6) => "completed",
            Ended::Stopped => "stopped",
            other => panic!("{other:?}"),
        }
    });
}

/// A stop is being passed on to a scope that is left, and to a task that ends. Both are empty, and no other thread uses their
/// memory afterwards.
#[test]
fn a_stop_races_with_the_end_of_an_empty_scope() {
    race(3, &["cancelled", "in time"], |world, root, report| {
        let run_loop = RunLoop::new();
        let (timer, value) = (Timer::on(&run_loop), world.census.value(7));
        let cancelled = Arc::new(AtomicBool::new(false));
        let noted = cancelled.clone();
        let inside = async move {
            let limited = task::with_timeout(HOUR, async { task::is_cancelled() }).on(&timer);
            drop(timer);
            noted.store(limited.await.map_err(|DeadlineExceeded| "exceeded")?, SeqCst);
            Ok(value)
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if cancelled.load(SeqCst) { "cancelled" } else { "in time" }
    });
}

/// A stop is passed on to a group and from there to its child, while the child, the group and the task end.
#[test]
fn a_stop_races_with_the_end_of_a_group() {
    race(2, &["refused", "spawned"], |world, root, report| {
        let (value, held) = (world.census.value(7), world.census.value(1));
        let spawned = Arc::new(AtomicBool::new(false));
        let noted = spawned.clone();
        let inside = async move {
            group(async move |group: TaskGroup<()>| {
                let child = group.try_spawn(Sendable(async move { held.touch() }));
                noted.store(child.is_ok(), SeqCst);
            })
            .await;
            Ok(value)
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if spawned.load(SeqCst) { "spawned" } else { "refused" }
    });
}

/// A stop is passed on to a single child that ends meanwhile, before its parent.
#[test]
fn a_stop_races_with_the_end_of_a_child() {
    race(2, &["cancelled", "in time"], |world, root, report| {
        let (value, cancelled) = (world.census.value(7), Arc::new(AtomicBool::new(false)));
        let noted = cancelled.clone();
        let inside = async move {
            let child = task::let_async(Sendable(async { task::is_cancelled() }));
            noted.store(child.await, SeqCst);
            Ok(value)
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if cancelled.load(SeqCst) { "cancelled" } else { "in time" }
    });
}

/// A sender is awaited in a task under another executor's waker. It is dropped in flight, while it completes and the task is
/// stopped. It is part of the task, which is not done before it.
#[test]
fn a_stop_races_with_the_completion_and_the_drop_of_a_foreign_await() {
    race(1, &["here", "there"], |world, root, report| {
        let (sender, value) = (world.stoppable(6), world.census.value(7));
        let inside = async move {
            let mut sender = Some(SenderFuture::new(sender.stopped_as_option()));
            poll_fn(|_| {
                if let Some(mut sender) = sender.take() {
                    let _ = Pin::new(&mut sender).poll(&mut Context::from_waker(Waker::noop()));
                }
                Poll::Ready(())
            })
            .await;
            Ok(value)
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() { "here" } else { "there" }
    });
}

/// A stop is passed on to an awaited child frame, suspended on another thread, while its own await completes: the parent
/// resumes once.
#[test]
fn a_stop_races_with_a_child_that_comes_back() {
    race(1, &["completed", "stopped"], |world, root, report| {
        let (remote, sender) = (world.remote(1), world.stoppable(6));
        let child = task(async move {
            drop(awaited(remote).await?);
            SenderFuture::new(sender).await
        });
        begin_and_stop(&world, task(async move { child.await }), root);
        world.end();
        match report.get() {
            Ended::Value(6) => "completed",
            Ended::Stopped => "stopped",
            other => panic!("{other:?}"),
        }
    });
}

/// An await has two listeners. The first is called by the task's source itself, and the second by the await, while the await
/// is dropped. The stop reaches each listener once, and no thread uses the memory afterwards.
#[test]
fn a_stop_races_with_the_drop_of_an_await_with_two_listeners() {
    race(costly(2), &["went on"], |world, root, report| {
        let (sender, value) = (Twice(world.census.value(1)), world.census.value(7));
        let inside = async move {
            begin_and_drop(SenderFuture::new(sender)).await;
            Ok(value)
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        "went on"
    });
}

/// A sender that listens twice to its token, and completes when the stop has reached both listeners.
struct Twice(Watched);

// SAFETY: the operation is `!Unpin`, and accesses nothing of itself after its own share of `left` is gone.
unsafe impl Sender for Twice {
    type Value = Watched;
    type Error = &'static str;
    type Operation<R: Receiver<Watched, &'static str>> = TwiceOperation<R>;

    fn connect<R: Receiver<Watched, &'static str>>(self, receiver: R) -> TwiceOperation<R> {
        TwiceOperation {
            listeners: [(); 2].map(|()| Listener {
                slot: StopSlot::new(TwiceOperation::<R>::stop_requested),
                operation: ptr::null_mut(),
            }),
            left: AtomicUsize::new(3),
            memory: self.0,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

#[repr(C)]
struct Listener<R: Receiver<Watched, &'static str>> {
    slot: StopSlot<<R::Env as Env>::StopToken>,
    operation: *mut TwiceOperation<R>,
}

struct TwiceOperation<R: Receiver<Watched, &'static str>> {
    listeners: [Listener<R>; 2],
    /// One for each listener that the stop has not reached, and one for `start`.
    left: AtomicUsize,
    memory: Watched,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<Watched, &'static str>> TwiceOperation<R> {
    /// # Safety
    ///
    /// `slot` is that of a listener of a started operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is the first field of the listener, whose share of `left` keeps the operation.
        unsafe {
            let operation = (*slot.cast::<Listener<R>>().as_ptr()).operation;
            slot.as_ref().release();
            Self::one_less(operation)
        }
    }

    /// # Safety
    ///
    /// The caller has a share of `left`.
    unsafe fn one_less(this: *mut Self) -> Transfer {
        // SAFETY: the share of the caller keeps the operation, and the last one completes it.
        unsafe {
            if (*this).left.fetch_sub(1, SeqCst) != 1 {
                return Transfer::none();
            }
            (*this).memory.touch();
            (*this).receiver.take().expect("completed once").set_stopped()
        }
    }
}

impl<R: Receiver<Watched, &'static str>> Operation for TwiceOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved. A listener that is refused returns its share.
        unsafe {
            let this = ptr::from_mut(self.get_unchecked_mut());
            let token = (*this).receiver.as_ref().expect("started once").env().stop_token();
            let mut resumed = Transfer::none();
            for at in 0..2 {
                (*this).listeners[at].operation = this;
                let slot = NonNull::new_unchecked(&raw mut (*this).listeners[at]).cast();
                if !StopSlot::listen(slot, token.clone()) {
                    resumed.append(Self::one_less(this));
                }
            }
            resumed.and(Self::one_less(this))
        }
    }
}
