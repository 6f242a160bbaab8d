//! What we ask of a Kubernetes API server. Credentials are found once, at start.

mod client;
mod token_review;

pub use client::{NoCredentials, connect};
pub use kube::Client;
pub use token_review::{Question, ReviewError, Token, User, Verdict, review};
