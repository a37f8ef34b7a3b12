#[bowline_tokio::main]
fn main() {}
