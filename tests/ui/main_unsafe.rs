#[bowline::main]
async unsafe fn main() {}
