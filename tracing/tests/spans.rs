//! The spans and events of tasks, seen by a subscriber.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::{self, Priority, Reason, SpawnOptions};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// What a span was made with, and what happened in it.
#[derive(Clone, Debug, Default)]
struct Seen {
    fields: HashMap<&'static str, String>,
    parent: Option<u64>,
    events: Vec<String>,
    entered: usize,
    exited: usize,
    is_closed: bool,
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<HashMap<u64, Seen>>>);

impl Recorder {
    /// Returns the span of the task with this name, by its id.
    fn named(&self, name: &str) -> Option<(u64, Seen)> {
        let spans = self.0.lock().unwrap();
        spans
            .iter()
            .find(|(_, seen)| seen.fields.get("name").is_some_and(|found| found == name))
            .map(|(id, seen)| (*id, seen.clone()))
    }

    fn change(&self, id: &Id, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.0.lock().unwrap().get_mut(&id.into_u64()) {
            change(seen);
        }
    }
}

struct Fields<'a>(&'a mut HashMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut seen = Seen {
            parent: context
                .span(id)
                .and_then(|span| span.parent())
                .map(|span| span.id().into_u64()),
            ..Seen::default()
        };
        attributes.record(&mut Fields(&mut seen.fields));
        // Ids are used again, after a span was closed.
        self.0.lock().unwrap().insert(id.into_u64(), seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.change(id, |seen| values.record(&mut Fields(&mut seen.fields)));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = HashMap::new();
        event.record(&mut Fields(&mut fields));
        let mut text = fields.remove("message").unwrap_or_default();
        if let Some(reason) = fields.remove("reason") {
            text = format!("{text}: {reason}");
        }
        if let Some(span) = context.event_span(event) {
            self.change(&span.id(), |seen| seen.events.push(text));
        }
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        self.change(id, |seen| seen.entered += 1);
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        self.change(id, |seen| seen.exited += 1);
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.change(&id, |seen| seen.is_closed = true);
    }
}

fn until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it takes too long");
        std::thread::yield_now();
    }
}

/// One test, since a process has one subscriber for all threads, and one instrument.
#[test]
fn tasks_are_spans() {
    // Nobody listens yet: tasks that begin now are not observed.
    bowline_tracing::install().unwrap();
    assert!(bowline_tracing::install().is_err());
    let (unseen, unseen_ends) = async_channel();
    let before = task::detach_with(SpawnOptions::new().name("before"), unseen_ends);

    let recorder = Recorder::default();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(recorder.clone())).unwrap();
    unseen();
    task::block_on(before).unwrap();
    assert!(recorder.named("before").is_none());

    // A task with a child, whose events are in its span.
    let pool = ThreadPool::new(2);
    let around = tracing::info_span!("around");
    let parent = {
        let _around = around.enter();
        let options = SpawnOptions::new().name("parent").scheduler(pool.scheduler());
        task::detach_with(options.priority(Priority::Utility), async {
            tracing::info!("in the parent");
            task::group(async |group| {
                group.spawn_with(SpawnOptions::new().name("child"), async {
                    task::yield_now().await;
                    tracing::info!("in the child");
                });
                group.next().await
            })
            .await
        })
    };
    task::block_on(parent).unwrap();
    until(|| recorder.named("parent").is_some_and(|(_, seen)| seen.is_closed));
    let (parent, seen) = recorder.named("parent").unwrap();
    assert_eq!(seen.parent, around.id().map(|id| id.into_u64()));
    assert_eq!(seen.fields["priority"], "Utility");
    assert!(seen.fields["spawned_at"].contains("spans.rs"), "{seen:?}");
    assert!(seen.events.contains(&"in the parent".to_owned()), "{seen:?}");
    assert!(!seen.events.contains(&"in the child".to_owned()), "{seen:?}");
    assert_eq!(seen.entered, seen.exited);
    assert_eq!(
        seen.events.iter().filter(|event| *event == "polled").count(),
        seen.entered
    );
    until(|| recorder.named("child").is_some_and(|(_, seen)| seen.is_closed));
    let (_, child) = recorder.named("child").unwrap();
    assert_eq!(child.parent, Some(parent));
    assert!(child.events.contains(&"in the child".to_owned()), "{child:?}");

    // A task that is queued a second time: all its events, in order.
    let pool = ThreadPool::new(1);
    let place = pool.scheduler();
    let options = |name: &'static str| SpawnOptions::new().name(name).scheduler(place);
    let twice = task::detach_with(options("twice"), async move { place.schedule().await });
    let id = twice.task().id();
    task::block_on(twice).unwrap();
    until(|| recorder.named("twice").is_some_and(|(_, seen)| seen.is_closed));
    let (_, seen) = recorder.named("twice").unwrap();
    assert_eq!(seen.fields["id"], id.to_string());
    assert_eq!(seen.events, ["resumed", "polled", "suspended"].repeat(2));

    // A task that is raised while it waits has the new priority from its next poll on.
    let gate: Arc<Mutex<(bool, Option<Waker>)>> = Arc::default();
    let closed = gate.clone();
    let waiting = poll_fn(move |cx| {
        let (is_open, waker) = &mut *closed.lock().unwrap();
        *waker = Some(cx.waker().clone());
        if *is_open { Poll::Ready(()) } else { Poll::Pending }
    });
    let raised = task::detach_with(options("raised").priority(Priority::Utility), waiting);
    until(|| recorder.named("raised").is_some_and(|(_, seen)| seen.exited == 1));
    raised.raise(Priority::UserInitiated);
    assert_eq!(recorder.named("raised").unwrap().1.fields["priority"], "Utility");
    let waker = {
        let mut gate = gate.lock().unwrap();
        gate.0 = true;
        gate.1.take()
    };
    waker.unwrap().wake();
    task::block_on(raised).unwrap();
    assert_eq!(recorder.named("raised").unwrap().1.fields["priority"], "UserInitiated");

    // A task that is cancelled.
    let stuck = task::detach_with(SpawnOptions::new().name("stuck"), std::future::pending::<()>());
    until(|| recorder.named("stuck").is_some_and(|(_, seen)| seen.exited == 1));
    stuck.cancel_for(Reason::Custom("enough"));
    assert!(task::block_on(stuck).is_err());
    until(|| recorder.named("stuck").is_some_and(|(_, seen)| seen.is_closed));
    let (_, seen) = recorder.named("stuck").unwrap();
    assert!(seen.events.contains(&"cancelled: enough".to_owned()), "{seen:?}");

    // Two tasks on one stack: the spans are left in the order of the polls.
    let outer = task::detach_with(SpawnOptions::new().name("outer").scheduler(pool.scheduler()), async {
        let inner = task::Task::new(async { tracing::info!("inside") });
        sync_wait(inner).unwrap();
        tracing::info!("outside");
    });
    task::block_on(outer).unwrap();
    until(|| recorder.named("outer").is_some_and(|(_, seen)| seen.is_closed));
    let (_, seen) = recorder.named("outer").unwrap();
    assert!(seen.events.contains(&"outside".to_owned()), "{seen:?}");
    assert!(!seen.events.contains(&"inside".to_owned()), "{seen:?}");
    assert_eq!(seen.entered, seen.exited);
}

/// Returns a function that ends a future, and the future.
fn async_channel() -> (impl FnOnce(), impl Future<Output = ()> + Send) {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = Mutex::new(receiver);
    let ended = async move {
        while receiver.lock().unwrap().try_recv().is_err() {
            task::yield_now().await;
        }
    };
    (move || sender.send(()).unwrap(), ended)
}
