#[bowline_tokio::main(threads = 0)]
async fn no_threads() {}

#[bowline_tokio::main(flavor = "many")]
async fn another_flavor() {}

#[bowline_tokio::main(flavor = "current_thread", threads = 2)]
async fn threads_of_one_thread() {}

#[bowline_tokio::main(worker_threads = 2)]
async fn an_option_of_tokios() {}

#[bowline_tokio::main(threads)]
async fn no_value() {}

#[bowline_tokio::main(threads = 1, threads = 2)]
async fn twice() {}

#[bowline_tokio::main(flavor = "multi_thread", flavor = "current_thread")]
async fn two_flavors() {}

fn main() {}
