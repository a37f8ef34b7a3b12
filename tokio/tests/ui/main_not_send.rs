#[bowline_tokio::main]
async fn main() {
    let local = std::rc::Rc::new(());
    tokio::task::yield_now().await;
    drop(local);
}
