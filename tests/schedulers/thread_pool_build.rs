//! Building a `ThreadPool`, and requests that cannot be met.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{BuildError, ThreadPool};

thread_local!(static PRESENT: RefCell<Option<Counted>> = const { RefCell::new(None) });

/// Counts the calling thread until it ends.
fn counts_me(census: &Census) {
    PRESENT.with(|present| *present.borrow_mut() = Some(census.value()));
}

#[test]
fn has_the_threads_that_were_asked_for() {
    assert_eq!(ThreadPool::new(3).threads(), 3);
    assert_eq!(ThreadPool::builder().threads(5).build().unwrap().threads(), 5);
    let machine = thread::available_parallelism().unwrap().get();
    assert_eq!(ThreadPool::builder().build().unwrap().threads(), machine);
}

#[test]
fn threads_have_names_by_their_index() {
    let names = |pool: &ThreadPool| {
        let indexed = pool.install(|| (pool.worker_index(), thread::current().name().map(str::to_owned)));
        (indexed.0.unwrap(), indexed.1.unwrap())
    };
    let pool = ThreadPool::new(2);
    let (index, name) = names(&pool);
    assert_eq!(name, format!("bowline-{index}"));
    let pool = ThreadPool::builder()
        .threads(2)
        .names(|n| format!("baker {n}"))
        .build()
        .unwrap();
    let (index, name) = names(&pool);
    assert_eq!(name, format!("baker {index}"));
}

#[test]
fn every_thread_starts_with_the_hook_before_its_first_job() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let on_start = {
        let seen = seen.clone();
        move |index| lock(&seen).push((index, thread::current().id()))
    };
    let pool = ThreadPool::builder().threads(3).on_start(on_start).build().unwrap();
    // All hooks have run when the pool is returned.
    let mut seen = std::mem::take(&mut *lock(&seen));
    seen.sort_unstable_by_key(|&(index, _)| index);
    assert_eq!(seen.iter().map(|&(index, _)| index).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(seen.iter().map(|&(_, id)| id).collect::<HashSet<_>>().len(), 3);
    let (index, id) = pool.install(|| (pool.worker_index().unwrap(), thread::current().id()));
    assert_eq!(seen[index].1, id);
}

#[test]
fn stacks_are_as_large_as_was_asked_for() {
    // More than the default stack of a thread, which is two megabytes.
    #[inline(never)]
    fn deep(n: usize) -> usize {
        let kilobyte = std::hint::black_box([n; 128]);
        if n == 0 { 0 } else { deep(n - 1) + kilobyte[n % 128] / n }
    }
    let pool = ThreadPool::builder().threads(1).stack_size(64 << 20).build().unwrap();
    assert_eq!(pool.install(|| deep(8 << 10)), 8 << 10);
}

#[test]
fn zero_threads_are_refused() {
    let error = ThreadPool::builder().threads(0).build().unwrap_err();
    assert!(matches!(error, BuildError::NoThreads), "{error:?}");
    assert_eq!(error.to_string(), "thread pool needs at least one thread");
    assert_eq!(panic_message(|| ThreadPool::new(0)), error.to_string());
}

#[test]
fn more_than_can_be_counted_are_refused_before_any_is_started() {
    for wanted in [1 << 15, usize::MAX] {
        let error = ThreadPool::builder()
            .threads(wanted)
            .names(|_| panic!("nobody is to be named"))
            .build()
            .unwrap_err();
        assert!(
            matches!(error, BuildError::TooMany { wanted: w } if w == wanted),
            "{error:?}"
        );
        assert!(error.to_string().contains("at most 32767 threads"), "{error}");
    }
}

/// Runs in a process of its own, limited to less memory than 64 such stacks.
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(sanitized)))]
#[test]
fn a_thread_that_the_system_does_not_give_is_an_error_and_the_others_end() {
    const NAME: &str = "a_thread_that_the_system_does_not_give_is_an_error_and_the_others_end";
    const INSIDE: &str = "BOWLINE_LITTLE_MEMORY";
    const STACK: usize = 64 << 20;
    const RLIMIT_AS: i32 = 9;

    unsafe extern "C" {
        fn setrlimit(resource: i32, limits: *const [u64; 2]) -> i32;
    }

    if std::env::var_os(INSIDE).is_none() {
        return passes_in_own_process(NAME, &[(INSIDE, "1")]);
    }
    // SAFETY: the limit is two words, as the C library expects.
    assert_eq!(unsafe { setrlimit(RLIMIT_AS, &[32 * STACK as u64; 2]) }, 0);
    let census = Census::new();
    let counted = census.clone();
    let error = ThreadPool::builder()
        .threads(64)
        .stack_size(STACK)
        .on_start(move |_| counts_me(&counted))
        .build()
        .unwrap_err();
    let BuildError::Spawn {
        started,
        wanted,
        ref source,
    } = error
    else {
        panic!("{error:?}");
    };
    assert!(started > 0 && started < 64, "{started} were started: nothing was shown");
    assert_eq!(wanted, 64);
    assert!(
        error.to_string().contains(&format!("{started} of 64 started")),
        "{error}"
    );
    assert_eq!(error.source().unwrap().to_string(), source.to_string());
    assert_eq!(census.alive(), 0);
    // Those of the harness and of this test. The system may list a thread for a moment after its join.
    let tasks = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let begun = std::time::Instant::now();
    while tasks() > 2 {
        let is_late = begun.elapsed() > std::time::Duration::from_secs(60);
        assert!(!is_late, "{} threads are left", tasks());
        thread::yield_now();
    }
    // As many threads as there is memory for.
    assert_eq!(
        ThreadPool::builder()
            .threads(2)
            .stack_size(STACK)
            .build()
            .unwrap()
            .threads(),
        2
    );
}

#[test]
fn a_panic_in_the_hook_is_an_error_and_all_threads_end() {
    let census = Census::new();
    let counted = census.clone();
    let error = ThreadPool::builder()
        .threads(3)
        .on_start(move |index| {
            counts_me(&counted);
            if index == 1 {
                std::panic::resume_unwind(Box::new("no dough"));
            }
        })
        .build()
        .unwrap_err();
    assert_eq!(census.alive(), 0);
    let text = error.to_string();
    assert!(text.contains("worker 1") && text.contains("no dough"), "{text}");
    assert!(error.source().is_none());
    let BuildError::OnStart { index: 1, payload } = error else {
        panic!("{error:?}");
    };
    assert_eq!(payload.message(), Some("no dough"));
}

#[test]
fn a_panic_in_names_passes_before_any_thread_is_started() {
    let builder = ThreadPool::builder()
        .threads(3)
        .on_start(|_| std::process::abort())
        .names(|index| if index < 2 { String::new() } else { panic!("no name") });
    assert_eq!(panic_message(|| builder.build()), "no name");
}

#[test]
fn a_name_that_cannot_be_one_is_an_error_before_any_thread_is_started() {
    let error = ThreadPool::builder()
        .threads(3)
        .on_start(|_| std::process::abort())
        .names(|index| if index < 2 { String::new() } else { "a\0b".to_owned() })
        .build()
        .unwrap_err();
    assert!(matches!(error, BuildError::Name { index: 2 }), "{error:?}");
    assert_eq!(error.to_string(), "name of worker 2 contains a zero byte");
}

#[test]
fn a_pool_can_be_built_where_one_could_not() {
    // Its memory was released, and can be reused.
    for _ in 0..3 {
        let failed = ThreadPool::builder()
            .threads(7)
            .on_start(|index| {
                if index == 6 {
                    std::panic::resume_unwind(Box::new("the last"));
                }
            })
            .build();
        assert!(failed.is_err());
        let pool = ThreadPool::new(7);
        assert_eq!(
            sync_wait(when_all([pool.scheduler().schedule(); 100])).unwrap().len(),
            100
        );
    }
}

/// Returns the processors that the calling thread may use, as the kernel prints them.
#[cfg(target_os = "linux")]
fn allowed() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

#[cfg(target_os = "linux")]
#[test]
fn a_pinned_worker_stays_on_one_processor() {
    let workers = thread::available_parallelism().unwrap().get();
    let barrier = std::sync::Barrier::new(workers);
    let pool = ThreadPool::builder()
        .threads(workers)
        .pin_to_cores(true)
        .build()
        .unwrap();
    let work = (0..workers).map(|_| {
        pool.scheduler().schedule().then(|()| {
            barrier.wait();
            allowed()
        })
    });
    let processors = sync_wait(when_all_iter(work)).unwrap();
    assert!(
        processors.iter().all(|list| list.parse::<usize>().is_ok()),
        "{processors:?}"
    );
    // Each has its own, if there are enough.
    assert_eq!(processors.iter().collect::<HashSet<_>>().len(), workers);
    let free = ThreadPool::new(1);
    assert_eq!(free.install(allowed), allowed());
}

#[test]
fn every_thread_runs_inside_of_around() {
    thread_local!(static INSIDE: Cell<Option<usize>> = const { Cell::new(None) });
    let ended = Arc::new(AtomicUsize::new(0));
    let counts = ended.clone();
    let pool = ThreadPool::builder()
        .threads(1)
        .on_start(|_| assert!(INSIDE.get().is_some(), "it starts inside"))
        .around(move |index, run| {
            INSIDE.set(Some(index));
            run();
            // A second call does nothing.
            run();
            counts.fetch_add(1, SeqCst);
        })
        .build()
        .unwrap();
    // The only thread waits, and a spare one runs the inner job.
    let both = pool.install(|| {
        let inner = sync_wait(pool.scheduler().schedule().then(|()| INSIDE.get())).unwrap();
        (INSIDE.get(), inner)
    });
    assert_eq!(both, (Some(0), Some(1)));
    assert_eq!(ended.load(SeqCst), 0);
    drop(pool);
    assert_eq!(ended.load(SeqCst), 2, "the drop waits for the end of the function");
}

#[test]
fn jobs_do_not_see_task_local_values_of_the_function_around_them() {
    bowline::task_local! {
        static GUESTS: u32;
    }
    let pool = ThreadPool::builder()
        .threads(1)
        .around(|_, run| {
            GUESTS.sync_scope(4, &mut *run);
            // After the end of the pool, the thread runs nothing of it.
            assert_eq!(GUESTS.get(), None);
        })
        .build()
        .unwrap();
    assert_eq!(pool.install(|| GUESTS.get()), None);
    let resumed = pool.scheduler().schedule().then(|()| assert_eq!(GUESTS.get(), None));
    sync_wait(resumed.repeat_n(3)).unwrap();
}

#[test]
fn an_around_that_panics_or_does_not_run_builds_no_pool() {
    let panics = ThreadPool::builder().threads(3).around(|index, run| {
        if index == 1 {
            quiet_panic();
        }
        run();
    });
    assert!(matches!(panics.build(), Err(BuildError::OnStart { index: 1, .. })));
    let returns = ThreadPool::builder().threads(2).around(|index, run| {
        if index == 0 {
            run();
        }
    });
    let error = returns.build().unwrap_err();
    assert!(matches!(error, BuildError::NotRun { index: 1 }));
    assert_eq!(error.to_string(), "`around` returned without running worker 1");
}

#[test]
fn a_spare_thread_works_whatever_around_does() {
    for panics in [false, true] {
        let pool = ThreadPool::builder()
            .threads(1)
            .around(move |index, run| {
                if index == 0 {
                    run();
                } else if panics {
                    quiet_panic();
                }
            })
            .build()
            .unwrap();
        let six = pool.install(|| sync_wait(pool.scheduler().schedule().then(|()| 6)).unwrap());
        assert_eq!(six, 6);
        assert_eq!(pool.spare_threads(), 1);
    }
}

#[test]
fn a_panic_after_the_end_does_not_reach_the_drop() {
    let pool = ThreadPool::builder()
        .threads(2)
        .around(|_, run| {
            run();
            quiet_panic();
        })
        .build()
        .unwrap();
    assert_eq!(pool.install(|| 1), 1);
    drop(pool);
}
