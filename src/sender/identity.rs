use core::fmt;
use core::ptr;

/// What tells a scheduler from others of its type, without a comparison of the two.
///
/// A [`TaskScheduler`](crate::scheduler::TaskScheduler) compares the identities of what it erases. Comparing those with
/// `==` would call code of theirs with two values that may borrow for different lifetimes.
///
/// An identity is that of one scheduler among those of **one type**. It is plain data: comparing two runs no user code.
/// An [unknown](Identity::UNKNOWN) one equals nothing, not even itself.
///
/// ```
/// use bowline::Identity;
///
/// let place = 1;
/// assert!(Identity::of_address(&place) == Identity::of_address(&place));
/// assert!(Identity::of_number(1) != Identity::of_number(2));
/// assert!(Identity::UNKNOWN != Identity::UNKNOWN);
/// ```
#[derive(Clone, Copy)]
pub struct Identity(Kind);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Unknown,
    Type,
    Number(u64),
    Address(usize),
    Queue([usize; 2]),
}

impl Identity {
    /// The identity of a scheduler that does not tell: it equals nothing.
    pub const UNKNOWN: Identity = Identity(Kind::Unknown);

    /// The identity of a scheduler whose type says it all: it equals every other of its type.
    pub const TYPE: Identity = Identity(Kind::Type);

    /// The identity of a scheduler that has a number: it equals those with the same one.
    pub const fn of_number(number: u64) -> Self {
        Identity(Kind::Number(number))
    }

    /// The identity of a scheduler that is a handle to something at this address, which all its clones share.
    ///
    /// Only the address is kept. Once nothing is there any more, something else may come to be at that address.
    pub fn of_address<T: ?Sized>(place: &T) -> Self {
        Identity(Kind::Address(ptr::from_ref(place).addr()))
    }

    /// The identity of a queue of this crate.
    pub(crate) const fn of_queue(queue: [usize; 2]) -> Self {
        Identity(Kind::Queue(queue))
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        !matches!(self.0, Kind::Unknown) && self.0 == other.0
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.0).finish()
    }
}
