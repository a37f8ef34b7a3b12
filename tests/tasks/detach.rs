//! `task::detach`, and the methods of its handle.

use std::convert::Infallible;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::common::everywhere::everywhere;
use crate::common::tasks::until_stopped;
use crate::common::{Census, ReportHook, Watchdog, quiet_panic};
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::stop::StopSource;
use bowline::task::{Handle, Reason, Report, SpawnOptions, block_on};
use bowline::task_local;

/// Returns a gate that is closed until it is opened.
fn gate() -> (async_channel::Sender<()>, async_channel::Receiver<()>) {
    async_channel::bounded(1)
}

#[test]
fn awaiting_the_handle_gives_the_value() {
    everywhere(|place| {
        let task = Task::new(async { task::detach(async { String::from("done") }).await });
        assert_eq!(place.run(task).unwrap().unwrap(), "done");
    });
}

#[test]
fn awaiting_the_handle_waits_for_the_end() {
    everywhere(|place| {
        let (open, opened) = gate();
        let task = Task::new(async move {
            let mut handle = Box::pin(task::detach(async move { opened.recv().await }));
            assert!(futures_lite::future::poll_once(&mut handle).await.is_none());
            assert!(!handle.is_finished());
            open.send(()).await.unwrap();
            handle.as_mut().await.unwrap().unwrap();
            assert!(handle.is_finished());
        });
        place.run(task).unwrap();
    });
}

#[test]
fn an_output_that_is_a_result_stays_what_it_is() {
    let failed: Handle<Result<(), &str>> = task::detach(async { Err("burnt") });
    assert_eq!(block_on(failed).unwrap(), Err("burnt"));
}

#[test]
fn tasks_and_senders_are_detached_too() {
    assert_eq!(block_on(task::detach(Task::new(async { 1 }))).unwrap(), Ok(1));
    assert_eq!(block_on(task::detach(just(2).then(|two| two + 1))).unwrap(), Ok(3));
    let stopped = block_on(task::detach(just_stopped::<(), Infallible>()));
    assert!(stopped.unwrap_err().is_cancelled());
}

#[test]
fn it_runs_to_its_end_without_a_handle() {
    let (send, receive) = mpsc::channel();
    drop(task::detach(async move {
        task::yield_now().await;
        send.send("served").unwrap();
    }));
    assert_eq!(receive.recv(), Ok("served"));
}

#[test]
fn a_handle_that_is_dropped_while_it_is_awaited_lets_the_task_run_on() {
    everywhere(|place| {
        let (open, opened) = gate();
        let (send, receive) = mpsc::channel();
        let task = Task::new(async move {
            let mut handle = Box::pin(task::detach(async move {
                opened.recv().await.unwrap();
                send.send(task::is_cancelled()).unwrap();
            }));
            assert!(futures_lite::future::poll_once(&mut handle).await.is_none());
            drop(handle);
        });
        place.run(task).unwrap();
        open.send_blocking(()).unwrap();
        assert_eq!(receive.recv(), Ok(false));
    });
}

#[test]
fn the_result_that_nobody_wants_is_dropped() {
    let census = Census::new();
    let value = census.value();
    let (send, receive) = mpsc::channel();
    let handle = task::detach(async move {
        send.send(()).unwrap();
        value
    });
    receive.recv().unwrap();
    while !handle.is_finished() {
        thread::yield_now();
    }
    assert_eq!(census.alive(), 1);
    drop(handle);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_cancel_ends_what_waits() {
    everywhere(|place| {
        let census = Census::new();
        let held = census.value();
        let handle = task::detach(async move {
            let _held = held;
            until_stopped::<u32>().await
        });
        assert!(!handle.is_cancelled());
        handle.cancel();
        assert!(handle.is_cancelled());
        let result = place.run(Task::new(handle)).unwrap();
        assert!(result.unwrap_err().is_cancelled());
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_cancelled_task_may_still_give_its_result() {
    let handle = task::detach(async {
        let stopped = never::<(), Infallible>().stopped_as_option().await;
        assert_eq!(stopped, Ok(None));
        (task::is_cancelled(), task::cancellation_reason())
    });
    handle.cancel_for(Reason::Custom("closing time"));
    handle.cancel(); // The first reason counts.
    let told = block_on(handle).unwrap();
    assert_eq!(told, (true, Some(Reason::Custom("closing time"))));
}

#[test]
fn a_cancel_after_the_end_changes_nothing() {
    let handle = task::detach(async { 5 });
    while !handle.is_finished() {
        thread::yield_now();
    }
    handle.cancel();
    let mut context = Context::from_waker(Waker::noop());
    match pin!(handle).poll(&mut context) {
        Poll::Ready(result) => assert_eq!(result.unwrap(), 5),
        Poll::Pending => panic!("it has ended"),
    }
}

#[test]
fn a_panic_is_in_the_handle() {
    let handle: Handle<()> = task::detach(async { quiet_panic() });
    let error = block_on(handle).unwrap_err();
    assert!(error.is_panic());
    assert!(error.into_panic().is_some());
}

#[test]
fn a_panic_that_nobody_will_see_is_reported() {
    const UNSEEN: &str = "the panic of a detached task that is not awaited";
    /// Panics with a message of its own: other tests of this process panic as well.
    fn unseen() -> ! {
        std::panic::resume_unwind(Box::new(UNSEEN))
    }
    let (send, receive) = mpsc::channel();
    let (open, opened) = gate();
    let _hook = ReportHook::set(move |report| {
        if let Report::DetachedPanic { name, panic, .. } = report
            && panic.message() == Some(UNSEEN)
        {
            send.send((name.map(str::to_owned), panic.message().map(str::to_owned)))
                .unwrap();
        }
    });
    // Dropped before the panic, and after it.
    let options = SpawnOptions::new().name("careless");
    drop(task::detach_with(options, async move {
        opened.recv().await.unwrap();
        unseen();
    }));
    open.send_blocking(()).unwrap();
    let expected = Some(UNSEEN.to_owned());
    assert_eq!(receive.recv(), Ok((Some("careless".to_owned()), expected.clone())));
    let handle = task::detach(async { unseen() });
    while !handle.is_finished() {
        thread::yield_now();
    }
    assert!(receive.try_recv().is_err(), "somebody may still look");
    drop::<Handle<()>>(handle);
    assert_eq!(receive.recv(), Ok((None, expected)));
}

#[test]
fn the_stop_of_who_awaits_ends_the_wait_and_not_the_task() {
    everywhere(|place| {
        let (open, opened) = gate();
        let (send, receive) = mpsc::channel();
        let source = StopSource::new();
        let stop = source.clone();
        let task = Task::new(async move {
            let handle = task::detach(async move {
                opened.recv().await.unwrap();
                send.send(task::is_cancelled()).unwrap();
            });
            stop.request_stop();
            handle.await
        });
        assert!(place.run(task.write_env(WithStopToken(source.token()))).is_stopped());
        open.send_blocking(()).unwrap();
        assert_eq!(receive.recv(), Ok(false));
    });
}

task_local! {
    static NAME: &'static str;
}

#[test]
fn it_inherits_nothing() {
    everywhere(|place| {
        let task = Task::new(NAME.scope(
            "outside",
            task::with_timeout(Duration::from_secs(600), async {
                assert!(task::deadline().is_some());
                let told = task::detach(async {
                    let here = ThreadPool::global().worker_index().is_some();
                    (here, task::deadline(), NAME.get(), task::priority())
                });
                told.await.unwrap()
            }),
        ));
        let told = place.run(task.write_env(With(Priority::Utility))).unwrap().unwrap();
        assert_eq!(told, (true, None, None, Priority::Default));
    });
}

#[test]
fn what_is_given_holds() {
    let pool = ThreadPool::new(1);
    let here = for_pool(&pool);
    let options = NAME.sync_scope("given", || {
        let options = SpawnOptions::new()
            .scheduler(pool.scheduler())
            .priority(Priority::Background);
        options.name("the cook").inherit_locals()
    });
    let handle = task::detach_with(options, async {
        let name = task::current().and_then(|task| task.name().map(str::to_owned));
        (thread::current().id(), task::base_priority(), NAME.get(), name)
    });
    let told = block_on(handle).unwrap();
    assert_eq!(
        told,
        (here, Priority::Background, Some("given"), Some("the cook".to_owned()))
    );
}

/// Returns the only thread of a pool.
fn for_pool(pool: &ThreadPool) -> thread::ThreadId {
    sync_wait(starts_on(pool.scheduler(), just_from(|| thread::current().id()))).unwrap()
}

#[test]
fn handles_are_equal_when_their_tasks_are() {
    let (first, second) = (task::detach(async { 1 }), task::detach(async { 1 }));
    assert_eq!(first, first);
    assert_ne!(first, second);
    let hash = |handle: &Handle<i32>| BuildHasherDefault::<DefaultHasher>::new().hash_one(handle);
    assert_eq!(hash(&first), hash(&first));
    assert_ne!(hash(&first), hash(&second));
    assert_eq!(block_on(first).unwrap() + block_on(second).unwrap(), 2);
}

#[test]
fn the_handle_is_not_ready_before_the_children_have_ended() {
    let census = Census::new();
    let values: Vec<_> = (0..10).map(|_| census.value()).collect();
    let handle = task::detach(task::group(async move |group| {
        for value in values {
            group.spawn(async move {
                let _value = value;
                until_stopped::<()>().await;
            });
        }
        until_stopped::<()>().await;
    }));
    handle.cancel();
    assert!(block_on(handle).unwrap_err().is_cancelled());
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_handle_goes_to_other_threads_and_executors() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }

    let handle = is_send(task::detach(async { 7 }));
    let elsewhere = thread::spawn(move || pollster::block_on(handle).unwrap());
    assert_eq!(elsewhere.join().unwrap(), 7);
}

#[test]
fn ten_thousand_are_detached_and_awaited() {
    let handles: Vec<_> = (0..10_000_u64)
        .map(|number| task::detach(async move { number }))
        .collect();
    let sum: u64 = handles.into_iter().map(|handle| block_on(handle).unwrap()).sum();
    assert_eq!(sum, 49_995_000);
}

/// The await of a handle is in flight when the handle is dropped, and when the task ends and delivers its result.
#[test]
fn a_handle_that_is_dropped_while_its_task_ends_drops_the_result_once() {
    let _dog = Watchdog::new(Duration::from_secs(120));
    let census = Census::new();
    let pool = ThreadPool::new(2);
    for round in 0..if cfg!(sanitized) { 500 } else { 10_000 } {
        let (open, opened) = gate();
        let value = census.value();
        let task = Task::new(async move {
            let mut handle = task::detach(async move {
                let _ = opened.recv().await;
                value
            });
            assert!(futures_lite::future::poll_once(&mut handle).await.is_none());
            // The task ends on the global pool at about the time of this drop.
            open.try_send(()).expect("there is room");
            for _ in 0..round % 64 * 8 {
                std::hint::spin_loop();
            }
            drop(handle);
        });
        sync_wait(starts_on(pool.scheduler(), task)).unwrap();
    }
    while census.alive() != 0 {
        thread::yield_now();
    }
}
