//! The front doors.

pub mod ext_proc; // Envoy's ExternalProcessor stream
pub mod picker; // the native front door
pub mod proto; // the native API, generated
mod grpc; // the gRPC server on `listen`
mod health; // gRPC health
pub mod status; // errors of the native API

pub use grpc::{ServeError, Server};
