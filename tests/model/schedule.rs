//! A task that queues its own frame, by awaiting the schedule sender of its own pool: against wakes, raises and a cancellation.

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bowline::Priority::{Default, UserInteractive};
use bowline::model::PoolModel;
use bowline::prelude::*;
use bowline::task;

use crate::priority::{Event, actor, detach, play, raiser};
use crate::support::{Census, explore_both_ways};

/// A wake that comes while the frame queues itself is served by that turn, or by one more. It is never lost.
#[test]
fn a_wake_meets_the_requeue() {
    explore_both_ways(2, &["by the turn", "by one more", "before"], |seen, order| {
        let (pool, census, event) = (PoolModel::new(1), Census::default(), Event::default());
        let (local, polls) = (census.value(1), Rc::new(Cell::new(0)));
        let inside = {
            let (event, polls, scheduler) = (event.clone(), polls.clone(), pool.scheduler());
            async move {
                let (mut hop, mut event) = (pin!(scheduler.schedule().into_future()), pin!(event.wait()));
                let (mut hopped, mut happened) = (false, false);
                poll_fn(|cx| {
                    local.touch();
                    polls.set(polls.get() + 1);
                    happened = happened || event.as_mut().poll(cx).is_ready();
                    hopped = hopped || hop.as_mut().poll(cx).is_ready();
                    if happened && polls.get() == 1 {
                        polls.set(10);
                    }
                    if hopped && happened {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
                .await;
            }
        };
        drop(detach(pool, Default, inside));
        let worker = pool.worker(0);
        let work = actor(move || {
            while worker.run_next(false) {}
            drop(worker);
        });
        play(order, [work, actor(move || event.happen())]);
        let worker = pool.worker(0);
        while worker.run_next(false) {}
        drop(worker);
        assert_eq!(census.alive(), 0, "the wake was lost");
        seen.note(match polls.get() {
            2 => "by the turn",
            3 => "by one more",
            11 => "before",
            _ => "too often",
        });
        pool.free();
    });
}

/// A task that is raised while its frame queues itself runs once, at its level or raised.
#[test]
fn a_raise_meets_the_requeue() {
    explore_both_ways(2, &["raised", "as it was"], |seen, order| {
        let (pool, census) = (PoolModel::new(1), Census::default());
        let (local, runs) = (census.value(1), Rc::new(Cell::new(0)));
        let inside = {
            let (seen, runs, scheduler) = (seen.clone(), runs.clone(), pool.scheduler());
            async move {
                local.touch();
                scheduler.schedule().await;
                local.touch();
                runs.set(runs.get() + 1);
                let raised = task::priority() == UserInteractive;
                seen.note(if raised { "raised" } else { "as it was" });
            }
        };
        let worker = pool.worker(0);
        let mut handle = None;
        worker.within(|| handle = Some(detach(pool, Default, inside)));
        let handle = handle.expect("it was detached");
        let work = actor(move || {
            while worker.run_next(false) {}
            drop(worker);
        });
        play(order, [work, raiser(handle)]);
        let worker = pool.worker(0);
        while worker.run_next(false) {}
        drop(worker);
        assert_eq!((runs.get(), census.alive()), (1, 0));
        pool.free();
    });
}

/// A cancellation that comes while the frame is queued stops the task there, or comes after its end.
#[test]
fn a_cancel_meets_the_requeue() {
    explore_both_ways(2, &["stopped", "went on"], |seen, order| {
        let (pool, census) = (PoolModel::new(1), Census::default());
        let (local, went_on) = (census.value(1), Rc::new(Cell::new(false)));
        let inside = {
            let (went_on, scheduler) = (went_on.clone(), pool.scheduler());
            async move {
                local.touch();
                scheduler.schedule().await;
                local.touch();
                went_on.set(true);
            }
        };
        let handle = detach(pool, Default, inside);
        let worker = pool.worker(0);
        let work = actor(move || {
            while worker.run_next(false) {}
            drop(worker);
        });
        let cancel = actor(move || {
            handle.cancel();
            drop(handle);
        });
        play(order, [work, cancel]);
        let worker = pool.worker(0);
        while worker.run_next(false) {}
        drop(worker);
        assert_eq!(census.alive(), 0);
        seen.note(if went_on.get() { "went on" } else { "stopped" });
        pool.free();
    });
}
