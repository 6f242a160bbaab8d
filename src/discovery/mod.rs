//! Where workers come from: watches that keep the registry true.
//!
//! Owner of the fleet's membership: every source writes through one [`FleetWriter`]. What a source can't
//! make sense of is reported and leaves the fleet as it was.

mod found;
mod identity;
pub mod kubernetes;
mod static_file;
mod writer;

pub use found::Found;
pub use static_file::{StaticError, StaticFile};
pub use writer::FleetWriter;
