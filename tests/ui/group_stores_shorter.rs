//! A group that gives functions of any string does not take those that keep one for ever.
use bowline::task::{TaskGroup, group};
use std::sync::Mutex;

static KEPT: Mutex<Option<&'static String>> = Mutex::new(None);

fn keep(string: &'static String) {
    *KEPT.lock().unwrap() = Some(string);
}

fn main() {
    let _ = group(async |group: TaskGroup<fn(&String)>| {
        let keeps: TaskGroup<fn(&'static String)> = group.clone();
        keeps.spawn(async { keep as fn(&'static String) });
    });
}
