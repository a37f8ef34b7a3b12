//! A tree of tasks as text, as JSON, and as a page for a browser.

use core::fmt::{self, Write};
use core::time::Duration;
use std::string::String;
use std::time::Instant;

use super::{TaskNode, TaskTree, TaskWait};

/// The maximum indentation of a printed tree, in levels.
const LEVELS: usize = 40;

impl fmt::Display for TaskTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in self.iter() {
            let indent = 2 * node.depth().min(LEVELS);
            write!(f, "{:indent$}task {}", "", node.id())?;
            if let Some(name) = node.name() {
                write!(f, " {name:?}")?;
            }
            write!(f, ": {}, priority {:?}", Doing(&node), node.priority())?;
            if node.base_priority() != node.priority() {
                write!(f, ", base priority {:?}", node.base_priority())?;
            }
            writeln!(f)?;
            self.write_details(&node, |line| writeln!(f, "{:indent$}    {line}", ""))?;
            if node.others() != 0 {
                let plural = if node.others() == 1 { "" } else { "s" };
                writeln!(f, "{:indent$}  {} more task{plural}", "", node.others())?;
            }
        }
        Ok(())
    }
}

impl TaskTree {
    /// Returns the tree as JSON: an object whose `tasks` are in preorder, each with the `id` of its `parent`.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::{self, Task};
    ///
    /// let task = Task::new(async { task::dump().unwrap().to_json() });
    /// let json = sync_wait(task).unwrap();
    /// assert!(json.starts_with(r#"{"tasks":[{"id":"#), "{json}");
    /// ```
    ///
    /// Times are in seconds before the creation of the tree. `deadline_in` and `awaited_deadline_in` are in seconds after it, and negative
    /// when the deadline has passed: the first is of the task as a whole, the second of the scopes around the await. What is unknown is
    /// `null`.
    pub fn to_json(&self) -> String {
        let mut json = String::from("{\"tasks\":[");
        // The ids of the tasks above.
        let mut above = std::vec::Vec::new();
        for (index, node) in self.iter().enumerate() {
            if index != 0 {
                json.push(',');
            }
            above.truncate(node.depth());
            let wait = node.waits();
            let mut object = JsonObject::new(&mut json);
            object.raw("id", Some(node.id()));
            object.raw("parent", above.last());
            object.text("name", node.name());
            object.text("state", Some(node.state()));
            object.text("activity", node.activity());
            object.text("awaited_at", wait.as_ref().and_then(TaskWait::location));
            object.text("awaited", wait.as_ref().and_then(TaskWait::what));
            object.raw("awaited_task", wait.as_ref().and_then(TaskWait::task));
            object.raw(
                "awaited_deadline_in",
                wait.as_ref().and_then(TaskWait::deadline).map(|at| self.until(at)),
            );
            object.raw("waiting", self.waiting(&node).map(|time| time.as_secs_f64()));
            object.text("cancelled", node.cancellation_reason());
            object.raw(
                "cancelled_for",
                self.since(node.cancelled_at()).map(|time| time.as_secs_f64()),
            );
            object.raw("deadline_in", node.deadline().map(|at| self.until(at)));
            object.text("priority", Some(format_args!("{:?}", node.priority())));
            object.text("base_priority", Some(format_args!("{:?}", node.base_priority())));
            object.text("spawned_at", node.spawned_at());
            object.raw("others", Some(node.others()));
            object.end();
            above.push(node.id());
        }
        json.push_str("]}");
        json
    }

    /// Returns a page for a browser that needs nothing else: the tree with parts that can be folded, and that can be sorted by
    /// how long the tasks wait.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::{self, Task};
    ///
    /// let task = Task::new(async { task::dump().unwrap().to_html() });
    /// let page = sync_wait(task).unwrap();
    /// assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
    /// ```
    pub fn to_html(&self) -> String {
        let mut page = String::from(PAGE_BEGIN);
        let plural = if self.len() == 1 { "" } else { "s" };
        _ = write!(page, "<p>{} task{plural}</p>\n<main id=\"tree\">\n", self.len());
        let mut open = 0;
        for node in self.iter() {
            for _ in node.depth()..open {
                page.push_str("</details>\n");
            }
            open = node.depth() + 1;
            let waiting = self.waiting(&node).map_or(-1.0, |time| time.as_secs_f64());
            _ = write!(page, "<details open data-waiting=\"{waiting}\"><summary>");
            _ = write!(page, "<b>task {}", node.id());
            if let Some(name) = node.name() {
                _ = write!(Escaped(&mut page), " {name:?}");
            }
            _ = write!(
                page,
                "</b> <i class=\"{}\">{}</i> priority {:?}",
                node.state(),
                Doing(&node),
                node.priority()
            );
            if node.base_priority() != node.priority() {
                _ = write!(page, ", base priority {:?}", node.base_priority());
            }
            page.push_str("</summary>\n");
            _ = self.write_details(&node, |line| {
                page.push_str("<p>");
                write!(Escaped(&mut page), "{line}")?;
                page.write_str("</p>\n")
            });
            if node.others() != 0 {
                _ = writeln!(page, "<p>more tasks: {}</p>", node.others());
            }
        }
        for _ in 0..open {
            page.push_str("</details>\n");
        }
        page.push_str(PAGE_END);
        page
    }

    /// Writes what is known of a task, beside what it [does](Doing).
    fn write_details(
        &self,
        node: &TaskNode<'_>,
        mut write_line: impl FnMut(fmt::Arguments<'_>) -> fmt::Result,
    ) -> fmt::Result {
        if let Some(wait) = node.waits() {
            let what = AwaitedText(&wait);
            match (self.waiting(node), wait.location()) {
                (Some(time), Some(at)) => write_line(format_args!("waiting for {} at {at}: {what}", Seconds(time)))?,
                (Some(time), None) => write_line(format_args!("waiting for {}: {what}", Seconds(time)))?,
                (None, Some(at)) => write_line(format_args!("waiting at {at}: {what}"))?,
                (None, None) => write_line(format_args!("waiting: {what}"))?,
            }
            if let Some(deadline) = wait.deadline() {
                match deadline.checked_duration_since(self.created_at()) {
                    Some(left) => write_line(format_args!("within a deadline in {}", Seconds(left)))?,
                    None => write_line(format_args!(
                        "within a deadline that passed {} ago",
                        Seconds(self.created_at().saturating_duration_since(deadline))
                    ))?,
                }
            }
        }
        if node.activity().is_some() {
            if let Some(reason) = node.cancellation_reason() {
                match self.since(node.cancelled_at()) {
                    Some(time) => write_line(format_args!("cancelled {} ago: {reason}", Seconds(time)))?,
                    None => write_line(format_args!("cancelled: {reason}"))?,
                }
            }
            if let Some(deadline) = node.deadline() {
                match deadline.checked_duration_since(self.created_at()) {
                    Some(left) => write_line(format_args!("deadline in {}", Seconds(left)))?,
                    None => write_line(format_args!(
                        "deadline {} ago",
                        Seconds(self.created_at().saturating_duration_since(deadline))
                    ))?,
                }
            }
            if let Some(at) = node.spawned_at() {
                write_line(format_args!("spawned at {at}"))?;
            }
        }
        Ok(())
    }

    /// Returns how long a task waits, if it does and that is known.
    pub(super) fn waiting(&self, node: &TaskNode<'_>) -> Option<Duration> {
        self.since(node.waits()?.since())
    }

    fn since(&self, at: Option<Instant>) -> Option<Duration> {
        at.map(|at| self.created_at().saturating_duration_since(at))
    }

    /// Returns the seconds until an instant, negative if it has passed.
    fn until(&self, at: Instant) -> f64 {
        match at.checked_duration_since(self.created_at()) {
            Some(left) => left.as_secs_f64(),
            None => -self.created_at().saturating_duration_since(at).as_secs_f64(),
        }
    }
}

/// What a task does, or its state if that is unknown.
struct Doing<'a>(&'a TaskNode<'a>);

impl fmt::Display for Doing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.activity() {
            Some(activity) => activity.fmt(f),
            None => self.0.state().fmt(f),
        }
    }
}

/// What a task waits for, as people read it.
struct AwaitedText<'a>(&'a TaskWait);

impl fmt::Display for AwaitedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.what().unwrap_or("a future of another crate"))?;
        match self.0.task() {
            Some(task) => write!(f, " (task {task})"),
            None => Ok(()),
        }
    }
}

/// A time in seconds, as people read it.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} s", self.0.as_secs_f64())
    }
}

/// Writes the members of a JSON object.
struct JsonObject<'a> {
    json: &'a mut String,
    is_empty: bool,
}

impl<'a> JsonObject<'a> {
    fn new(json: &'a mut String) -> Self {
        json.push('{');
        JsonObject { json, is_empty: true }
    }

    fn key(&mut self, key: &str) {
        if !self.is_empty {
            self.json.push(',');
        }
        self.is_empty = false;
        _ = write!(self.json, "\"{key}\":");
    }

    /// Writes a value that is JSON as it is printed: a number.
    fn raw(&mut self, key: &str, value: Option<impl fmt::Display>) {
        self.key(key);
        _ = match value {
            Some(value) => write!(self.json, "{value}"),
            None => self.json.write_str("null"),
        };
    }

    fn text(&mut self, key: &str, value: Option<impl fmt::Display>) {
        let Some(value) = value else {
            return self.raw(key, None::<u8>);
        };
        self.key(key);
        self.json.push('"');
        _ = write!(JsonText(self.json), "{value}");
        self.json.push('"');
    }

    fn end(self) {
        self.json.push('}');
    }
}

/// Writes text inside a JSON string.
struct JsonText<'a>(&'a mut String);

impl Write for JsonText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '"' | '\\' => {
                    self.0.push('\\');
                    self.0.push(character);
                }
                '\0'..='\x1f' => write!(self.0, "\\u{:04x}", u32::from(character))?,
                _ => self.0.push(character),
            }
        }
        Ok(())
    }
}

/// Writes text inside an HTML element.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                _ => self.0.push(character),
            }
        }
        Ok(())
    }
}

/// The page up to the tree.
const PAGE_BEGIN: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Tasks</title>
<style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em; color: #222; background: #fff }
details { margin-left: 1.2em; border-left: 1px solid #ccc; padding-left: .6em }
summary { cursor: pointer }
p { margin: 0 0 0 1.4em; color: #555; font-family: ui-monospace, monospace; font-size: 12px; overflow-wrap: anywhere }
i { font-style: normal; border-radius: 3px; padding: 0 .4em; background: #dfd }
i.cancelled { background: #fdd }
i.finished { background: #ddd }
nav button { margin-right: .5em }
</style>
</head>
<body>
<h1>Tasks</h1>
<nav>
<button id="sort">Longest wait first</button>
<button id="order">Oldest first</button>
<button id="fold">Fold</button>
<button id="unfold">Unfold</button>
</nav>
"#;

/// The rest of the page.
const PAGE_END: &str = r#"</main>
<script>
"use strict";
const tree = document.getElementById("tree");
const all = [...tree.querySelectorAll("details")];
all.forEach((task, index) => { task.index = index; });
// The longest wait of a task or one below it. Those below come later, so they are known first from the end.
for (const task of [...all].reverse()) {
  const below = [...task.children].filter((child) => child.tagName === "DETAILS").map((child) => child.longest);
  task.longest = below.reduce((a, b) => Math.max(a, b), Number(task.dataset.waiting));
}
function arrange(compare) {
  for (const place of [tree, ...all]) {
    const below = [...place.children].filter((child) => child.tagName === "DETAILS");
    below.sort(compare).forEach((child) => place.append(child));
  }
}
document.getElementById("sort").onclick = () => arrange((a, b) => b.longest - a.longest || a.index - b.index);
document.getElementById("order").onclick = () => arrange((a, b) => a.index - b.index);
document.getElementById("fold").onclick = () => all.forEach((task) => { task.open = false; });
document.getElementById("unfold").onclick = () => all.forEach((task) => { task.open = true; });
document.getElementById("sort").click();
</script>
</body>
</html>
"#;
