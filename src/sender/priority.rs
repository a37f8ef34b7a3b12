/// How urgent work is: five levels, in ascending order.
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
    /// Work that nobody waits for: maintenance, prefetching.
    Background,
    /// Work whose progress somebody follows now and then: downloads, imports.
    Utility,
    /// Everything that says nothing else.
    #[default]
    Default,
    /// Work that somebody asked for and waits for.
    UserInitiated,
    /// Work that somebody watches: what is late here is seen.
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
