//! Back-pressure: a producer waits while the limit of running children is reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::prelude::*;

const LIMIT: usize = 4;
const PAGES: usize = 100;

/// The number of running children, and the largest number so far.
#[derive(Default)]
struct Meter {
    running: AtomicUsize,
    most: AtomicUsize,
}

impl Meter {
    fn begin(&self) {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
    }

    fn end(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[bowline::main]
async fn main() {
    let meter = Arc::new(Meter::default());
    let fetch = async |page: usize, meter: Arc<Meter>| {
        meter.begin();
        // Lets other children run.
        task::yield_now().await;
        meter.end();
        page
    };

    let sum = task::group(async |group| {
        group.set_limit(LIMIT);
        for page in 0..PAGES {
            // Waits while `LIMIT` children run.
            group.spawn_when_ready(fetch(page, meter.clone())).await;
            assert!(meter.running.load(Ordering::SeqCst) <= LIMIT);
        }
        let mut sum = 0;
        while let Some(page) = group.next().await {
            sum += page;
        }
        sum
    })
    .await;

    let most = meter.most.load(Ordering::SeqCst);
    println!("{PAGES} pages, at most {most} at a time");
    assert_eq!(sum, PAGES * (PAGES - 1) / 2);
    assert!(most <= LIMIT);

    // A group with a limit of zero refuses the child at once.
    let refused = task::group(async |group| {
        group.set_limit(0);
        group.try_spawn_when_ready(async {}).await.unwrap_err().kind()
    })
    .await;
    println!("refused: {refused}");
}
