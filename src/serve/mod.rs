//! The front doors.

pub mod ext_proc; // Envoy's ExternalProcessor stream
pub mod proto; // the native API, generated
pub mod rate_limiter; // RateLimiter: admits everything, so far
pub mod status; // how native callers are told no
pub mod token_review; // TokenReview: whose bearer token is it?
mod grpc; // the gRPC server on `listen`
mod health; // gRPC health

pub use grpc::{ServeError, Server};
