//! A resume on tokio's threads does not allocate. Alone in its process: the counter is the process's.

mod common;

use bowline::prelude::*;
use bowline_tokio::block_on;
use common::*;

#[test]
fn a_hop_does_not_allocate() {
    in_time(|| {
        for runtime in [multi_thread(2), current_thread()] {
            let per_hop = block_on(&runtime, async {
                const HOPS: usize = 10_000;
                // What the task, the timer and the runtime make once.
                for _ in 0..100 {
                    task::yield_now().await;
                }
                let before = allocations();
                for _ in 0..HOPS {
                    task::yield_now().await;
                }
                (allocations() - before) as f64 / HOPS as f64
            });
            assert!(per_hop < 0.001, "{per_hop} allocations for each hop");

            // A wake-up by another task of tokio, through a channel.
            let (there, mut back) = tokio::sync::mpsc::channel::<()>(1);
            let (answer, mut back_again) = tokio::sync::mpsc::channel::<()>(1);
            runtime.spawn(async move {
                while back.recv().await.is_some() {
                    if answer.send(()).await.is_err() {
                        return;
                    }
                }
            });
            let per_round = block_on(&runtime, async move {
                const ROUNDS: usize = 2_000;
                let mut before = 0;
                for round in 0..ROUNDS + 200 {
                    if round == 200 {
                        before = allocations();
                    }
                    there.send(()).await.expect("the other task");
                    back_again.recv().await.expect("the other task");
                }
                (allocations() - before) as f64 / ROUNDS as f64
            });
            // The channel itself allocates a block for every 32 messages, in each direction.
            assert!(per_round < 0.2, "{per_round} allocations for each round");
        }
    });
}
