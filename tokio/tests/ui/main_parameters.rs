#[bowline_tokio::main]
async fn with_parameters(number: u32) {
    drop(number);
}

fn main() {}
