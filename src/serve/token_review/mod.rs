//! The TokenReview service: whose bearer token is it? The API server decides; recent answers are remembered.
//!
//! A token is never logged, counted or kept: memory knows it by a keyed hash only.

mod desk; // memory, one question at a time per token, deadlines
mod jwt; // when a token says that it ends
mod key; // what is remembered under
mod memory; // answers, for a while
mod service; // gRPC in and out
mod stats; // what is counted
#[cfg(test)]
mod tests;

pub use service::TokenReviews;
