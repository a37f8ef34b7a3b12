//! Children run concurrently with the body, so they own what they use: none writes a variable of the body.
use bowline::prelude::*;

async fn chop_vegetables() -> Vec<&'static str> {
    vec!["carrot"]
}

#[bowline::main]
async fn main() {
    let mut veggies = None;
    task::group(async |group| {
        group.spawn(async {
            veggies = Some(chop_vegetables().await);
        });
    })
    .await;
    println!("{veggies:?}");
}
