//! What the attribute accepts.

#[bowline_tokio::main(flavor = "current_thread")]
async fn quiet() {}

#[bowline_tokio::main(flavor = "multi_thread", threads = 2)]
async fn fallible() -> Result<(), std::num::ParseIntError> {
    "1".parse::<u8>()?;
    Ok(())
}

#[bowline_tokio::main]
async fn main() {}
