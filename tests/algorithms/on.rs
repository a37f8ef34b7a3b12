//! `on`: runs a sender on a scheduler and returns.

use std::convert::Infallible;
use std::sync::Mutex;

use crate::common::touchy::Touchy;
use crate::common::*;
use bowline::prelude::*;
use bowline::stop::StopSource;

#[test]
fn runs_there_and_comes_back_on_every_channel() {
    with_loop(|there| {
        let here = thread::current().id();
        let id = sync_wait(starts_on(there, just_from(|| thread::current().id()))).unwrap();
        assert_ne!(id, here);
        let seen = Mutex::new(Vec::new());
        let note = || just_from(|| seen.lock().unwrap().push(thread::current().id()));
        // The inner clean-up runs there, the outer where it arrives.
        let work = just(1).finally(note()).on(there).finally(note());
        assert_eq!(sync_wait(work).unwrap(), 1);
        let work = just_error::<i32, _>("no").finally(note()).on(there).finally(note());
        assert_eq!(sync_wait(work).err(), Some("no"));
        let work = just_stopped::<i32, Infallible>()
            .finally(note())
            .on(there)
            .finally(note());
        assert!(sync_wait(work).is_stopped());
        let work = just_from(|| panic!("there")).finally(note()).on(there).finally(note());
        assert_eq!(panic_message(|| sync_wait(work)), "there");
        assert_eq!(seen.into_inner().unwrap(), [id, here, id, here, id, here, id, here]);
    });
}

#[test]
fn the_environment_inside_has_the_scheduler() {
    with_loop(|first| {
        with_loop(|second| {
            let id = sync_wait(just_from(|| thread::current().id()).on(first)).unwrap();
            // The inner `on` returns to the scheduler of its environment, which is the first.
            let inside = just(()).on(second).then(|()| thread::current().id());
            assert_eq!(sync_wait(inside.on(first)).unwrap(), id);
        });
    });
}

#[test]
fn a_stop_before_its_turn_leaves_it_unstarted_and_comes_back() {
    with_loop(|there| {
        let source = StopSource::new();
        source.request_stop();
        let here = thread::current().id();
        let work = just_from(|| -> bool { panic!("started") })
            .on(there)
            .upon_stopped(move || thread::current().id() == here)
            .write_env(WithStopToken(source.token()));
        assert!(sync_wait(work).unwrap());
    });
}

#[test]
fn the_way_back_is_not_stopped() {
    with_loop(|there| {
        let source = StopSource::new();
        let work = just_from(|| source.request_stop())
            .on(there)
            .write_env(WithStopToken(source.token()));
        assert!(sync_wait(work).unwrap());
    });
}

#[test]
fn a_panic_in_schedule_on_the_way_back_is_the_completion() {
    let census = Census::new();
    let back = || WithScheduler(Touchy::<0>::new("schedule", &census));
    with_loop(|there| {
        let work = just(census.value()).on(there).write_env(back());
        assert_eq!(panic_message(|| sync_wait(work)), "in schedule");
        let work = just_from(|| panic!("there")).on(there).write_env(back());
        assert_eq!(panic_message(|| sync_wait(work)), "there");
    });
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_panic_in_schedule_on_the_way_there_is_the_completion() {
    let census = Census::new();
    let work = just(census.value()).on(Touchy::<0>::new("schedule", &census));
    assert_eq!(panic_message(|| sync_wait(work)), "in schedule");
    assert_eq!(census.alive(), 0);
}
