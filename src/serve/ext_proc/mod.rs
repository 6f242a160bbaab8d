//! Envoy's ExternalProcessor stream: a pure state machine and the thin loop around it.
//!
//! `inbound` parses messages, `machine` (of `request` and `response`) decides what follows from each, `reply`
//! encodes answers, `session` is the loop, `service` the gRPC service.

mod answer; // a response's body, watched
mod effect; // what the machine wants done
mod head; // a request's headers and metadata, read
mod headers; // header maps
mod inbound; // messages, parsed
mod machine; // a stream
mod metadata; // metadata structs
pub mod names; // header and metadata names
mod reply; // answers, encoded
mod rename; // a response's body, with the client's name for the model
mod request; // the request's side
mod response; // the response's side
mod service; // the gRPC service
mod session; // the loop of one stream
mod shared; // what every stream reads
mod sse; // server-sent events
mod stats; // counters
mod tail; // a bounded buffer
mod usage; // token counts

pub use effect::{Effect, Sight, Unrenamed};
pub use head::Head;
pub use inbound::{BodyMode, Chunk, Media, Message, Modes, ResponseHead};
pub use machine::{Event, Machine, Wait};
pub use rename::Renamer;
pub use reply::{CHUNK_BYTES, Edit, NewBody, Reply};
pub use request::Placed;
pub use service::{Decide, ExtProc, Models, Parts, Refused, deciding, publishing, telling};
