//! Random trees of groups, whose children fail, panic, are cancelled, dropped and leaked at random, on pools and on a run loop.
//! Some of their futures are [moved](crate::moved_futures) to other scopes, tasks and wakers between two polls.
//!
//! Every run checks four things. Each child has ended before its parent, by counts that a group shares with everything below
//! it. A group returns as many ends as it took children. Everything was dropped. Nothing hangs.
//!
//! `BOWLINE_SEED` chooses another sequence, and `BOWLINE_ROUNDS` the number of trees.

use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::common::tasks::*;
use crate::common::*;
use crate::moved_futures;
use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, ThreadPool};
use bowline::stop::StopSource;
use bowline::task::{self, ChildHandle, SpawnError, SpawnOptions, Task, TaskError, TaskGroup};

/// The time without any progress that counts as a hang, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The state that all tasks of one tree share.
#[derive(Clone)]
pub(crate) struct Tree {
    /// Everything that is held, and every result.
    pub(crate) census: Census,
    /// The values of detached tasks, which may outlive the tree.
    pub(crate) detached: Census,
    source: StopSource,
    /// The scheduler of some children.
    pub(crate) away: PoolScheduler,
    /// The number of tasks ever begun.
    begun: Arc<AtomicU64>,
}

impl Tree {
    /// Returns the tree of a detached task, which no stop reaches.
    pub(crate) fn apart(&self) -> Tree {
        Tree {
            census: self.detached.clone(),
            source: StopSource::new(),
            ..self.clone()
        }
    }
}

/// A group, or an awaited task: it counts the tasks below it that have not ended.
pub(crate) struct Node {
    alive: AtomicUsize,
    parent: Option<Arc<Node>>,
}

impl Node {
    pub(crate) fn new(parent: Option<&Arc<Node>>) -> Arc<Node> {
        Arc::new(Node {
            alive: AtomicUsize::new(0),
            parent: parent.cloned(),
        })
    }

    fn is_over(&self) {
        assert_eq!(self.alive.load(SeqCst), 0, "a child outlived its parent");
    }
}

/// A guard that counts a task below a node, and below all nodes above that.
struct Alive(Arc<Node>);

impl Alive {
    fn new(node: &Arc<Node>) -> Self {
        let mut at = Some(node);
        while let Some(node) = at {
            node.alive.fetch_add(1, SeqCst);
            at = node.parent.as_ref();
        }
        Alive(node.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let mut at = Some(&self.0);
        while let Some(node) = at {
            node.alive.fetch_sub(1, SeqCst);
            at = node.parent.as_ref();
        }
    }
}

pub(crate) type Error = u64;
/// The result of a child: a counted value, and its node.
pub(crate) type Given = Result<(Counted, Arc<Node>), Error>;
pub(crate) type Child = Pin<Box<dyn Future<Output = Given> + Send>>;
/// A part of a task. It owns what it uses: the compiler does not see that a borrow of it is `Send` for every lifetime.
pub(crate) type Part = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A group, as its members see it.
#[derive(Clone)]
pub(crate) struct Scope {
    group: TaskGroup<Given>,
    node: Arc<Node>,
    /// The numbers of children taken and of ends returned.
    taken: Arc<AtomicUsize>,
    given: Arc<AtomicUsize>,
}

impl Scope {
    fn new(group: TaskGroup<Given>, node: Arc<Node>) -> Self {
        Scope {
            group,
            node,
            taken: Arc::default(),
            given: Arc::default(),
        }
    }

    fn took<F>(&self, spawned: Result<(), SpawnError<F>>) {
        self.taken.fetch_add(usize::from(spawned.is_ok()), SeqCst);
    }

    /// Checks how a child has ended.
    fn ended(&self, ended: Option<Result<Given, TaskError>>) -> bool {
        let Some(ended) = ended else { return false };
        self.given.fetch_add(1, SeqCst);
        match ended {
            Ok(Ok((_value, node))) => node.is_over(),
            Ok(Err(_)) | Err(TaskError::Cancelled) => {}
            Err(error) => {
                let payload = error.into_panic().expect("a panic");
                assert_eq!(payload.message(), Some(PANIC));
            }
        }
        true
    }
}

/// Returns a child, or a task that is awaited.
pub(crate) fn grow(tree: &Tree, above: &Arc<Node>, seed: u64, depth: u64, outer: Option<Scope>) -> Child {
    tree.begun.fetch_add(1, SeqCst);
    // Both are held from here on, whether or not it runs.
    let (tree, held) = (tree.clone(), tree.census.value());
    let node = Node::new(Some(above));
    let alive = Alive::new(above);
    Box::pin(async move {
        let _held = (held, alive);
        let mut random = XorShift::new(seed);
        for _ in 0..random.below(4) {
            step(tree.clone(), node.clone(), random.next(), depth, outer.clone()).await?;
        }
        Ok((tree.census.value(), node))
    })
}

/// Returns a group with one child, whose body does not end.
fn endless(child: Child) -> impl Future<Output = ()> + Send + 'static {
    task::group(async move |group| {
        group.spawn(child);
        pending::<()>().await;
    })
}

/// Does one random thing in a task.
fn step(tree: Tree, node: Arc<Node>, seed: u64, depth: u64, outer: Option<Scope>) -> Part {
    Box::pin(async move {
        let (tree, node) = (&tree, &node);
        let mut random = XorShift::new(seed);
        let deeper = depth < 5;
        match random.below(if deeper { 30 } else { 12 }) {
            0 => hops(random.below(4) as usize).await,
            1 => {
                task::yield_now().await;
            }
            2 => starts_on(tree.away, just(())).infallible_into::<Error>().await?,
            3 if random.below(6) == 0 => return Err(seed),
            4 if random.below(6) == 0 => quiet_panic(),
            5 if random.below(6) == 0 => just_stopped::<(), Error>().await?,
            6 if random.below(40) == 0 => {
                tree.source.request_stop();
            }
            7 => {
                if let Some(outer) = &outer {
                    match random.below(8) {
                        0 => outer.group.cancel_all(),
                        1 => _ = outer.ended(poll_once(outer.group.next_ended()).await.flatten()),
                        _ => outer.took(outer.group.try_spawn(grow(
                            tree,
                            &outer.node,
                            random.next(),
                            depth + 1,
                            Some(outer.clone()),
                        ))),
                    }
                }
            }
            8 => {
                let value = tree.census.value();
                let handled = task::with_cancellation_handler(move || drop(value), hops(random.below(3) as usize));
                handled.await;
            }
            9 => {
                task::shield(async {
                    // Nothing stops it here.
                    starts_on(tree.away, just(())).infallible_into::<Error>().await
                })
                .await?
            }
            10 | 11 => {
                let _ = task::check_cancellation();
            }
            12..=17 => group(tree.clone(), node.clone(), random.next(), depth, outer).await?,
            18 => {
                // An awaited task.
                let inner = Node::new(Some(node));
                let awaited = Task::try_new(grow(tree, &inner, random.next(), depth + 1, None));
                let result = awaited.await;
                inner.is_over();
                result?;
            }
            19 => {
                // A group that is dropped while it runs.
                let (scope, seed) = (Node::new(Some(node)), random.next());
                let child = grow(tree, &scope, seed, depth + 1, None);
                let mut group = Box::pin(endless(child));
                for _ in 0..=random.below(3) {
                    assert!(poll_once(group.as_mut()).await.is_none());
                    hops(random.below(3) as usize).await;
                }
                drop(group);
            }
            20 if random.below(8) == 0 => {
                // One that is leaked.
                let child = grow(tree, node, random.next(), depth + 1, None);
                let group = begin(endless(child)).await;
                hops(random.below(3) as usize).await;
                forget(group);
            }
            21 => {
                // Children bound to variables, awaited or not.
                let inner = Node::new(Some(node));
                let first = task::let_async(grow(tree, &inner, random.next(), depth + 1, None));
                let second = task::let_async(grow(tree, &inner, random.next(), depth + 1, None));
                match random.below(3) {
                    0 => drop((first, second)),
                    1 => _ = first.await,
                    _ => {
                        let results = (first.await, second.await);
                        inner.is_over();
                        results.0.and(results.1)?;
                    }
                }
            }
            22 => {
                let root = Node::new(None);
                let handle = task::detach(grow(&tree.apart(), &root, random.next(), depth + 2, None));
                match random.below(3) {
                    0 => drop(handle),
                    1 => {
                        handle.cancel();
                        drop(handle.await);
                        root.is_over();
                    }
                    _ => {
                        let result = handle.await;
                        root.is_over();
                        drop(result);
                    }
                }
            }
            23 => {
                // A deadline that has passed, may pass, and never passes.
                let inner = Node::new(Some(node));
                let after =
                    [Duration::ZERO, Duration::from_micros(50), Duration::from_secs(3600)][random.below(3) as usize];
                let limited = Task::try_new(grow(tree, &inner, random.next(), depth + 1, None));
                let result = task::with_deadline(Instant::now() + after, async move { limited.await }).await;
                inner.is_over();
                if let Ok(result) = result {
                    result?;
                }
            }
            24 => {
                let inner = Node::new(Some(node));
                let shielded = Task::try_new(grow(tree, &inner, random.next(), depth + 1, None));
                let result = task::shield(async move { shielded.await }).await;
                inner.is_over();
                result?;
            }
            25 => {
                // A group without results.
                let inner = Node::new(Some(node));
                let children: Vec<_> = (0..random.below(4))
                    .map(|_| grow(tree, &inner, random.next(), depth + 1, None))
                    .collect();
                task::discarding_group(async move |group| {
                    for child in children {
                        group.spawn(async move { drop(child.await) });
                    }
                })
                .await;
                inner.is_over();
            }
            26..=29 => moved_futures::step(tree.clone(), node.clone(), random.next(), depth).await?,
            _ => {}
        }
        Ok(())
    })
}

/// A guard that cancels a group, however its body ends.
struct CancelsAll(TaskGroup<Given>);

impl Drop for CancelsAll {
    fn drop(&mut self) {
        self.0.cancel_all();
    }
}

/// Runs a group of some kind, with a random body.
fn group(tree: Tree, node: Arc<Node>, seed: u64, depth: u64, outer: Option<Scope>) -> Part {
    Box::pin(async move {
        let mut random = XorShift::new(seed);
        let inner = Node::new(Some(&node));
        let (held, beneath) = (tree.census.value(), inner.clone());
        let (kind, seed) = (random.below(3), random.next());
        let run = async move |group: TaskGroup<Given>| {
            let _held = held;
            body(tree, node, Scope::new(group, beneath), seed, depth, outer).await
        };
        let result: Result<(), Error> = match kind {
            0 => task::group(run).await,
            1 => task::try_group(run).await,
            _ => task::supervised_group(run).await,
        };
        inner.is_over();
        match random.below(4) {
            0 => result,
            _ => Ok(()),
        }
    })
}

/// Runs a body. Its own actions count as part of its task, which is `node`.
fn body(tree: Tree, node: Arc<Node>, scope: Scope, seed: u64, depth: u64, outer: Option<Scope>) -> Part {
    Box::pin(async move {
        let tree = &tree;
        let mut random = XorShift::new(seed);
        let group = &scope.group;
        // A child that only a cancellation ends: nothing waits before that.
        let doomed = random.below(4) == 0;
        let cancels = doomed.then(|| CancelsAll(group.clone()));
        if doomed {
            let (held, alive) = (tree.census.value(), Alive::new(&scope.node));
            scope.took(group.try_spawn(async move {
                let _held = (held, alive);
                until_stopped().await
            }));
        } else if random.below(2) == 0 {
            group.set_limit(1 + random.below(3) as usize);
        }
        let mut handles = Vec::new();
        for _ in 0..random.below(8) {
            let child = |random: &mut XorShift| grow(tree, &scope.node, random.next(), depth + 1, Some(scope.clone()));
            match random.below(16) {
                0..=2 => scope.took(group.try_spawn(child(&mut random))),
                3 if !doomed => scope.took(group.try_spawn_when_ready(child(&mut random)).await),
                4 => {
                    let options = SpawnOptions::new().priority(Priority::Background);
                    scope.took(group.try_spawn_with(options, child(&mut random)));
                }
                11 => {
                    // A child that is cancelled alone: by the body, by another task, later, or never.
                    let options = SpawnOptions::new().cancellable();
                    let spawned = group.try_spawn_with(options, child(&mut random));
                    handles.extend(spawned.as_ref().ok().cloned());
                    scope.took(spawned.map(drop));
                    match random.below(4) {
                        0 => handles.iter().for_each(ChildHandle::cancel),
                        1 => {
                            let handles = handles.clone();
                            execute(tree.away, move || handles.iter().for_each(ChildHandle::cancel));
                        }
                        _ => {}
                    }
                }
                12 if !doomed => _ = group.ready().await,
                13 if !doomed => {
                    let options = SpawnOptions::new().cancellable();
                    let spawned = group.try_spawn_when_ready_with(options, child(&mut random)).await;
                    handles.extend(spawned.as_ref().ok().cloned());
                    scope.took(spawned.map(drop));
                }
                14 => _ = poll_once(group.ready()).await,
                5 => {
                    let options = SpawnOptions::new().scheduler(tree.away);
                    scope.took(group.try_spawn_with(options, child(&mut random)));
                }
                6 => {
                    // A sender.
                    let (value, node) = (tree.census.value(), Node::new(None));
                    scope.took(group.try_spawn(starts_on(tree.away, just((value, node))).infallible_into::<Error>()));
                }
                7 if !doomed => _ = scope.ended(group.next_ended().await),
                8 => _ = scope.ended(poll_once(group.next_ended()).await.flatten()),
                9 if random.below(6) == 0 => group.cancel_all(),
                10 if !doomed => group.wait_for_all().await,
                _ => step(tree.clone(), node.clone(), random.next(), depth + 1, outer.clone()).await?,
            }
        }
        drop(cancels);
        // The last one may have ended, or continues while the group ends.
        if let Some(handle) = handles.pop() {
            handle.cancel();
        }
        if random.below(2) == 0 {
            while scope.ended(group.next_ended().await) {}
            if group.is_empty() {
                let (given, taken) = (scope.given.load(SeqCst), scope.taken.load(SeqCst));
                assert_eq!(given, taken, "an end was lost, or came twice");
            }
        }
        Ok(())
    })
}

/// Aborts when nothing has ended for long.
fn watch(rounds: Arc<AtomicU64>) {
    thread::spawn(move || {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            thread::sleep(Duration::from_millis(500));
            let now = rounds.load(SeqCst);
            if now == u64::MAX {
                return;
            }
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                eprintln!("round {now} hangs: nothing has ended for {PATIENCE:?}");
                std::process::abort();
            }
        }
    });
}

#[test]
fn random_trees_of_groups_end_after_their_children_and_leave_nothing_behind() {
    let seed = number("BOWLINE_SEED").unwrap_or(1);
    let rounds = number("BOWLINE_ROUNDS").unwrap_or(if cfg!(sanitized) { 500 } else { 10_000 });
    let _hook = ReportHook::set(|_| {});
    moved_futures::hush_refusals();
    let pools = WORKERS.map(ThreadPool::new);
    let away = ThreadPool::new(1);
    let (watched, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    watch(watched.clone());
    let mut seen = [0; 4];
    for round in 0..rounds {
        watched.store(round, SeqCst);
        let tree = Tree {
            census: Census::new(),
            detached: Census::new(),
            source: StopSource::new(),
            away: away.scheduler(),
            begun: begun.clone(),
        };
        let root = Node::new(None);
        let token = tree.source.token();
        let inside = (tree.clone(), root.clone());
        let seed = seed.wrapping_mul(1 << 32).wrapping_add(round);
        let work = Task::try_new(async move {
            let mut random = XorShift::new(seed);
            for _ in 0..4 {
                group(inside.0.clone(), inside.1.clone(), random.next(), 0, None).await?;
            }
            Ok::<_, Error>(())
        })
        .write_env(WithStopToken(token));
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| match round % 4 {
            0 => sync_wait(work),
            place => {
                let (record, recorded) = Record::new();
                let work = starts_on(pools[place as usize - 1].scheduler(), work);
                submit(work, record);
                if round % 5 == 0 {
                    tree.source.request_stop();
                }
                match recorded.recv().expect("it completes") {
                    Recorded::Value(()) => Outcome::Value(()),
                    Recorded::Error(error) => Outcome::Error(error),
                    Recorded::Stopped => Outcome::Stopped,
                    Recorded::Panicked(message) if message == PANIC => quiet_panic(),
                    other => panic!("round {round}: {other:?}"),
                }
            }
        }));
        root.is_over();
        // Detached tasks, and the futures that were sent to them, may end a moment later. A value that is left is a hang.
        while tree.census.alive() + tree.detached.alive() != 0 {
            thread::yield_now();
        }
        seen[match outcome {
            Ok(Outcome::Value(())) => 0,
            Ok(Outcome::Error(_)) => 1,
            Ok(Outcome::Stopped) => 2,
            Err(payload) => {
                let message = payload.downcast::<&'static str>().expect("that of a task");
                assert_eq!(*message, PANIC, "round {round}");
                3
            }
        }] += 1;
    }
    watched.store(u64::MAX, SeqCst);
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
    println!("{} tasks in {rounds} trees: {seen:?}", begun.load(SeqCst));
}
