#[bowline::test]
fn adds_up() {}

#[bowline::test]
async fn adds(_: i32) {}

fn main() {}
