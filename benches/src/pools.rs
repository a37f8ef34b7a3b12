//! The pools that are compared, all with the same number of workers.

use std::future::Future;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use async_executor::{Executor, Task};
use bowline::scheduler::ThreadPool;
use futures_lite::future;

pub fn bowline(threads: usize) -> ThreadPool {
    ThreadPool::new(threads)
}

pub fn tokio(threads: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(threads)
        .build()
        .expect("tokio starts its workers")
}

pub fn rayon(threads: usize) -> rayon::ThreadPool {
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
    builder.build().expect("rayon starts its workers")
}

/// smol's executor and its threads, configured as smol itself does.
pub struct AsyncExecutor {
    executor: Arc<Executor<'static>>,
    /// The channel that ends the threads when it is closed.
    open: async_channel::Sender<()>,
    threads: Vec<JoinHandle<()>>,
}

impl AsyncExecutor {
    pub fn new(threads: usize) -> Self {
        let executor = Arc::new(Executor::new());
        let (open, closed) = async_channel::bounded::<()>(1);
        let start = |_| {
            let (executor, closed) = (executor.clone(), closed.clone());
            thread::spawn(move || {
                let _ = future::block_on(executor.run(closed.recv()));
            })
        };
        let threads = (0..threads).map(start).collect();
        AsyncExecutor {
            executor,
            open,
            threads,
        }
    }

    /// Returns the executor, for a task that spawns others.
    pub fn spawner(&self) -> Arc<Executor<'static>> {
        self.executor.clone()
    }

    pub fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Task<T> {
        self.executor.spawn(future)
    }
}

impl Drop for AsyncExecutor {
    fn drop(&mut self) {
        self.open.close();
        for thread in self.threads.drain(..) {
            // The panic hook has reported a panic of the thread.
            let _ = thread.join();
        }
    }
}
