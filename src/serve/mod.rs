//! The front doors.

pub mod ext_proc; // Envoy's ExternalProcessor stream
mod grpc; // the gRPC server on `listen`
mod health; // gRPC health

pub use grpc::{ServeError, Server};
