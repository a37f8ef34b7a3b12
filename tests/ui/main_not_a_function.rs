#[bowline::main]
struct Main;

fn main() {}
