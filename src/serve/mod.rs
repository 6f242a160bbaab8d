//! The front doors.

pub mod eds; // Envoy's endpoint discovery
pub mod ext_proc; // Envoy's ExternalProcessor stream
pub mod fleet; // the native API's view of the fleet
pub mod proto; // the native API, generated
mod grpc; // the gRPC server on `listen`
mod health; // gRPC health
mod live; // one look at something for many streams

pub use grpc::{ServeError, Server};
