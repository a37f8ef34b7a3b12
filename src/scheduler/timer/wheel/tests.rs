use core::ops::Range;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec::Vec;

use super::*;
use crate::{Job, Transfer};

const EFFORT: usize = 64;
const MANY: usize = if cfg!(miri) { 150 } else { 3000 };
/// The length of a slot of the level.
const MILLISECOND: u64 = 1 << (2 * BITS);
const SECOND: u64 = 1 << (3 * BITS);

/// A wheel, and the same entries in a map.
struct Tested {
    wheel: Box<Wheel>,
    entries: Vec<TimerEntry>,
    /// The indices of entries by their deadlines and numbers.
    sorted: BTreeMap<(u64, usize), usize>,
    /// The keys in `sorted`, by the index of the entry.
    keys: Vec<Option<(u64, usize)>>,
    inserted: usize,
    now: u64,
}

unsafe fn never_runs(_: NonNull<Job>) -> Transfer {
    unreachable!("the entries are not completed")
}

impl Tested {
    fn new(entries: usize) -> Self {
        Tested {
            wheel: Wheel::new(),
            entries: (0..entries).map(|_| TimerEntry::new(0, never_runs)).collect(),
            sorted: BTreeMap::new(),
            keys: (0..entries).map(|_| None).collect(),
            inserted: 0,
            now: 0,
        }
    }

    fn with(deadlines: impl IntoIterator<Item = u64>) -> Self {
        let deadlines = Vec::from_iter(deadlines);
        let mut tested = Tested::new(deadlines.len());
        for (index, deadline) in deadlines.into_iter().enumerate() {
            tested.insert(index, deadline);
        }
        tested
    }

    fn insert(&mut self, index: usize, deadline: u64) {
        let entry = &self.entries[index];
        entry.set_deadline(deadline);
        let before = self.wheel.next().unwrap_or(u64::MAX);
        // SAFETY: the entry is not in the map, and so in no list. The vector outlives the wheel's use.
        let wanted = unsafe { self.wheel.insert(NonNull::from(entry)) };
        let key = (deadline.max(self.wheel.floor), self.inserted);
        self.inserted += 1;
        self.sorted.insert(key, index);
        self.keys[index] = Some(key);
        assert!(wanted.min(before) <= self.next().unwrap(), "the driver sleeps too long");
    }

    fn remove(&mut self, index: usize) {
        if let Some(key) = self.keys[index].take() {
            self.sorted.remove(&key);
            // SAFETY: the entry was in the map, and so is in the wheel.
            unsafe { self.wheel.remove(NonNull::from(&self.entries[index])) };
        }
    }

    /// Returns the number of moves that are left.
    fn height(&self) -> usize {
        self.sorted.values().map(|&index| self.entries[index].level()).sum()
    }

    fn next(&mut self) -> Option<u64> {
        let next = self.wheel.next();
        let first = self.sorted.keys().next().map(|&(deadline, _)| deadline);
        assert_eq!(next.is_some(), first.is_some());
        assert!(next <= first, "{next:?} is after {first:?}");
        next
    }

    /// Calls `pop` and `prepare` as a driver does. Returns the number of entries taken, and whether no effort was left.
    fn step(&mut self) -> (usize, bool) {
        let (before, height) = (self.sorted.len(), self.height());
        let mut effort = EFFORT;
        while let Some(entry) = self.wheel.pop(self.now, &mut effort) {
            let (key, index) = self
                .sorted
                .pop_first()
                .expect("the wheel has no more entries than the map");
            assert_eq!(entry, NonNull::from(&self.entries[index]), "in order");
            assert!(key.0 <= self.now, "not early");
            // Its moves are no part of the difference in height.
            self.keys[index] = None;
        }
        let first = self.sorted.keys().next().map(|&(deadline, _)| deadline);
        assert!(effort == 0 || first.is_none_or(|first| first > self.now), "not late");
        self.wheel.prepare(&mut effort);
        let taken = before - self.sorted.len();
        assert!(taken <= EFFORT - effort);
        assert!(height.saturating_sub(self.height()) <= EFFORT - effort + taken * LEVELS);
        if taken == 0 {
            assert_eq!(height - self.height(), EFFORT - effort, "each move costs one");
        }
        (taken, effort == 0)
    }

    /// Drives the wheel as the run loop does, until `end` or until it is empty. Returns the number of steps.
    fn run_until(&mut self, end: u64) -> usize {
        let mut steps = 0;
        loop {
            let (taken, exhausted) = self.step();
            steps += 1;
            if taken == 0 && !exhausted {
                match self.next() {
                    Some(next) if next <= end => self.now = self.now.max(next),
                    _ => return steps,
                }
            }
        }
    }
}

/// A generator of numbers, which are small as often as large.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (self.0 >> 32)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn of_any_size(&mut self) -> u64 {
        self.next() >> self.below(64)
    }
}

#[test]
fn agrees_with_a_map() {
    const ENTRIES: usize = 200;
    for seed in 0..if cfg!(miri) { 1 } else { 60 } {
        let mut random = Random(seed);
        let mut tested = Tested::new(ENTRIES);
        // Some begin close to the end of time.
        tested.now = if seed % 4 == 0 {
            u64::MAX - random.of_any_size()
        } else {
            0
        };
        for _ in 0..if cfg!(miri) { 500 } else { 4000 } {
            let index = random.below(ENTRIES as u64) as usize;
            match random.below(8) {
                0 => {
                    let forward = random.of_any_size() >> random.below(40);
                    tested.now = tested.now.saturating_add(forward).min(u64::MAX - 1);
                    tested.step();
                }
                1 => tested.now = tested.now.max(tested.next().unwrap_or(0)).min(u64::MAX - 1),
                2 => _ = tested.step(),
                _ if tested.keys[index].is_some() => tested.remove(index),
                3 => {
                    // A deadline that exists already.
                    let other = tested.keys[random.below(ENTRIES as u64) as usize];
                    tested.insert(index, other.map_or(0, |(deadline, _)| deadline));
                }
                4 => {
                    // At the beginning of a slot, or one before.
                    let deadline = tested.now.saturating_add(random.of_any_size());
                    let begin = deadline & (u64::MAX << random.below(64));
                    tested.insert(index, begin.saturating_sub(random.below(2)));
                }
                _ => tested.insert(
                    index,
                    tested.now.saturating_add(random.of_any_size() >> random.below(40)),
                ),
            }
        }
    }
}

/// Runs deadlines in two ways: as a driver that sleeps, and as one that is away until all are due.
fn takes_bounded_steps(deadlines: impl Iterator<Item = u64> + Clone) {
    let mut punctual = Tested::with(deadlines.clone());
    punctual.run_until(u64::MAX - 1);
    let count = deadlines.clone().filter(|&deadline| deadline < u64::MAX).count();
    assert_eq!(punctual.sorted.len(), punctual.entries.len() - count);
    let mut away = Tested::with(deadlines);
    away.now = u64::MAX - 1;
    // Each entry is taken once, and moves down from each level once at most.
    let most = (away.height() + count) / EFFORT + 2;
    let mut steps = 0;
    while away.step() != (0, false) {
        steps += 1;
    }
    assert!(steps <= most, "{steps} steps, not {most}");
    assert_eq!(away.sorted.len(), away.entries.len() - count);
}

#[test]
fn equal_deadlines_take_bounded_steps() {
    takes_bounded_steps((0..MANY).map(|_| 5 * SECOND));
    takes_bounded_steps((0..MANY).map(|_| 20 * SECOND - 1));
    takes_bounded_steps((0..MANY).map(|_| u64::MAX - 1));
    takes_bounded_steps((0..MANY).map(|_| u64::MAX));
}

#[test]
fn deadlines_of_one_slot_take_bounded_steps() {
    let mut random = Random(1);
    let deadlines = Vec::from_iter((0..MANY).map(|_| 20 * SECOND + random.below(SECOND)));
    takes_bounded_steps(deadlines.into_iter());
}

#[test]
fn deadlines_at_the_beginnings_of_slots_take_bounded_steps() {
    for shift in [0, BITS, 2 * BITS, 3 * BITS, 4 * BITS] {
        takes_bounded_steps((0..MANY as u64 / 4).map(|number| number << shift));
        takes_bounded_steps((1..MANY as u64 / 4).rev().map(|number| (number << shift) - 1));
    }
}

#[test]
fn deadlines_far_apart_take_bounded_steps() {
    takes_bounded_steps((0..MANY as u64 / 4).map(|number| u64::MAX / (MANY as u64) * number));
    takes_bounded_steps((0..64).flat_map(|shift| [1 << shift, (1 << shift) - 1, !0 >> shift, !0 << shift]));
}

/// While the driver is on time, a slot of a millisecond or longer is spread before it begins.
#[test]
fn a_slot_is_spread_ahead_of_time() {
    let begin = 20 * SECOND;
    let mut random = Random(2);
    let mut tested = Tested::with((0..MANY).map(|_| begin + 100 * MILLISECOND + random.below(SECOND / 2)));
    let above = |tested: &Tested, level: usize, range: Range<u64>| {
        let entries = tested.sorted.range((range.start, 0)..(range.end, 0));
        entries
            .filter(|&(_, &index)| tested.entries[index].level() > level)
            .count()
    };
    assert_eq!(above(&tested, 2, 0..u64::MAX), MANY);
    tested.run_until(begin);
    assert!(tested.now < begin);
    // One that is alone in its slot need not move.
    assert!(above(&tested, 2, 0..u64::MAX) <= 1);
    for milliseconds in 110..130 {
        tested.run_until(begin + milliseconds * MILLISECOND);
        let slot = tested.now / MILLISECOND + 1;
        assert!(above(&tested, 1, slot * MILLISECOND..(slot + 1) * MILLISECOND) <= 1);
    }
}

/// New entries go behind those that the wheel still has to move, and these can be removed.
#[test]
fn a_slot_changes_while_it_is_spread() {
    let deadline = |index: usize| 20 * SECOND + index as u64 % 7;
    let mut tested = Tested::new(2 * MANY);
    (0..MANY).for_each(|index| tested.insert(index, deadline(index)));
    tested.now = tested.next().unwrap();
    for index in MANY..2 * MANY {
        if index % 50 == 0 {
            assert_eq!(tested.step().0, 0);
        }
        tested.insert(index, deadline(index));
        if index % 3 == 0 {
            tested.remove(index - MANY);
            tested.remove(index);
        }
    }
    tested.run_until(u64::MAX - 1);
    assert!(tested.sorted.is_empty());
}

#[test]
fn a_driver_that_is_away_takes_late_entries_in_the_order_of_their_deadlines() {
    let mut tested = Tested::with([7 * SECOND, 3 * SECOND, 3, 3 * SECOND, 0]);
    tested.now = 4 * SECOND;
    assert_eq!(tested.step().0, 4);
    // It counts as no earlier than those that wait.
    tested.insert(1, 0);
    tested.insert(2, 8 * SECOND);
    assert_eq!(tested.step().0, 1);
    tested.run_until(u64::MAX);
    assert!(tested.sorted.is_empty());
}

/// An entry that is alone in a long slot may be due exactly when a shorter slot begins, and no effort be left then.
#[test]
fn a_slot_may_begin_when_an_entry_of_a_longer_one_is_due() {
    let begin = 20 * MILLISECOND + 5 * (1 << BITS);
    let mut tested = Tested::new(EFFORT + 2);
    tested.insert(0, begin);
    tested.now = 19 * MILLISECOND;
    tested.step();
    tested.insert(1, begin + 10);
    assert!(tested.entries[0].level() > tested.entries[1].level());
    // Each is alone in a slot of a microsecond, so the first entry is the last that the effort suffices for.
    (2..=EFFORT).for_each(|index| tested.insert(index, tested.now + index as u64 * 2 * (1 << BITS)));
    tested.now = begin;
    assert!(tested.step().1);
    tested.insert(EFFORT + 1, begin + 20);
    tested.now = begin + 30;
    tested.step();
    assert!(tested.sorted.is_empty());
}
