//! The front doors.

pub mod ext_proc; // Envoy's ExternalProcessor stream
pub mod proto; // the native API, generated
pub mod tls; // certificates, and connections that use them
mod grpc; // the gRPC server on `listen`
mod health; // gRPC health
mod limits; // what a connection and a message may cost
mod reflection; // gRPC reflection

pub use grpc::{GrpcService, ServeError, Server, Services};
pub use tls::Tls;
