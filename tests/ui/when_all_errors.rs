//! The senders of one `when_all` have one error type.
use bowline::prelude::*;

fn main() {
    let number = just_error::<i32, std::num::ParseIntError>("x".parse::<i32>().unwrap_err());
    let name = just_error::<String, String>("no name".to_owned());
    let _ = sync_wait(when_all((number, name)));
}
