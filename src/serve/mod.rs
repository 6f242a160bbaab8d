//! The front doors.

pub mod eds; // Envoy's endpoint discovery
pub mod ext_proc; // Envoy's ExternalProcessor stream
pub mod fleet; // the native API's view of the fleet
pub mod picker; // the native front door
pub mod proto; // the native API, generated
pub mod rate_limiter; // token budgets
pub mod status; // errors of the native API
pub mod tls; // certificates, and connections that use them
pub mod token_review; // whose bearer token it is
mod ending; // streams that end when the server stops
mod grpc; // the gRPC server on `listen`
mod health; // gRPC health
mod limits; // what a connection and a message may cost
mod outward; // requests that leave for a provider
mod live; // one look at something for many streams
mod reflection; // gRPC reflection

pub use grpc::{GrpcService, ServeError, Server, Services};
pub use tls::Tls;
