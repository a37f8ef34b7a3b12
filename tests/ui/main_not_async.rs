#[bowline::main]
fn main() {}
