//! An `async` block that awaits, holds or selects over a sender is `Send`, whatever the sender's parameters are.
//!
//! The compiler checks a future with its lifetimes erased, `'static` ones included. So an impl that decides whether a future is
//! `Send` must not depend on them: a string literal suffices as a test.

use std::convert::Infallible;
use std::future::{Future, IntoFuture, pending};
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::time::Duration;

use bowline::adaptors::InfallibleInto;
use bowline::factories::Just;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, PoolScheduler, RunLoop, TaskScheduler, ThreadPool, Timer};
use bowline::stop::StopSource;
use bowline::task::{FromEnv, Inline, Providing, SenderFuture, Task};
use futures_lite::future::or;
use futures_util::future::join_all;

fn pool() -> PoolScheduler {
    ThreadPool::global().scheduler()
}

/// Returns a future that is ready at the second poll, so that its neighbours are held across an await.
async fn later() {
    futures_lite::future::yield_now().await;
}

/// Spawns a future on an executor of another crate that requires `Send`.
fn spawned<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .expect("a runtime")
    });
    RUNTIME.block_on(RUNTIME.spawn(future)).expect("a result")
}

type AnyFuture = Pin<Box<dyn Future<Output = String> + Send>>;

/// Runs a future in tasks and elsewhere, and asserts that all results are equal.
fn everywhere(task: impl Fn() -> Task<String>, future: impl Fn() -> AnyFuture) {
    let expected = sync_wait(task()).unwrap();
    assert_eq!(sync_wait(starts_on(pool(), task())).unwrap(), expected);
    assert_eq!(sync_wait(Task::new(future())).unwrap(), expected);
    assert_eq!(spawned(future()), expected);
    assert_eq!(pollster::block_on(future()), expected);
}

/// Awaits the sender of the expression: holds it, then its future, then selects over that and another future.
macro_rules! awaited {
    ($($name:ident: $sender:expr;)*) => {$(
        #[test]
        fn $name() {
            async fn held() -> String {
                let sender = $sender;
                later().await;
                let mut future = pin!(sender.into_future());
                later().await;
                let result = or(&mut future, pending()).await;
                later().await;
                format!("{result:?}")
            }
            everywhere(|| Task::new(held()), || Box::pin(async { held().await }));
        }
    )*};
}

/// Returns a sender of literals that can fail.
fn word(text: &'static str) -> InfallibleInto<Just<&'static str>, &'static str> {
    just(text).infallible_into::<&'static str>()
}

fn boxed(text: &'static str) -> BoxedSender<'static, &'static str, &'static str> {
    word(text).starts_on(pool()).boxed()
}

fn first(text: &'static str) -> &'static str {
    text.split(' ').next().unwrap_or(text)
}

fn run_loop() -> &'static RunLoop {
    static LOOP: LazyLock<RunLoop> = LazyLock::new(|| {
        std::thread::spawn(|| LOOP.run());
        RunLoop::new()
    });
    &LOOP
}

#[derive(Clone, Debug, PartialEq)]
struct Name(&'static str);

impl FromEnv for Name {
    fn from_env<N: Env>(_: &N) -> Self {
        Name("one")
    }
}

awaited! {
    just_a_literal: just("one");
    just_an_error: just_error::<&'static str, &'static str>("none");
    just_stopped_as_error: just_stopped::<&'static str, &'static str>().stopped_as_error("stopped");
    just_from_a_closure: just_from(|| "one");
    just_from_a_function: just_from((|| "one") as fn() -> &'static str);
    then_a_closure: just("one two").then(|text| text.split(' ').next());
    then_a_function: just("one two").then(first);
    then_a_closure_that_captures: { let suffix = "s"; just("one").then(move |text: &'static str| (text, suffix)) };
    then_on_the_pool: starts_on(pool(), just("one two").then(first));
    try_then: word("one").try_then(|text: &'static str| text.parse::<u8>().map_err(|_| "no number"));
    upon_error: just_error::<&'static str, &'static str>("none").upon_error(first);
    upon_stopped: just_stopped::<&'static str, &'static str>().upon_stopped(|| "stopped");
    map_err: just_error::<&'static str, &'static str>("none").map_err(|why: &'static str| (why, why.len()));
    err_into: just_error::<&'static str, &'static str>("none").err_into::<String>();
    infallible_into: just("one").infallible_into::<&'static str>();
    into_outcome: boxed("one").into_outcome();
    into_option: boxed("one").into_option();
    stopped_as_option: boxed("one").stopped_as_option();
    stopped_as_error: boxed("one").stopped_as_error("stopped");
    let_value: boxed("one two").let_value(|text| boxed(first(text)));
    let_error: just_error::<&'static str, &'static str>("none").let_error(boxed);
    let_stopped: just_stopped::<&'static str, &'static str>().let_stopped(|| boxed("stopped"));
    sequence_of_boxes: boxed("one").sequence(boxed("two"));
    finally: boxed("one").finally(just(()).then(|()| ()));
    repeat_until: word("one").repeat_until(|text: &&'static str| *text == "one");
    repeat_n: word("one").then(drop).repeat_n(3);
    retry: word("one").retry();
    retry_if: word("one").retry_if(|why: &&'static str| *why == "again");
    when_all_of_boxes: when_all((boxed("one"), word("two"), boxed("three")));
    when_all_in_an_array: when_all([boxed("one"), boxed("two")]);
    when_all_iter_of_boxes: when_all_iter(vec![boxed("one"), boxed("two")]);
    when_all_iter_of_literals: when_all_iter(["one", "two"].iter().map(|text| boxed(text)));
    when_any_of_boxes: when_any((boxed("one"), never::<&'static str, &'static str>()));
    when_any_in_an_array: when_any([boxed("one")]);
    when_any_iter_of_boxes: when_any_iter(vec![boxed("one")]);
    stop_when: never::<&'static str, &'static str>().stop_when(boxed("one").into_outcome()).stopped_as_error("stopped");
    timeout: boxed("one").timeout(Duration::from_secs(60));
    timeout_elapsed: never::<&'static str, &'static str>().timeout(Duration::from_millis(1));
    bulk: boxed("one").bulk(3, |_, text: &&'static str| assert_eq!(*text, "one"));
    bulk_chunked: boxed("one").bulk_chunked(3, |_, text: &&'static str| assert_eq!(*text, "one"));
    continues_on_the_pool: boxed("one").continues_on(pool());
    starts_on_a_box: starts_on(pool(), boxed("one"));
    starts_on_an_erased_scheduler: starts_on(TaskScheduler::new(pool()), boxed("one"));
    starts_on_a_loop: starts_on(run_loop().scheduler(), boxed("one"));
    on_a_loop: boxed("one").on(run_loop().scheduler());
    on_the_pool: boxed("one").on(pool());
    affine: boxed("one").affine();
    write_env_a_literal: read_env(Get::<&'static str>::new()).write_env(With("one"));
    write_env_a_scheduler: boxed("one").write_env(WithScheduler(TaskScheduler::new(pool())));
    write_env_a_loop: boxed("one").write_env(WithScheduler(run_loop().scheduler()));
    write_env_a_token: boxed("one").write_env(WithStopToken(StopSource::new().token()));
    unstoppable: boxed("one").unstoppable();
    a_box: boxed("one");
    split: boxed("one").split();
    split_twice: { let one = boxed("one").split(); when_all((one.clone(), one)) };
    ensure_started: boxed("one").ensure_started();
    ensure_started_with_a_closure: starts_on(pool(), just("one two").then(|text| text.split(' ').next())).ensure_started();
    schedule_on_the_pool: pool().schedule();
    schedule_inline: InlineScheduler.schedule();
    schedule_on_a_loop: run_loop().scheduler().schedule();
    schedule_erased: TaskScheduler::new(pool()).schedule();
    schedule_on_an_erased_loop: TaskScheduler::new(run_loop().scheduler()).schedule();
    schedule_or_inline: pool().or_inline().schedule();
    schedule_after: Timer::global().schedule_after(Duration::from_millis(1));
    from_a_future: from_future(async { "one" });
    from_a_future_that_waits: from_future(async { later().await; "one" });
    from_a_boxed_future: from_future(Box::pin(async { "one" }) as Pin<Box<dyn Future<Output = &'static str> + Send>>);
    a_task: Task::new(async { "one" });
    a_task_that_can_fail: Task::<&'static str, &'static str>::try_new(async { Err("none") });
    a_task_of_a_box: Task::try_new(async { boxed("one").await });
    a_task_with_a_context: Task::builder().context::<Inline<Providing<Name>>>().task(async {
        let Ok(name) = read_env(Get::<Name>::new()).await;
        name
    });
    a_task_elsewhere: starts_on(pool(), Task::try_new(async { boxed("one").await }));
    a_task_in_an_adaptor: Task::try_new(async { boxed("one").await }).stopped_as_error("stopped").then(first);
    tasks_together: when_all((Task::try_new(async { boxed("one").await }), word("two")));
    all_at_once: when_all((
        boxed("one").then(first).stopped_as_error("stopped"),
        starts_on(pool(), boxed("two").let_value(|text| boxed(first(text)))).split(),
        Task::try_new(async { boxed("three").timeout(Duration::from_secs(60)).await.map_err(|_| "late") }),
        starts_on(run_loop().scheduler(), boxed("four")).ensure_started(),
    ))
    .map_err(|why: &'static str| why.len());
}

/// A value with a lifetime, provided by a context.
#[derive(Clone, Debug, PartialEq)]
struct Tag<'a>(&'a str);

impl FromEnv for Tag<'static> {
    fn from_env<N: Env>(_: &N) -> Self {
        Tag("one")
    }
}

#[test]
fn what_makes_tasks_and_senders_is_held_across_awaits() {
    let all = || async {
        let tasks = Task::builder().context::<Providing<Tag<'static>>>();
        let (pool, run_loop) = (TaskScheduler::new(pool()), run_loop().scheduler());
        let source = StopSource::new();
        let token = source.token();
        let task = tasks.clone().task(async {
            let Ok(tag) = read_env(Get::<Tag<'static>>::new()).await;
            tag
        });
        later().await;
        let Ok(tag) = task.await;
        let Ok(second) = tasks.task(starts_on(pool, just(tag)).into_future()).await;
        let third = starts_on(run_loop, just("three")).write_env(WithStopToken(token)).await;
        later().await;
        drop(source);
        (second, third)
    };
    let expected = (Ok(Some(Tag("one"))), Ok("three"));
    assert_eq!(sync_wait(Task::new(all())).unwrap(), expected);
    assert_eq!(spawned(all()), expected);
}

/// In code that is generic over the sender, its bounds decide whether it is `Send`.
#[test]
fn a_function_that_awaits_any_sender_is_send() {
    async fn twice<S>(sender: S) -> (Result<S::Value, S::Error>, Result<S::Value, S::Error>)
    where
        S: Sender<Value: Send, Error: Send> + Clone + Send + 'static,
    {
        let first = SenderFuture::new(sender.clone());
        later().await;
        (first.await, SenderFuture::new(sender).await)
    }
    let both = (Ok("one"), Ok("one"));
    assert_eq!(sync_wait(Task::new(twice(word("one").then(first)))).unwrap(), both);
    assert_eq!(spawned(twice(word("one").split())), both);
}

/// The return type of a function may capture the lifetimes of its parameters. Once erased, they differ each time.
#[test]
fn what_a_sender_captures_does_not_matter() {
    fn captures(_: &u32) -> impl Sender<Value = u32, Error = Infallible> + Send + 'static {
        starts_on(pool(), just(1))
    }
    let work = || async {
        let both = SenderFuture::new(when_all((captures(&1), captures(&2)))).await;
        let joined = join_all([SenderFuture::new(captures(&3))]).await;
        (both, joined)
    };
    let expected = (Ok((1, 1)), vec![Ok(1)]);
    assert_eq!(sync_wait(Task::new(work())).unwrap(), expected);
    assert_eq!(spawned(work()), expected);
}

#[test]
fn in_the_middle_of_an_expression() {
    let work = || async {
        let text = match boxed("one").stopped_as_error("stopped").await {
            Ok(text) => text.len() + boxed("two").await.map_or(0, str::len),
            Err(why) => why.len(),
        };
        boxed("three")
            .timeout(Duration::from_secs(60))
            .await
            .map(|three| text + three.len())
    };
    assert_eq!(sync_wait(Task::try_new(work())).unwrap(), 11);
    assert_eq!(spawned(work()), Ok(11));
}

#[test]
fn selected_over_by_tokio() {
    let work = || async {
        let slow = never::<&'static str, &'static str>().stopped_as_error("stopped");
        let mut slow = pin!(slow.into_future());
        let mut others = 0;
        loop {
            tokio::select! {
                _ = &mut slow => unreachable!("nobody stops it"),
                other = boxed("one").into_future() => {
                    others += other.map_or(0, str::len);
                    if others > 5 {
                        return others;
                    }
                }
            }
        }
    };
    assert_eq!(sync_wait(Task::new(work())).unwrap(), 6);
    assert_eq!(sync_wait(starts_on(pool(), Task::new(work()))).unwrap(), 6);
    assert_eq!(spawned(work()), 6);
}
