//! Kinference killed and restarted under each shipped Envoy configuration. The README says the same.

use crate::stack::{Stack, until};

async fn through(sample: &str, without: u16) {
    let Some(mut stack) = Stack::with(sample, "", &["--speedup", "50"]).await else { return };
    assert_eq!(stack.chat("before").await.status(), 200);
    stack.router.kill();
    assert_eq!(stack.chat("while it is away").await.status().as_u16(), without);
    stack.router.restart("");
    until("requests are served again", async || (stack.chat("after").await.status() == 200).then_some(()))
        .await;
    stack
        .router
        .until("it counts decisions again", |f| f["workers"].as_array().is_some_and(|w| w.len() == 3))
        .await;
}

#[tokio::test]
async fn duplex_fails_closed() {
    through("duplex.yaml", 503).await;
}

#[tokio::test]
async fn duplex_with_listed_engines_fails_closed() {
    through("duplex-static.yaml", 503).await;
}

#[tokio::test]
async fn original_dst_fails_closed() {
    through("original-dst.yaml", 503).await;
}

#[tokio::test]
async fn buffered_fails_open() {
    through("buffered-fail-open.yaml", 200).await;
}

/// One that hangs answers neither messages nor keep-alives: whichever Envoy notices first (504, 503), it gives up.
#[tokio::test]
async fn a_hung_server_is_given_up() {
    let Some(mut stack) = Stack::with("duplex.yaml", "", &["--speedup", "50"]).await else { return };
    assert_eq!(stack.chat("before").await.status(), 200);
    stack.router.hang();
    let status = stack.chat("while it hangs").await.status().as_u16();
    assert!([503, 504].contains(&status), "{status}");
    stack.router.restart("");
    until("requests are served again", async || (stack.chat("after").await.status() == 200).then_some(()))
        .await;
}
