#![doc = "[Getting started]: getting_started"]
#![doc = "[Concepts]: concepts"]
#![doc = "[Schedulers]: schedulers"]
#![doc = "[Tasks]: tasks"]
#![doc = "[Structured concurrency]: structured_concurrency"]
#![doc = "[I/O]: io"]
#![doc = "[Coming from tokio]: coming_from_tokio"]
#![doc = "[Scopes]: scopes"]
#![doc = "[Algorithms]: algorithms"]
#![doc = "[Writing your own]: writing_your_own"]
#![doc = "[Performance]: performance"]
#![doc = "[Conformance]: conformance"]
#![doc = "[Contributing]: contributing"]
#![doc = "[Internals]: internals"]
#![doc = ""]
#![doc = include_str!("../docs/README.md")]

// Each page is included from its file in `docs/`, and its code is run. The definitions before a page redirect its links
// from files to items. The page of the programs is not part of this package, so links to it lead to the section about them.

#[doc = "[the concepts]: concepts"]
#[doc = "[schedulers]: schedulers"]
#[doc = "[Tasks]: tasks"]
#[doc = "[Structured concurrency]: structured_concurrency"]
#[doc = "[Retries]: structured_concurrency#retries"]
#[doc = "[every algorithm]: algorithms"]
#[doc = "[Where a task runs]: tasks#where-a-task-runs"]
#[doc = "[Dropping a future in flight]: tasks#dropping-a-future-in-flight"]
#[doc = "[Blocking in a task]: tasks#blocking-in-a-task"]
#[doc = "[Futures of other crates]: tasks#futures-of-other-crates"]
#[doc = "[Cancellation]: structured_concurrency#cancellation"]
#[doc = "[Destructors that panic]: concepts#destructors-that-panic"]
#[doc = ""]
#[doc = include_str!("../docs/getting-started.md")]
pub mod getting_started {}

#[doc = "[every algorithm]: algorithms"]
#[doc = "[writing your own]: writing_your_own"]
#[doc = ""]
#[doc = include_str!("../docs/concepts.md")]
pub mod concepts {}

#[doc = "[`Scheduler`]: crate::Scheduler"]
#[doc = "[own scheduler]: writing_your_own#a-scheduler"]
#[doc = "[every algorithm]: algorithms"]
#[doc = "[I/O]: io"]
#[doc = "[Blocking in a task]: tasks#blocking-in-a-task"]
#[doc = "[abort]: concepts#destructors-that-panic"]
#[doc = ""]
#[doc = include_str!("../docs/schedulers.md")]
pub mod schedulers {}

#[doc = "[`Task`]: crate::task::Task"]
#[doc = "[`LocalTask`]: crate::task::LocalTask"]
#[doc = "[Structured concurrency]: structured_concurrency"]
#[doc = "[own scheduler]: writing_your_own#a-scheduler"]
#[doc = "[blocking]: schedulers#blocking"]
#[doc = "[abort]: concepts#destructors-that-panic"]
#[doc = "[handler]: structured_concurrency#cancellation-handlers"]
#[doc = "[Blocking calls]: io#blocking-calls"]
#[doc = "[Where children run]: io#where-children-run"]
#[doc = ""]
#[doc = include_str!("../docs/tasks.md")]
pub mod tasks {}

#[doc = "[`task::group`]: crate::task::group"]
#[doc = "[`task::try_group`]: crate::task::try_group"]
#[doc = "[`task::discarding_group`]: crate::task::discarding_group"]
#[doc = "[`task::supervised_group`]: crate::task::supervised_group"]
#[doc = "[`task::gather`]: crate::task::gather"]
#[doc = "[`task::let_async`]: crate::task::let_async"]
#[doc = "[`task::detach`]: crate::task::detach"]
#[doc = "[`task::dump`]: crate::task::dump"]
#[doc = "[`TaskTree`]: crate::task::TaskTree"]
#[doc = "[`TaskGroup`]: crate::task::TaskGroup"]
#[doc = "[`SpawnOptions`]: crate::task::SpawnOptions"]
#[doc = "[`ChildHandle`]: crate::task::ChildHandle"]
#[doc = "[`Handle`]: crate::task::Handle"]
#[doc = "[`TaskRef`]: crate::task::TaskRef"]
#[doc = "[`JoinPolicy`]: crate::task::JoinPolicy"]
#[doc = "[`SpawnError`]: crate::task::SpawnError"]
#[doc = "[`kv`]: io#programs"]
#[doc = "[Getting started]: getting_started#8-a-first-program-a-deadline-and-a-retry"]
#[doc = "[Where children run]: io#where-children-run"]
#[doc = "[local task]: tasks#local-tasks"]
#[doc = "[in every task]: tasks#stopping"]
#[doc = "[pool]: schedulers"]
#[doc = "[foreign]: tasks#futures-of-other-crates"]
#[doc = "[dropping]: tasks#dropping-a-future-in-flight"]
#[doc = "[abort]: concepts#destructors-that-panic"]
#[doc = "[scopes]: scopes"]
#[doc = "[costs]: performance#where-the-instructions-go"]
#[doc = ""]
#[doc = include_str!("../docs/structured-concurrency.md")]
pub mod structured_concurrency {}

// The code of this page needs `bowline-tokio`, whose documentation tests run it.
#[cfg(not(doctest))]
#[doc = "[hosted]: schedulers#on-another-executor"]
#[doc = "[Futures of other crates]: tasks#futures-of-other-crates"]
#[doc = "[programs]: #programs"]
#[doc = "[bank]: #programs"]
#[doc = ""]
#[doc = include_str!("../docs/io.md")]
pub mod io {}

// As for the page before.
#[cfg(not(doctest))]
#[doc = "[hangs]: structured_concurrency#finding-what-hangs"]
#[doc = "[scope]: schedulers"]
#[doc = "[end]: io#the-end-of-a-runtime"]
#[doc = ""]
#[doc = include_str!("../docs/coming-from-tokio.md")]
pub mod coming_from_tokio {}

#[doc = "[`CountingScope`]: crate::scope::CountingScope"]
#[doc = "[`SimpleCountingScope`]: crate::scope::SimpleCountingScope"]
#[doc = "[`task::scope`]: crate::task::scope"]
#[doc = "[group]: structured_concurrency#groups"]
#[doc = ""]
#[doc = include_str!("../docs/scopes.md")]
pub mod scopes {}

#[doc = "[destructors that panic]: concepts#destructors-that-panic"]
#[doc = ""]
#[doc = include_str!("../docs/algorithms.md")]
pub mod algorithms {}

#[doc = "[`Sender`]: crate::Sender"]
#[doc = "[`Receiver`]: crate::Receiver"]
#[doc = "[`Operation`]: crate::Operation"]
#[doc = "[`RunLoop`]: crate::scheduler::RunLoop"]
#[doc = "[`SenderFuture`]: crate::task::SenderFuture"]
#[doc = "[`Task`]: crate::task::Task"]
#[doc = "[`TaskEnv`]: crate::task::TaskEnv"]
#[doc = "[abort]: concepts#destructors-that-panic"]
#[doc = "[where]: tasks#where-a-task-runs"]
#[doc = ""]
#[doc = include_str!("../docs/writing-your-own.md")]
pub mod writing_your_own {}

#[doc = include_str!("../docs/performance.md")]
pub mod performance {}

#[doc = include_str!("../docs/conformance.md")]
pub mod conformance {}

#[doc = "[docs/internals.md]: internals"]
#[doc = ""]
#[doc = include_str!("../CONTRIBUTING.md")]
pub mod contributing {}

// The code of this page is a sketch of the library's own.
#[cfg(not(doctest))]
#[doc = "[CONTRIBUTING]: contributing"]
#[doc = ""]
#[doc = include_str!("../docs/internals.md")]
pub mod internals {}

#[doc = include_str!("../CHANGELOG.md")]
pub mod changelog {}
