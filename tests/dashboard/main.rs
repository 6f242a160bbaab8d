//! The dashboard in a real Chromium, on the real server with `vllm-sim` engines behind a real Envoy. Skips, with one
//! line, where there is no Chromium.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test may panic, and shows the log"
)]

mod browser;
#[path = "../e2e/cloud.rs"]
#[expect(dead_code, reason = "it serves other tests too")]
mod cloud;
mod events;
mod operators;
mod page;
#[path = "../e2e/stack.rs"]
#[expect(dead_code, reason = "it serves other tests too")]
mod stack;
mod shown;
#[path = "../tools/mod.rs"]
mod tools;
mod traffic;
#[path = "../../examples/pick/usage.rs"]
mod usage;
