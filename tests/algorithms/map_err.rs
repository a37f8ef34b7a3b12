//! `map_err`: maps the error.

use bowline::prelude::*;

#[test]
fn maps_the_error() {
    let work = just_error::<(), _>(20).map_err(|x| x + 1).map_err(|x| format!("{x}"));
    assert_eq!(sync_wait(work).unwrap_err(), "21");
}
