use core::fmt;
use core::ptr;

/// The identity of a scheduler among those of its type.
///
/// A [`TaskScheduler`](crate::scheduler::TaskScheduler) compares the identities of the schedulers that it erases.
/// Comparing those with `==` would pass two values with different lifetimes to user code.
///
/// Identities are compared among schedulers of **one type**. They are plain data: comparing two runs no user code. An
/// [unknown](Identity::UNKNOWN) one equals nothing, not even itself.
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
pub struct Identity(IdentityKind);

#[derive(Clone, Copy, PartialEq, Debug)]
enum IdentityKind {
    Unknown,
    Type,
    Number(u64),
    Address(usize),
    Queue([usize; 2]),
}

impl Identity {
    /// The identity of a scheduler that has none: it equals nothing.
    pub const UNKNOWN: Identity = Identity(IdentityKind::Unknown);

    /// The identity of a scheduler without state: it equals every other of its type.
    pub const TYPE: Identity = Identity(IdentityKind::Type);

    /// Returns the identity of a scheduler with a number: it equals those with the same number.
    pub const fn of_number(number: u64) -> Self {
        Identity(IdentityKind::Number(number))
    }

    /// Returns the identity of a handle whose clones share an object at this address.
    ///
    /// Only the address is kept. After the object is freed, another may have the same address.
    pub fn of_address<T: ?Sized>(place: &T) -> Self {
        Identity(IdentityKind::Address(ptr::from_ref(place).addr()))
    }

    /// Returns the identity of a queue of this crate.
    pub(crate) const fn of_queue(queue: [usize; 2]) -> Self {
        Identity(IdentityKind::Queue(queue))
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        !matches!(self.0, IdentityKind::Unknown) && self.0 == other.0
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.0).finish()
    }
}
