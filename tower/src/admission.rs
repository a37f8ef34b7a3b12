//! The limit of requests in flight: permits, and the services that wait for one.
//!
//! An [`Admission`] counts the permits that are taken. A service that finds no free permit leaves a ticket with its waker. A permit that
//! is released goes to the oldest ticket: it stays counted, and the ticket leaves the list. So a ticket that is not in the list has a
//! permit. A service that is dropped at any time passes its permit on, and no wake-up is lost.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::sync::lock;

/// The permits of a scope, shared by all its services and requests.
pub(crate) struct Admission {
    state: Mutex<State>,
}

struct State {
    limit: usize,
    /// The number of permits, including those granted to tickets.
    taken: usize,
    /// The wakers of the services that wait, by ticket: the oldest is the first.
    waiting: BTreeMap<u64, Waker>,
    next_ticket: u64,
    is_closed: bool,
}

impl State {
    /// Takes a permit, unless the limit is reached or an older service waits.
    fn try_take(&mut self) -> bool {
        let has_room = self.taken < self.limit && self.waiting.is_empty();
        self.taken += usize::from(has_room);
        has_room
    }

    /// Returns the wakers of all services that wait. The tickets stay in the list, since a ticket outside of it has a permit.
    fn all_waiting(&self) -> Vec<Waker> {
        self.waiting.values().cloned().collect()
    }
}

impl Admission {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Admission {
            state: Mutex::new(State {
                limit: usize::MAX,
                taken: 0,
                waiting: BTreeMap::new(),
                next_ticket: 0,
                is_closed: false,
            }),
        })
    }

    /// Sets the limit, and grants the permits that it adds.
    pub(crate) fn set_limit(&self, limit: usize) {
        let mut state = lock(&self.state);
        state.limit = limit;
        let mut woken = match limit {
            0 => state.all_waiting(),
            _ => Vec::new(),
        };
        while state.taken < state.limit
            && let Some((_, waker)) = state.waiting.pop_first()
        {
            state.taken += 1;
            woken.push(waker);
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Ends all waits, now and from now on.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        let woken = state.all_waiting();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.state).is_closed
    }

    /// Releases a permit: to the oldest ticket, if one waits and the limit allows it.
    fn release(&self) {
        let mut state = lock(&self.state);
        let granted = match state.taken <= state.limit {
            true => state.waiting.pop_first(),
            false => None,
        };
        state.taken -= usize::from(granted.is_none());
        drop(state);
        if let Some((_, waker)) = granted {
            waker.wake();
        }
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        let mut debug = f.debug_struct("Admission");
        if state.limit != usize::MAX {
            debug.field("limit", &state.limit);
        }
        debug
            .field("taken", &state.taken)
            .field("waiting", &state.waiting.len())
            .field("is_closed", &state.is_closed)
            .finish()
    }
}

/// One request's share of the limit. Its drop releases it.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Arc<Admission>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.release();
    }
}

/// The readiness of one service: a permit, a place among those that wait for one, or nothing. Its drop releases what it has.
#[derive(Debug)]
pub(crate) struct Readiness {
    admission: Arc<Admission>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Outside,
    /// The ticket of a service that waits, or that was granted a permit since its last poll.
    Ticket(u64),
    Permit,
}

impl Readiness {
    pub(crate) fn new(admission: &Arc<Admission>) -> Self {
        Readiness {
            admission: admission.clone(),
            place: Place::Outside,
        }
    }

    /// Waits for a permit. Ready without one if there will never be one: the scope is closed, or its limit is zero.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.admission.state);
        let is_refusing = state.is_closed || state.limit == 0;
        let mut replaced = None;
        let place = match self.place {
            Place::Permit => return Poll::Ready(()),
            Place::Ticket(number) => match state.waiting.get_mut(&number) {
                None => Place::Permit,
                Some(_) if is_refusing => {
                    replaced = state.waiting.remove(&number);
                    Place::Outside
                }
                Some(waiting) => {
                    if !waiting.will_wake(cx.waker()) {
                        replaced = Some(mem::replace(waiting, cx.waker().clone()));
                    }
                    Place::Ticket(number)
                }
            },
            Place::Outside if is_refusing => Place::Outside,
            Place::Outside if state.try_take() => Place::Permit,
            Place::Outside => {
                let number = state.next_ticket;
                state.next_ticket += 1;
                state.waiting.insert(number, cx.waker().clone());
                Place::Ticket(number)
            }
        };
        drop(state);
        drop(replaced);
        self.place = place;
        match self.place {
            Place::Ticket(_) => Poll::Pending,
            Place::Outside | Place::Permit => Poll::Ready(()),
        }
    }

    /// Takes the permit for a request. A service that was not polled takes one if there is room.
    pub(crate) fn claim(&mut self) -> Option<Permit> {
        let mut state = lock(&self.admission.state);
        let (waited, has_permit) = match mem::replace(&mut self.place, Place::Outside) {
            Place::Permit => (None, true),
            Place::Ticket(number) => {
                let waited = state.waiting.remove(&number);
                let was_granted = waited.is_none();
                (waited, was_granted)
            }
            Place::Outside => (None, state.try_take()),
        };
        drop(state);
        drop(waited);
        has_permit.then(|| Permit {
            admission: self.admission.clone(),
        })
    }

    /// Releases the permit or the place in the list.
    pub(crate) fn give_up(&mut self) {
        match mem::replace(&mut self.place, Place::Outside) {
            Place::Outside => {}
            Place::Permit => self.admission.release(),
            Place::Ticket(number) => {
                let waited = lock(&self.admission.state).waiting.remove(&number);
                if waited.is_none() {
                    // A permit was granted that no poll has seen.
                    self.admission.release();
                }
            }
        }
    }
}

impl Clone for Readiness {
    /// The clone of a service is not ready: a permit belongs to the service that has waited for it.
    fn clone(&self) -> Self {
        Readiness::new(&self.admission)
    }
}

impl Drop for Readiness {
    fn drop(&mut self) {
        self.give_up();
    }
}
