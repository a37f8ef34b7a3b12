#[bowline::test(threads = 2)]
async fn test() {}

fn main() {}
