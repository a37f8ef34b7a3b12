//! `sequence`: one sender, then another, in the same storage.

use std::convert::Infallible;
use std::marker::PhantomPinned;
use std::mem::size_of;
use std::pin::Pin;
use std::sync::Mutex;

use crate::common::*;
use bowline::prelude::*;
use bowline::stop::StopSource;
use bowline::{Completes, EmptyEnv, Operation, Panic, Transfer};

/// A sender that completes at once, and logs when it is connected, started and destroyed. Its operation has the given size.
struct Noted<'a, const SIZE: usize> {
    name: &'static str,
    log: &'a Mutex<Vec<String>>,
}

struct NotedOperation<'a, const SIZE: usize, R> {
    sender: Noted<'a, SIZE>,
    receiver: Option<R>,
    _payload: [u8; SIZE],
    _pinned: PhantomPinned,
}

impl<const SIZE: usize> Noted<'_, SIZE> {
    fn note(&self, event: &str) {
        self.log.lock().unwrap().push(format!("{event} {}", self.name));
    }
}

// SAFETY: the operation completes inside `start`, touches nothing afterwards, and is `!Unpin`.
unsafe impl<'a, const SIZE: usize> Sender for Noted<'a, SIZE> {
    type Value = ();
    type Error = Infallible;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<(), Infallible>> = NotedOperation<'a, SIZE, R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        self.note("connect");
        NotedOperation {
            sender: self,
            receiver: Some(receiver),
            _payload: [0; SIZE],
            _pinned: PhantomPinned,
        }
    }
}

impl<const SIZE: usize, R: Receiver<(), Infallible>> Operation for NotedOperation<'_, SIZE, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        self.sender.note("start");
        // SAFETY: the receiver is not pinned.
        let receiver = unsafe { self.get_unchecked_mut() }.receiver.take().expect("one start");
        receiver.set_value(())
    }
}

impl<const SIZE: usize, R> Drop for NotedOperation<'_, SIZE, R> {
    fn drop(&mut self) {
        self.sender.note("destroy");
    }
}

/// A zero-sized receiver, to measure operations with.
struct Nowhere;

impl<T, E> Receiver<T, E> for Nowhere {
    type Env = EmptyEnv;

    fn env(&self) -> EmptyEnv {
        EmptyEnv
    }

    fn set_value(self, _: T) -> Transfer {
        Transfer::none()
    }

    fn set_error(self, _: E) -> Transfer {
        Transfer::none()
    }

    fn set_stopped(self) -> Transfer {
        Transfer::none()
    }

    fn set_panicked(self, _: Panic) -> Transfer {
        Transfer::none()
    }
}

fn size_of_operation<S: Sender>(_: &S) -> usize {
    size_of::<S::Operation<Nowhere>>()
}

#[test]
fn completes_with_the_value_of_the_second() {
    assert_eq!(sync_wait(just("first").sequence(just(2))).unwrap(), 2);
    assert_eq!(sync_wait(just("first").sequence(just(2))).unwrap(), 2);
}

#[test]
fn the_second_is_connected_after_the_first_was_destroyed() {
    let log = Mutex::new(Vec::new());
    let (first, second) = (
        Noted::<0> {
            name: "first",
            log: &log,
        },
        Noted::<0> {
            name: "second",
            log: &log,
        },
    );
    sync_wait(first.sequence(second)).unwrap();
    assert_eq!(
        log.into_inner().unwrap(),
        [
            "connect first",
            "start first",
            "destroy first",
            "connect second",
            "start second",
            "destroy second"
        ]
    );
}

#[test]
fn the_operation_is_no_larger_than_the_larger_child_and_a_little() {
    let log = Mutex::new(Vec::new());
    let (name, log) = ("", &log);
    let small = size_of_operation(&Noted::<64> { name, log });
    let large = size_of_operation(&Noted::<4096> { name, log });
    assert!(small < large);
    let little = 16 * size_of::<usize>();
    let of_two = |size: usize| size <= large + little;
    let large_last = Noted::<64> { name, log }.sequence(Noted::<4096> { name, log });
    assert!(of_two(size_of_operation(&large_last)));
    let large_first = Noted::<4096> { name, log }.sequence(Noted::<64> { name, log });
    assert!(of_two(size_of_operation(&large_first)));
    let both_large = Noted::<4096> { name, log }.sequence(Noted::<4096> { name, log });
    assert!(of_two(size_of_operation(&both_large)));
}

#[test]
fn what_the_second_carries_is_stored_once() {
    let second = just([0u8; 4096]);
    let alone = size_of_operation(&second);
    let size = size_of_operation(&just(()).sequence(second));
    assert!(size <= alone + 16 * size_of::<usize>(), "{size} for {alone}");
}

#[test]
fn the_value_of_the_first_is_dropped_before_the_second_runs() {
    let census = Census::new();
    let work = just(census.value()).sequence(just_from(|| census.alive()));
    assert_eq!(sync_wait(work).unwrap(), 0);
}

#[test]
fn an_error_a_stop_or_a_panic_of_the_first_leaves_the_second_unconnected() {
    let log = Mutex::new(Vec::new());
    let second = || Noted::<0> {
        name: "second",
        log: &log,
    };
    let failed = just_error::<(), _>("no").sequence(second().infallible_into());
    assert_eq!(sync_wait(failed).err(), Some("no"));
    assert!(sync_wait(just_stopped::<(), _>().sequence(second())).is_stopped());
    let panics = just_from(|| panic!("first")).sequence(second());
    assert_eq!(panic_message(|| sync_wait(panics)), "first");
    assert_eq!(log.into_inner().unwrap(), [""; 0]);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let log = Mutex::new(Vec::new());
    let first = Noted::<0> {
        name: "first",
        log: &log,
    };
    let mut slot = WaitSlot::new();
    drop(prepare(first.sequence(just(census.value())), &mut slot));
    assert_eq!(census.alive(), 0);
    assert_eq!(log.into_inner().unwrap(), [""; 0]);
}

#[test]
fn a_stop_during_the_first_reaches_the_second() {
    let source = StopSource::new();
    let work = just_from(|| source.request_stop())
        .sequence(never::<(), _>())
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
}

#[test]
fn a_stop_before_the_start_reaches_the_first() {
    let source = StopSource::new();
    source.request_stop();
    let second = just_from(|| -> i32 { panic!("called") });
    let work = never::<(), _>()
        .sequence(second)
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
}
