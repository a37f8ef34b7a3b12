//! `read_env`: a sender of a query's answer.

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;
use bowline::stop::StopSource;
use bowline::{EmptyEnv, Query};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Depth(u32);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Name(&'static str);

fn depth() -> bowline::factories::ReadEnv<Get<Depth>> {
    read_env(Get::new())
}

#[test]
fn reads_what_was_written() {
    assert_eq!(sync_wait(depth().write_env(With(Depth(3)))).unwrap(), Some(Depth(3)));
}

#[test]
fn finds_nothing_where_nothing_of_the_type_was_written() {
    assert_eq!(sync_wait(depth()).unwrap(), None);
    assert_eq!(sync_wait(depth().write_env(With(Name("x")))).unwrap(), None);
}

#[test]
fn what_was_written_nearest_is_read() {
    let inner = depth().write_env(With(Depth(1)));
    let both = when_all((inner, depth())).write_env(With(Depth(2)));
    assert_eq!(sync_wait(both).unwrap(), (Some(Depth(1)), Some(Depth(2))));
}

#[test]
fn reads_through_what_is_written_between() {
    let source = StopSource::new();
    let work = depth()
        .write_env(With(Name("between")))
        .write_env(WithStopToken(source.token()))
        .write_env(WithScheduler(InlineScheduler))
        .unstoppable()
        .write_env(With(Depth(4)));
    assert_eq!(sync_wait(work).unwrap(), Some(Depth(4)));
}

#[test]
fn reads_whether_a_stop_was_requested() {
    let source = StopSource::new();
    let work = read_env(StopRequested).write_env(WithStopToken(source.token()));
    assert!(!sync_wait(work.clone()).unwrap());
    source.request_stop();
    assert!(sync_wait(work).unwrap());
}

/// A user-defined query, which combines two answers and is moved in.
struct Describe(Counted);

impl Query for Describe {
    type Answer = (Option<Name>, bool, Counted);

    fn ask<E: Env>(self, env: &E) -> Self::Answer {
        (env.get::<Name>(), env.stop_token().stop_possible(), self.0)
    }
}

#[test]
fn a_query_of_ones_own_combines_what_it_finds() {
    let census = Census::new();
    let source = StopSource::new();
    let work = read_env(Describe(census.value()))
        .write_env(With(Name("me")))
        .write_env(WithStopToken(source.token()));
    let (name, stoppable, kept) = sync_wait(work).unwrap();
    assert_eq!((name, stoppable, census.alive()), (Some(Name("me")), true, 1));
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_panic_of_the_clone_arrives() {
    struct Unclonable;
    impl Clone for Unclonable {
        fn clone(&self) -> Self {
            panic!("in the clone");
        }
    }
    let work = read_env(Get::<Unclonable>::new())
        .then(|found| found.is_some())
        .write_env(With(Unclonable));
    assert_eq!(panic_message(|| sync_wait(work)), "in the clone");
}

#[test]
fn reads_the_environment_of_the_receiver_itself() {
    let (receiver, reports) = Record::in_env(bowline::Patched::new(With(Depth(9)), EmptyEnv));
    submit(depth(), receiver);
    assert!(matches!(reports.recv().unwrap(), Recorded::Value(Some(Depth(9)))));
    let (receiver, reports) = Record::in_env(EmptyEnv);
    submit(depth(), receiver);
    assert!(matches!(reports.recv().unwrap(), Recorded::Value(None)));
}

#[test]
fn does_not_allocate() {
    let (found, allocated) = allocations(|| sync_wait(depth().write_env(With(Depth(1)))).unwrap());
    assert_eq!((found, allocated), (Some(Depth(1)), 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let last = sync_wait(depth().repeat_until(million()).write_env(With(Depth(5))));
        assert_eq!(last.unwrap(), Some(Depth(5)));
    });
}
