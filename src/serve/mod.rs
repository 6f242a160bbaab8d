//! The front doors.

pub mod ext_proc; // Envoy's ExternalProcessor stream
pub mod proto; // the native API, generated
pub mod status; // how native callers are told no
mod grpc; // the gRPC server on `listen`
mod health; // gRPC health

pub use grpc::{ServeError, Server};
