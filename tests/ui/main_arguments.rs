#[bowline::main(workers = 2)]
async fn main() {}

#[bowline::main(threads)]
async fn without_a_value() {}

#[bowline::main(threads = 0)]
async fn none() {}

#[bowline::main(threads = "2")]
async fn text() {}

#[bowline::main(threads = -1)]
async fn negative() {}

#[bowline::main(threads = 2 threads = 2)]
async fn without_a_comma() {}

#[bowline::main(threads = 2, threads = 3)]
async fn twice() {}
