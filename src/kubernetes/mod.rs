//! What we ask of a Kubernetes API server. Credentials are found once, at start.

mod backoff;
mod client;
mod failure;
mod instruments;
mod kinds;
mod lease;
mod secrets;
pub mod status;
mod token_review;
mod watches;

pub use backoff::Bounds;
pub use client::{NoCredentials, connect, own_namespace};
pub use failure::{ApiError, Failure, Target, Verb};
pub use kinds::{PolicyKinds, watch_policy};
pub use kube::Client;
pub use lease::{Leadership, Leading, Permit, Release, elect};
pub use secrets::{MOST_SECRETS, follow_secrets};
pub use status::StatusDesk;
pub use token_review::{Question, ReviewError, Token, User, Verdict, review};
pub use watches::{Pace, Selector, WatchReport, WatchState, Watchable, Watched, Watches};
