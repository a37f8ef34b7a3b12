//! A group of functions of any string does not accept functions of `'static` strings only.
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
