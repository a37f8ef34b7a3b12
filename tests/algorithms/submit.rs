//! `submit`: connects a sender to a receiver on the heap, and starts it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::hostile::{Hostile, Trick};
use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::StopSource;
use bowline::{EmptyEnv, Panic, Transfer};

/// Returns the completion of `sender`, recorded.
fn recorded<S>(sender: S) -> Recorded<S::Value, S::Error>
where
    S: Sender<Value: Send, Error: Send> + 'static,
{
    let (record, seen) = Record::new();
    submit(sender, record);
    seen.recv().unwrap()
}

#[test]
fn every_channel_arrives() {
    assert_eq!(recorded(just(1)), Recorded::Value(1));
    assert_eq!(recorded(just_error::<i32, _>("no")), Recorded::Error("no"));
    assert_eq!(recorded(just_stopped::<i32, Infallible>()), Recorded::Stopped);
    let panics = just_from(|| -> i32 { panic!("boom") });
    assert_eq!(recorded(panics), Recorded::Panicked("boom".to_owned()));
}

#[test]
fn a_panic_in_connect_goes_to_the_receiver() {
    let census = Census::new();
    for trick in [Trick::ConnectPanics, Trick::ConnectDropsAndPanics] {
        let (record, seen) = Record::new();
        submit(Hostile::new(trick, &census), record);
        let said = Recorded::Panicked("in connect".to_owned());
        assert_eq!(seen.iter().collect::<Vec<_>>(), [said], "there is one completion");
        assert_eq!(census.alive(), 0);
    }
    assert_eq!(recorded(Hostile::new(Trick::ConnectDrops, &census)), Recorded::Stopped);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_panic_in_start_ends_the_process() {
    let said = aborts("a_panic_in_start_ends_the_process", || {
        let _ = recorded(Hostile::new(Trick::StartPanics, &Census::new()));
    });
    assert!(said.contains("panicked inside a job"), "{said}");
}

#[test]
fn a_receiver_that_panics_ends_the_process() {
    struct Panics;
    impl Receiver<i32, &'static str> for Panics {
        type Env = EmptyEnv;
        fn env(&self) -> EmptyEnv {
            EmptyEnv
        }
        fn set_value(self, _: i32) -> Transfer {
            panic!("in a completion");
        }
        fn set_error(self, _: &'static str) -> Transfer {
            Transfer::none()
        }
        fn set_stopped(self) -> Transfer {
            Transfer::none()
        }
        fn set_panicked(self, _: Panic) -> Transfer {
            Transfer::none()
        }
    }
    let said = aborts("a_receiver_that_panics_ends_the_process", || {
        submit(Hostile::new(Trick::None, &Census::new()), Panics);
    });
    assert!(said.contains("panicked inside a job"), "{said}");
}

#[test]
fn it_completes_later_on_another_thread() {
    static LOOP: RunLoop = RunLoop::new();
    let (record, seen) = Record::new();
    submit(LOOP.scheduler().schedule().then(|()| thread::current().id()), record);
    assert!(seen.try_recv().is_err(), "nobody drives the loop yet");
    let driver = thread::spawn(|| {
        LOOP.run_ready();
        thread::current().id()
    });
    assert_eq!(seen.recv().unwrap(), Recorded::Value(driver.join().unwrap()));
}

#[test]
fn the_operation_is_freed_before_the_receiver_is_completed() {
    struct Look {
        census: Census,
        alive: Arc<AtomicUsize>,
    }
    impl Receiver<i32, Infallible> for Look {
        type Env = EmptyEnv;
        fn env(&self) -> EmptyEnv {
            EmptyEnv
        }
        fn set_value(self, _: i32) -> Transfer {
            self.alive.store(self.census.alive(), SeqCst);
            Transfer::none()
        }
        fn set_error(self, error: Infallible) -> Transfer {
            match error {}
        }
        fn set_stopped(self) -> Transfer {
            panic!("stopped")
        }
        fn set_panicked(self, payload: Panic) -> Transfer {
            payload.resume()
        }
    }
    let (census, alive) = (Census::new(), Arc::new(AtomicUsize::new(7)));
    let held = census.value();
    let work = just(1).finally(just_from(move || {
        let _held = &held;
    }));
    let look = Look {
        census: census.clone(),
        alive: alive.clone(),
    };
    submit(work, look);
    assert_eq!(alive.load(SeqCst), 0);
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let kept = recorded(just(census.value()));
    assert!(matches!(kept, Recorded::Value(_)));
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_written_token_stops_it() {
    let source = StopSource::new();
    let (record, seen) = Record::new();
    submit(never::<(), ()>().write_env(WithStopToken(source.token())), record);
    assert!(seen.try_recv().is_err());
    source.request_stop();
    assert_eq!(seen.try_recv(), Ok(Recorded::Stopped));
    assert_eq!(
        recorded(never::<(), ()>().write_env(WithStopToken(source.token()))),
        Recorded::Stopped
    );
}

#[test]
fn allocates_once() {
    struct Ignore;
    impl<T, E> Receiver<T, E> for Ignore {
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
    let ((), allocated) = allocations(|| submit(just(1).then(|x| x + 1), Ignore));
    assert_eq!(allocated, 1);
    let ((), allocated) = allocations(|| submit(just_error::<(), _>([0u8; 1000]), Ignore));
    assert_eq!(allocated, 1);
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let rounds = Arc::new(AtomicUsize::new(0));
        let counted = rounds.clone();
        let round = just_from(move || counted.fetch_add(1, SeqCst) + 1);
        assert_eq!(
            recorded(round.repeat_until(|rounds| *rounds == ROUNDS)),
            Recorded::Value(ROUNDS)
        );
        for _ in 0..ROUNDS {
            let rounds = rounds.clone();
            let (record, _) = Record::<_, Infallible>::new();
            submit(just(1).then(move |x| drop((x, rounds))), record);
        }
    });
}
