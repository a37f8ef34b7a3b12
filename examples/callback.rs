//! Makes a callback API awaitable: `download(url:)` of SE-0304. Cancelling the task cancels the session's download.
//!
//! ```text
//! cargo run --example callback
//! ```

use std::time::Duration;

use bowline::prelude::*;
use bowline::task::Continuation;
use session::{Session, SessionError};

/// Downloads the data of a URL.
async fn download(url: &'static str) -> Result<Vec<u8>, SessionError> {
    task::continuation(move |continuation: Continuation<Vec<u8>, SessionError>| {
        let session_task = Session::shared().data_task(url);
        // Runs when the task is cancelled.
        let cancelled = session_task.clone();
        continuation.on_stop(move || cancelled.cancel());
        session_task.resume(move |answer| {
            // After a cancellation no task waits, and `resume_with` returns the answer.
            if let Err(unwanted) = continuation.resume_with(answer) {
                println!("  an answer after the cancellation of {url}: {unwanted:?}");
            }
        });
    })
    .await
}

fn main() {
    let pool = ThreadPool::global().scheduler();
    let fetch = |url| starts_on(pool, Task::try_new(download(url)));

    // The callback gets data or an error, and so does the task.
    let data = sync_wait(fetch("https://example.com/short")).unwrap();
    println!("short: {} bytes", data.len());
    assert_eq!(data, b"https://example.com/short");
    let error = sync_wait(fetch("https://example.com/missing")).unwrap_err();
    println!("missing: {error:?}");
    assert_eq!(error, SessionError::NotFound);

    // A download that takes too long is cancelled, in the session as well.
    let outcome = sync_wait(fetch("https://example.com/endless").timeout(Duration::from_millis(20)));
    println!("endless: {outcome:?}");
    assert!(matches!(outcome, Outcome::Error(bowline::TimeoutError::Elapsed)));
    // On a busy machine the time may be over before the download has begun.
    assert_eq!(Session::shared().cancelled(), Session::shared().endless());

    // A callback that is dropped without being called stops the task.
    task::set_report_hook(|report| println!("  report: {report}"));
    let outcome = sync_wait(fetch("https://example.com/forgetful"));
    println!("forgetful: {outcome:?}");
    assert!(outcome.is_stopped());
}

/// A library with a callback interface.
mod session {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Condvar, Mutex};
    use std::thread;

    #[derive(Debug, PartialEq, Eq)]
    pub(crate) enum SessionError {
        NotFound,
        Cancelled,
    }

    /// A session that runs each download on its own thread.
    pub(crate) struct Session {
        endless: AtomicUsize,
        cancelled: AtomicUsize,
    }

    impl Session {
        pub(crate) fn shared() -> &'static Session {
            static SHARED: Session = Session {
                endless: AtomicUsize::new(0),
                cancelled: AtomicUsize::new(0),
            };
            &SHARED
        }

        /// Makes a download, which begins with `resume`.
        pub(crate) fn data_task(&'static self, url: &'static str) -> SessionTask {
            if url.ends_with("/endless") {
                self.endless.fetch_add(1, Ordering::SeqCst);
            }
            SessionTask {
                url,
                session: self,
                cancelled: Arc::default(),
            }
        }

        /// Returns the number of downloads without an end.
        pub(crate) fn endless(&self) -> usize {
            self.endless.load(Ordering::SeqCst)
        }

        /// Returns the number of cancelled downloads.
        pub(crate) fn cancelled(&self) -> usize {
            self.cancelled.load(Ordering::SeqCst)
        }
    }

    /// A download. It can be cancelled from any thread.
    #[derive(Clone)]
    pub(crate) struct SessionTask {
        url: &'static str,
        session: &'static Session,
        cancelled: Arc<(Mutex<bool>, Condvar)>,
    }

    impl SessionTask {
        pub(crate) fn resume(self, done: impl FnOnce(Result<Vec<u8>, SessionError>) + Send + 'static) {
            thread::spawn(move || match self.url.rsplit('/').next() {
                Some("missing") => done(Err(SessionError::NotFound)),
                Some("forgetful") => drop(done),
                Some("endless") => {
                    let (flag, changed) = &*self.cancelled;
                    let mut cancelled = flag.lock().expect("the lock is not poisoned");
                    while !*cancelled {
                        cancelled = changed.wait(cancelled).expect("the lock is not poisoned");
                    }
                    drop(cancelled);
                    done(Err(SessionError::Cancelled));
                }
                _ => done(Ok(self.url.into())),
            });
        }

        pub(crate) fn cancel(&self) {
            *self.cancelled.0.lock().expect("the lock is not poisoned") = true;
            self.cancelled.1.notify_all();
            self.session.cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }
}
