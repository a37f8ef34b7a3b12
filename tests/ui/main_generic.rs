#[bowline::main]
async fn main<T>() {}
