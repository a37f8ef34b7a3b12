/// The urgency of work: five levels, in ascending order.
///
/// A [`ThreadPool`](crate::scheduler::ThreadPool) takes higher levels first, without starving the lowest.
///
/// ```
/// use bowline::Priority;
///
/// assert!(Priority::UserInteractive > Priority::Default);
/// assert_eq!(Priority::default(), Priority::Default);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Work without a waiting user: maintenance, prefetching.
    Background,
    /// Work whose progress a user checks now and then: downloads, imports.
    Utility,
    /// Work without a priority of its own.
    #[default]
    Default,
    /// Work that a user asked for and waits for.
    UserInitiated,
    /// Work that a user watches: a delay is visible.
    UserInteractive,
}

impl Priority {
    /// All five, the most urgent first.
    pub const ALL: [Priority; 5] = [
        Priority::UserInteractive,
        Priority::UserInitiated,
        Priority::Default,
        Priority::Utility,
        Priority::Background,
    ];
}
