//! The Picker service: the native front door to the same pipeline as ext_proc's.
//!
//! Invariant: what a call leaves behind (a body, a pick's load) is on a shelf with an end to its time and a bound to its
//! number; whatever else a call holds is gone when it returns or is cut off.

mod answer; // decisions, as messages
mod bodies; // bodies, received and kept
mod compose; // structured prompts, as bodies
mod ids; // ids of bodies and picks
mod picks; // picks, held until they end
mod request; // requests, as the pipeline takes them
mod ruled; // what rules made of requests, as messages
mod service; // the gRPC service
mod shelf; // things kept for a while
mod stats; // counters

pub use service::{Picker, PickerParts};
