//! A future that awaits a group is `Send`, whatever lifetimes its types have.
use bowline::prelude::*;
use bowline::task::{self, Task};

#[test]
fn lifetimes() {
    let t = Task::try_new(async move {
        let x = task::try_group(async |g| {
            g.spawn(async { Ok::<&'static str, &'static str>("a") });
            let mut all = String::new();
            while let Some(s) = g.next().await.transpose()? {
                all.push_str(s);
            }
            Ok(all)
        })
        .await?;
        let y = task::group(async |g| {
            g.spawn(async { "b" });
            g.next().await.unwrap()
        })
        .await;
        let z = task::supervised_group(async |g| {
            g.spawn(async { "b" });
            g.next_ended().await.unwrap().unwrap()
        })
        .await;
        let h = task::detach(async { "c" }).await.unwrap();
        let l = task::let_async(async { "d" }).await;
        let text = String::from("borrowed");
        let borrowed = &text;
        let w = task::group(async |g| {
            g.spawn_when_ready(async { 1 }).await;
            g.next().await;
            g.wait_for_all().await;
            borrowed.len()
        })
        .await;
        let _ = (y, z, h, l, w);
        Ok::<_, &'static str>(x)
    });
    assert_eq!(sync_wait(t).unwrap(), "a");
}
async fn generic<T: Send + Sync + Clone + 'static>(value: T) -> Vec<T> {
    task::group(async |g| {
        for _ in 0..3 {
            let value = value.clone();
            g.spawn(async move { value });
        }
        let mut all = Vec::new();
        while let Some(value) = g.next().await {
            all.push(value);
        }
        all
    })
    .await
}
#[test]
fn generic_is_send() {
    assert_eq!(sync_wait(Task::new(generic("x"))).unwrap(), ["x"; 3]);
}
