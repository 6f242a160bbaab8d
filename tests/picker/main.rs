//! The Picker over a real pipeline and a fleet made up by the test; on paused clocks where time matters, on a real socket
//! where the wire does.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod bodies;
mod door;
mod equal;
mod override_model;
mod picks;
mod pools;
#[expect(dead_code, reason = "shared with the pipeline's tests, which use more of it")]
#[path = "../pipeline/site.rs"]
mod site;
mod wire;
