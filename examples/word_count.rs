//! Counts words of borrowed text on a pool of threads: no copy, no `Arc`, no `'static`.
//!
//! Also shows an error in one of several parts, and a race of two searches.

use std::collections::BTreeMap;

use bowline::prelude::*;
use bowline::scheduler::PoolScheduler;

const TEXT: &str = "\
    the rabbit comes out of the hole and goes round the tree and back into the hole
    a bowline holds under any load and still comes undone by hand
    nothing that was started is ever lost and letting go is always safe";

fn count(text: &str) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

/// Counts two halves concurrently. The operation is one object in this stack frame, so it may borrow.
fn count_in_parallel(text: &str, pool: PoolScheduler) {
    let middle = text.lines().next().map_or(0, str::len);
    let (head, tail) = text.split_at(middle);
    let both = when_all((
        just(head).continues_on(pool).then(count),
        just(tail).continues_on(pool).then(count),
    ))
    .then(|(mut counts, more)| {
        for (word, n) in more {
            *counts.entry(word).or_default() += n;
        }
        counts
    });
    let counts = sync_wait(both).unwrap();
    let (word, n) = counts.iter().max_by_key(|(_, n)| **n).expect("there are words");
    println!(
        "{} different words; the most frequent is {word:?}, {n} times",
        counts.len()
    );
}

#[derive(Debug)]
struct Unreadable(&'static str);

/// Counts the words of a chapter. The return type names the result of the work, not its steps.
fn chapter(name: &'static str) -> impl Sender<Value = usize, Error = Unreadable> + Send {
    just(name).infallible_into().try_then(|name| match name {
        "appendix" => Err(Unreadable(name)),
        _ => Ok(TEXT.split_whitespace().count()),
    })
}

/// The first error stops the siblings and is returned after they have ended.
fn a_part_fails(pool: PoolScheduler) {
    let endless = just_from(|| ())
        .starts_on(pool)
        .repeat_until(|()| false)
        .upon_stopped(|| println!("the endless part was stopped"))
        .then(|()| 0)
        .infallible_into();
    let book = when_all((
        starts_on(pool, chapter("introduction")),
        starts_on(pool, chapter("appendix")),
        endless,
    ));
    match sync_wait(book) {
        Outcome::Value((a, b, c)) => println!("{} words", a + b + c),
        Outcome::Error(Unreadable(name)) => println!("the {name} cannot be read"),
        Outcome::Stopped => println!("stopped"),
    }
}

/// Two searches race. The winner stops the other, which has ended when the race completes.
fn the_first_to_find(pool: PoolScheduler) {
    let mut words = TEXT.split_whitespace();
    let mut backwards = TEXT.split_whitespace().rev();
    let found = when_any((
        pool.schedule()
            .repeat_until(move |()| words.next().is_none_or(|word| word == "bowline"))
            .then(|()| "from the front"),
        pool.schedule()
            .repeat_until(move |()| backwards.next().is_none_or(|word| word == "bowline"))
            .then(|()| "from the back"),
    ));
    println!("\"bowline\" was found {} first", sync_wait(found).unwrap());
}

fn main() {
    let pool = ThreadPool::new(2);
    count_in_parallel(TEXT, pool.scheduler());
    a_part_fails(pool.scheduler());
    the_first_to_find(pool.scheduler());
}
