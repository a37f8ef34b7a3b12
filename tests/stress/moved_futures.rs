//! Steps of the [random trees](crate::group_stress) that drop, forget and move futures between two polls.
//!
//! A step makes a future of some kind over a child of the tree and polls it a few times, perhaps in a scope. Then the future meets
//! a fate: it is awaited, dropped, forgotten, moved out of the scope, sent to another task, or polled with another waker. Another
//! task refuses a future that waits elsewhere, with a sentence, and so does a poll outside of tasks once the future has stopped. A
//! panic with any other message ends the test.
//!
//! What a forgotten future owns itself is never counted, and neither are the results that wait for it. So all its counted values
//! are in frames, which end with its task.

use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bowline::prelude::*;
use bowline::task::{self, AllResults, SenderFuture, Task, TaskGroup};
use bowline::task_local;
use futures_util::StreamExt as _;
use futures_util::future::select;
use futures_util::stream::FuturesUnordered;

use crate::common::tasks::*;
use crate::common::*;
use crate::group_stress::{Error, Node, Part, Tree, grow};

task_local! { static KEY: u64; }

const HOUR: Duration = Duration::from_secs(3600);

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future that was made, and whether it becomes ready without a stop.
struct Made {
    work: Work,
    ends: bool,
    /// The group that a future of its handle needs.
    kept: Option<Work>,
}

impl Made {
    fn new(work: impl Future<Output = ()> + Send + 'static, ends: bool) -> Self {
        let work: Work = Box::pin(work);
        Made { work, ends, kept: None }
    }
}

/// A place for a future that its own completion drops, and that is empty when this is dropped.
#[derive(Default)]
struct Slot(Arc<Mutex<Option<Work>>>);

impl Slot {
    fn empty(place: &Mutex<Option<Work>>) {
        let work = lock(place).take();
        drop(work);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        Slot::empty(&self.0);
    }
}

/// Awaits a future and drops its output.
async fn ignored<F: Future>(future: F) {
    drop(future.await);
}

/// Polls a future where it may be refused. Returns whether it is over: ready, or refused.
fn poll_there(work: &mut Work, cx: &mut Context<'_>) -> bool {
    match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx).is_ready())) {
        Ok(ready) => ready,
        Err(payload) => {
            let text = payload.downcast_ref::<&'static str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            if text.is_some_and(is_refusal) {
                return true;
            }
            resume_unwind(payload)
        }
    }
}

fn is_refusal(text: &str) -> bool {
    let is_sent = text.contains(" was sent ") && text.contains(": await it in the ");
    is_sent || text.starts_with("what was awaited outside of a task has stopped")
}

/// Keeps the refusals off the standard error, where there would be thousands of them.
pub(crate) fn hush_refusals() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload_as_str().is_some_and(is_refusal) {
            before(info);
        }
    }));
}

/// Polls a future some times with the task's own waker. Returns it unless it was ready.
async fn polled(mut work: Work, times: u64) -> Option<Work> {
    for _ in 0..times {
        if poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await {
            return None;
        }
        hops(1).await;
    }
    Some(work)
}

/// Runs a future in a scope of a random kind, or in none. The scope may be a select with another future.
async fn in_scope<T: Send>(kind: u64, future: impl Future<Output = T> + Send) -> T {
    match kind {
        0 => task::shield(future).await,
        1 => task::with_timeout(HOUR, future).await.expect("there is time"),
        2 => KEY.scope(kind, future).await,
        3 => {
            let nested = KEY.scope(kind, task::with_timeout(HOUR, task::shield(future)));
            nested.await.expect("there is time")
        }
        _ => future.await,
    }
}

/// Makes a future of a random kind. Its first poll has moved what it owns into a frame.
async fn make(tree: &Tree, node: &Arc<Node>, random: &mut XorShift, depth: u64, slot: &Slot) -> Made {
    let kind = random.below(13);
    // A task without an end would keep its handle's round waiting.
    let leaf = match random.below(if kind == 0 { 2 } else { 3 }) {
        0 => Leaf::Tree,
        1 => Leaf::Drops,
        _ => Leaf::Endless,
    };
    let ends = !matches!(leaf, Leaf::Endless);
    let mut child = || leaf.child(tree, node, random.next(), depth, slot);
    let awaited = |child| ignored(Task::new(child).into_future());
    let work: Work = match kind {
        0 => {
            let child = leaf.child(&tree.apart(), &Node::new(None), random.next(), depth + 1, slot);
            Box::pin(ignored(task::detach(child)))
        }
        1 => {
            let (value, place) = (tree.census.value(), slot.0.clone());
            let sender = starts_on(tree.away, just(value)).then(move |value| {
                Slot::empty(&place);
                drop(value);
            });
            return Made::new(ignored(SenderFuture::new(sender)), true);
        }
        2 => {
            let both = when_all((Task::new(child()), Task::new(child())));
            Box::pin(ignored(SenderFuture::new(both)))
        }
        3 => Box::pin(awaited(child())),
        4 => Box::pin(task::shield(awaited(child()))),
        5 => {
            let after = [Duration::ZERO, Duration::from_micros(50), HOUR][random.below(3) as usize];
            let limited = leaf.child(tree, node, random.next(), depth, slot);
            Box::pin(ignored(task::with_timeout(after, awaited(limited))))
        }
        6 => Box::pin(KEY.scope(depth, awaited(child()))),
        7 => {
            let value = tree.census.value();
            Box::pin(task::with_cancellation_handler(move || drop(value), awaited(child())))
        }
        8 => Box::pin(task::with_escalation_handler(|_, _| {}, awaited(child()))),
        9 => Box::pin(task::let_async(child())),
        10 => Box::pin(ignored(task::gather(AllResults::new(), [child(), child()]))),
        11 => {
            let child = child();
            Box::pin(task::group(async move |group| {
                group.spawn(child);
                _ = group.next_ended().await;
            }))
        }
        _ => {
            // The group's body does not end; the step drops it.
            let place = Arc::new(Mutex::new(None::<TaskGroup<()>>));
            let (child, gives) = (child(), place.clone());
            let kept = begin(task::group(async move |group| {
                group.spawn(child);
                *lock(&gives) = Some(group);
                pending::<()>().await;
            }))
            .await;
            let handle = lock(&place).take().expect("the body has run");
            return Made {
                work: Box::pin(async move { drop(handle.next_ended().await) }),
                ends,
                kept: Some(kept),
            };
        }
    };
    Made { work, ends, kept: None }
}

/// The child that a future waits for.
#[derive(Clone, Copy)]
enum Leaf {
    /// A tree of its own.
    Tree,
    /// A child that drops the future in the slot, on another thread, before it ends.
    Drops,
    /// A child that only a stop ends.
    Endless,
}

impl Leaf {
    fn child(self, tree: &Tree, node: &Arc<Node>, seed: u64, depth: u64, slot: &Slot) -> Work {
        let before: Work = match self {
            Leaf::Tree => Box::pin(async {}),
            Leaf::Drops => {
                let (away, place) = (tree.away, slot.0.clone());
                Box::pin(async move {
                    let Ok(()) = starts_on(away, just(())).then(move |()| Slot::empty(&place)).await;
                })
            }
            Leaf::Endless => Box::pin(until_stopped()),
        };
        let child = grow(tree, node, seed, depth + 1, None);
        Box::pin(async move {
            before.await;
            drop(child.await);
        })
    }
}

/// Makes a future, polls it some times, and then does one of the things that safe code may do to it.
pub(crate) fn step(tree: Tree, node: Arc<Node>, seed: u64, depth: u64) -> Part {
    Box::pin(async move {
        let mut random = XorShift::new(seed);
        // Its tasks end with this one, so it counts them with the node of that.
        let slot = Slot::default();
        let Made { work, ends, kept } = make(&tree, &node, &mut random, depth, &slot).await;
        let (times, scope) = (1 + random.below(3), random.below(6));
        let begun = in_scope(scope, polled(work, times)).await;
        let Some(work) = begun else { return Ok(()) };
        fate(&tree, work, ends, &mut random, &slot).await;
        drop(kept);
        Ok::<_, Error>(())
    })
}

/// Decides what happens to a future that was polled in this task, and moved out of its scope if it was in one.
async fn fate(tree: &Tree, mut work: Work, ends: bool, random: &mut XorShift, slot: &Slot) {
    let scope = random.below(6);
    match random.below(12) {
        0 => drop(work),
        1 if random.below(8) == 0 => {
            forget(Box::pin(work));
        }
        2 if ends => in_scope(scope, work).await,
        3 => {
            // A select in a scope: the future loses to a few polls, or wins.
            let hops = Box::pin(hops(random.below(4) as usize));
            _ = in_scope(scope, select(work, hops)).await;
        }
        4 => {
            // A select of two, of which the other one is dropped with it.
            let other = Box::pin(SenderFuture::new(starts_on(tree.away, just(tree.census.value()))));
            drop(in_scope(scope, select(work, other)).await);
        }
        5 => {
            // Sent to a child, which this task waits for.
            let times = random.below(3);
            let polls = task::let_async(async move {
                for _ in 0..times {
                    if poll_fn(|cx| Poll::Ready(poll_there(&mut work, cx))).await {
                        break;
                    }
                    hops(1).await;
                }
            });
            if random.below(2) == 0 {
                polls.await;
            }
        }
        6 => {
            // Sent to a detached task, which may poll and drop it after this task has ended.
            let (held, times, late) = (tree.detached.value(), random.below(3), random.below(2) * 20);
            let handle = task::detach(async move {
                let _held = held;
                hops(late as usize).await;
                for _ in 0..times {
                    if poll_fn(|cx| Poll::Ready(poll_there(&mut work, cx))).await {
                        break;
                    }
                }
            });
            if random.below(2) == 0 {
                drop(handle.await);
            }
        }
        7 | 8 => {
            // With the waker of a set of futures.
            let mut all: FuturesUnordered<Work> = [work].into_iter().collect();
            match random.below(3) {
                0 if ends => _ = in_scope(scope, all.next()).await,
                1 if random.below(8) == 0 => {
                    if poll_fn(|cx| Poll::Ready(all.poll_next_unpin(cx).is_pending())).await {
                        forget(Box::pin(all));
                    }
                }
                _ => _ = in_scope(scope, select(all.next(), Box::pin(hops(2)))).await,
            }
        }
        9 => {
            // With a waker that wakes nothing, and then with the task's own.
            if poll_there(&mut work, &mut Context::from_waker(Waker::noop())) {
                return;
            }
            if ends {
                work.await;
            }
        }
        10 => {
            // In a sender that polls it outside of any task.
            let mut left = random.below(4);
            let polls = from_future(poll_fn(move |cx| {
                let over = poll_there(&mut work, cx);
                left = left.saturating_sub(1);
                if over || left == 0 {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            }));
            let Ok(()) = SenderFuture::new(polls).await;
        }
        _ => {
            // Dropped inside its own completion, or with the step.
            *lock(&slot.0) = Some(work);
            hops(random.below(8) as usize).await;
        }
    }
}
