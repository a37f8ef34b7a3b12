//! The allocator of a task: one allocation, from there, freed there, and visible inside.

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::{pending, poll_fn};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Poll;

use allocator_api2::alloc::{AllocError, Allocator, Global};
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::stop::StopSource;
use bowline::task::{CurrentAllocator, Inline, Task, TaskAllocator};

use crate::common::{Census, CrewAllocations, allocations, for_good, panic_message};

/// A counting allocator, separate from the global one, with memory for `left` more allocations.
#[derive(Debug)]
struct Arena {
    left: AtomicUsize,
    given: AtomicUsize,
    alive: AtomicUsize,
    bytes: AtomicUsize,
}

/// An allocator of one word.
#[derive(Clone, Copy, Debug)]
struct In(&'static Arena);

impl In {
    fn new() -> Self {
        In::with_memory_for(usize::MAX)
    }

    fn with_memory_for(left: usize) -> Self {
        In(for_good(Arena {
            left: AtomicUsize::new(left),
            given: AtomicUsize::new(0),
            alive: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }))
    }

    fn given(&self) -> usize {
        self.0.given.load(SeqCst)
    }

    /// Returns the number of live allocations and their bytes.
    fn alive(&self) -> (usize, usize) {
        (self.0.alive.load(SeqCst), self.0.bytes.load(SeqCst))
    }
}

// SAFETY: forwards to the system allocator.
unsafe impl Allocator for In {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.0
            .left
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
            .map_err(|_| AllocError)?;
        assert_ne!(layout.size(), 0, "the system has no memory of no size");
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { System.alloc(layout) }).ok_or(AllocError)?;
        self.0.given.fetch_add(1, SeqCst);
        self.0.alive.fetch_add(1, SeqCst);
        self.0.bytes.fetch_add(layout.size(), SeqCst);
        Ok(NonNull::slice_from_raw_parts(memory, layout.size()))
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        self.0.alive.fetch_sub(1, SeqCst);
        self.0.bytes.fetch_sub(layout.size(), SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory.as_ptr(), layout) };
    }
}

/// An allocator of more than a word, whose copies are counted.
#[derive(Clone, Debug)]
struct Wide {
    arena: In,
    handle: Arc<()>,
}

// SAFETY: as for `In`.
unsafe impl Allocator for Wide {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.arena.allocate(layout)
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.arena.deallocate(memory, layout) };
    }
}

/// How often a frame is allocated from the system once its thread has a slab.
const FRAME: usize = if cfg!(sanitized = "address") { 1 } else { 0 };

#[test]
fn a_task_is_one_allocation() {
    let task = || Task::new(async { 1 });
    // A warm-up: the first task of a thread may allocate a slab.
    drop(task());
    let (task, count) = allocations(task);
    assert_eq!(count, FRAME);
    let (value, count) = allocations(|| sync_wait(task).unwrap());
    assert_eq!((value, count), (1, 0));
}

#[test]
fn the_one_allocation_is_from_the_allocator_that_was_given() {
    let arena = In::new();
    let (task, count) = allocations(|| Task::new_in(async { just(1).await }, arena));
    assert_eq!((count, arena.given(), arena.alive().0), (0, 1, 1));
    let (value, count) = allocations(|| sync_wait(task).unwrap());
    assert_eq!((value, count), (Ok(1), 0));
    assert_eq!((arena.given(), arena.alive()), (1, (0, 0)));
}

#[test]
fn hops_on_a_pool_allocate_nothing() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let crew = CrewAllocations::new();
    sync_wait(starts_on(scheduler, just_from(move || crew.join()))).unwrap();
    let arena = In::new();
    let task = Task::new_in(
        async move {
            for _ in 0..100 {
                scheduler.schedule().await;
            }
        },
        arena,
    );
    let ((), count) = crew.during(|| sync_wait(starts_on(scheduler, task)).unwrap());
    // The task alone. A hop on its own pool queues the frame, and needs no memory for an await.
    assert_eq!((count, arena.given(), arena.alive()), (0, 1, (0, 0)));
}

/// A future of another crate, which is pending once.
async fn suspend() {
    let mut is_first = true;
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        match std::mem::take(&mut is_first) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    })
    .await;
}

#[test]
fn a_foreign_await_costs_memory_only_in_a_task_that_can_be_stopped() {
    let crew = CrewAllocations::new();
    crew.join();
    let pool = ThreadPool::builder()
        .threads(1)
        .on_start(move |_| crew.join())
        .build()
        .unwrap();
    let scheduler = pool.scheduler();
    let task = |arena| {
        let suspends = async {
            for _ in 0..100 {
                suspend().await;
            }
        };
        Task::new_in(suspends, arena)
    };
    let source = StopSource::new();
    for on_the_pool in [true, false] {
        let run = |can_be_stopped: bool| {
            let arena = In::new();
            let task = task(arena);
            let (ended, count) = crew.during(|| match (can_be_stopped, on_the_pool) {
                (true, true) => sync_wait(starts_on(scheduler, task).write_env(WithStopToken(source.token()))),
                (true, false) => sync_wait(task.write_env(WithStopToken(source.token()))),
                (false, true) => sync_wait(starts_on(scheduler, task)),
                (false, false) => sync_wait(task),
            });
            ended.unwrap();
            assert_eq!((count, arena.alive()), (0, (0, 0)));
            arena.given()
        };
        // A warm-up for what a thread allocates first.
        sync_wait(starts_on(scheduler, Task::new(suspend()))).unwrap();
        assert_eq!(run(false), 1, "the task alone");
        assert_eq!(run(true), 2, "the task, and the memory in which it hears the stop");
    }
}

#[test]
fn a_task_that_was_not_started_gives_its_memory_back() {
    let arena = In::new();
    let census = Census::new();
    let value = census.value();
    let task = Task::new_in(
        async move {
            pending::<()>().await;
            drop(value);
        },
        arena,
    );
    assert_eq!((arena.alive().0, census.alive()), (1, 1));
    drop(task);
    assert_eq!((arena.alive(), census.alive()), ((0, 0), 0));
}

#[test]
fn memory_is_given_back_also_when_dropping_the_future_panics() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let arena = In::new();
    let bomb = Bomb;
    let task = Task::new_in(async move { drop(bomb) }, arena);
    assert_eq!(panic_message(|| drop(task)), "dropped");
    assert_eq!(arena.alive(), (0, 0));
}

#[test]
fn a_task_that_stops_or_panics_gives_its_memory_back() {
    let arena = In::new();
    let stops = Task::new_in(async { just_stopped::<(), std::convert::Infallible>().await }, arena);
    assert!(sync_wait(stops).ok().is_none());
    let panics = Task::new_in(async { panic!("in the task") }, arena);
    assert_eq!(panic_message(|| sync_wait::<Task<(), _, _>>(panics)), "in the task");
    assert_eq!((arena.given(), arena.alive()), (2, (0, 0)));
}

#[test]
fn the_allocator_is_kept_as_long_as_the_memory_and_not_longer() {
    let allocator = Wide {
        arena: In::new(),
        handle: Arc::new(()),
    };
    let task = Task::new_in(async { 1 }, allocator.clone());
    assert_eq!(Arc::strong_count(&allocator.handle), 2);
    assert_eq!(sync_wait(task).unwrap(), 1);
    assert_eq!(Arc::strong_count(&allocator.handle), 1);
    assert_eq!((allocator.arena.given(), allocator.arena.alive()), (1, (0, 0)));
}

#[test]
fn an_allocator_without_memory_is_an_error_that_says_how_much_was_asked() {
    let arena = In::with_memory_for(1);
    let census = Census::new();
    let value = census.value();
    let tasks = Task::builder().allocator(arena);
    let task = tasks.clone().build(async { 1 }).expect("there is memory for one");
    let refused = tasks
        .clone()
        .build(async move { drop(value) })
        .expect_err("it was the last");
    assert!(refused.layout().size() > size_of::<usize>());
    assert_eq!(census.alive(), 0, "the future was dropped");
    assert!(tasks.clone().try_build(async { "1".parse::<i32>() }).is_err());
    assert!(panic_message(|| tasks.task(async { 2 })).starts_with("cannot make a task: failed to allocate"));
    assert_eq!(sync_wait(task).unwrap(), 1);
    assert_eq!(arena.alive(), (0, 0));
}

#[test]
fn the_constructors_panic_without_memory_and_say_so() {
    let arena = In::with_memory_for(0);
    for message in [
        panic_message(|| Task::new_in(async {}, arena)),
        panic_message(|| Task::try_new_in(async { Ok::<(), ()>(()) }, arena)),
    ] {
        assert!(
            message.starts_with("cannot make a task: failed to allocate"),
            "{message}"
        );
    }
}

#[test]
fn an_output_that_is_a_result_becomes_value_and_error() {
    let arena = In::new();
    let parse = |text: &'static str| Task::try_new_in(async move { text.parse::<i32>() }, arena);
    assert_eq!(sync_wait(parse("7")).unwrap(), 7);
    assert!(sync_wait(parse("seven")).err().is_some());
    assert_eq!((arena.given(), arena.alive()), (2, (0, 0)));
}

#[test]
fn large_and_aligned_and_empty_futures_are_where_they_should_be() {
    #[repr(align(256))]
    struct Aligned(u8);
    let arena = In::new();
    let aligned = Aligned(3);
    let task = Task::new_in(
        async move {
            let aligned = &aligned;
            let Ok(()) = just(()).await;
            (std::ptr::from_ref(aligned).addr() % 256, aligned.0)
        },
        arena,
    );
    assert_eq!(sync_wait(task).unwrap(), (0, 3));

    let large = [1_u8; 100_000];
    let task = Task::new_in(
        async move {
            let Ok(()) = just(()).await;
            large.iter().map(|&byte| usize::from(byte)).sum::<usize>()
        },
        arena,
    );
    assert!(arena.alive().1 > 100_000);
    assert_eq!(sync_wait(task).unwrap(), 100_000);

    sync_wait(Task::new_in(std::future::ready(()), arena)).unwrap();
    assert_eq!((arena.given(), arena.alive()), (3, (0, 0)));
}

#[test]
fn what_is_awaited_sees_the_allocator_by_its_type() {
    let arena = In::new();
    let task = Task::new_in(async { read_env(Get::<In>::new()).await }, arena);
    let Ok(Some(found)) = sync_wait(task).unwrap() else {
        panic!("there is one");
    };
    assert!(std::ptr::eq(found.0, arena.0));
}

#[test]
fn children_are_made_with_the_allocator_that_is_there() {
    let arena = In::new();
    let task = Task::new_in(
        async move {
            // A child without an allocator uses the global one, and passes this one on.
            let child = Task::new(async move {
                let Ok(allocator) = read_env(CurrentAllocator).await;
                let before = arena.given();
                let Ok(value) = Task::new_in(async { 1 }, allocator).await;
                (value, arena.given() - before)
            });
            let Ok(result) = child.await;
            result
        },
        arena,
    );
    assert_eq!(sync_wait(task).unwrap(), (1, 1));
    assert_eq!((arena.given(), arena.alive()), (2, (0, 0)));
}

#[test]
fn a_context_that_names_no_allocator_does_not_hide_the_one_around_it() {
    let arena = In::new();
    let task = Task::new_in(
        async {
            let child = Task::builder()
                .context::<Inline>()
                .task(async { read_env(Get::<In>::new()).await });
            let Ok(Ok(found)) = child.await;
            found.is_some()
        },
        arena,
    );
    assert!(sync_wait(task).unwrap());
}

#[test]
fn the_nearest_allocator_is_seen() {
    let (outer, inner) = (In::new(), In::new());
    let task = Task::new_in(
        async move {
            let child = Task::new_in(async { read_env(Get::<In>::new()).await }, inner);
            let Ok(Ok(in_child)) = child.await;
            let Ok(after) = read_env(Get::<In>::new()).await;
            (in_child, after)
        },
        outer,
    );
    let (Some(in_child), Some(after)) = sync_wait(task).unwrap() else {
        panic!("both have one");
    };
    assert!(std::ptr::eq(in_child.0, inner.0));
    assert!(std::ptr::eq(after.0, outer.0));
}

#[test]
fn without_one_it_is_the_global_allocator() {
    let task = Task::new(async {
        let Ok(allocator) = read_env(CurrentAllocator).await;
        let Ok(none) = read_env(Get::<TaskAllocator>::new()).await;
        assert!(none.is_none());
        allocations(|| drop(allocator_api2::boxed::Box::new_in(1_u64, allocator))).1
    });
    assert_eq!(sync_wait(task).unwrap(), 1);
}

#[test]
fn an_erased_allocator_of_more_than_a_word_keeps_itself_in_its_own_memory() {
    let allocator = Wide {
        // For the frame, and for one handle.
        arena: In::with_memory_for(2),
        handle: Arc::new(()),
    };
    let task = Task::new_in(
        async {
            let Ok(first) = read_env(Get::<TaskAllocator>::new()).await;
            let Ok(second) = read_env(Get::<TaskAllocator>::new()).await;
            (first.is_some(), second.is_some())
        },
        allocator.clone(),
    );
    assert_eq!(sync_wait(task).unwrap(), (true, false));
    assert_eq!(Arc::strong_count(&allocator.handle), 1);
    assert_eq!((allocator.arena.given(), allocator.arena.alive()), (2, (0, 0)));
}

#[test]
fn a_builder_makes_many_tasks_of_one_allocator() {
    let arena = In::new();
    let tasks = Task::builder().allocator(arena);
    let sum: i32 = (0..10)
        .map(|n| sync_wait(tasks.clone().task(async move { n })).unwrap())
        .sum();
    assert_eq!((sum, arena.given(), arena.alive()), (45, 10, (0, 0)));
    assert_eq!(sync_wait(Task::new_in(async { 1 }, Global)).unwrap(), 1);
}
