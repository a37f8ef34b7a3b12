/// Fails the build with a sentence that says what to write, where a requirement of a sender is not met.
///
/// Called inside `const { .. }` in a `connect`, which is the first place to know the receiver's environment. The error is
/// shown at the call.
#[track_caller]
pub(crate) const fn demand(there: bool, sentence: &str) {
    if !there {
        panic!("{}", sentence);
    }
}
