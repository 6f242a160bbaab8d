//! Workers from a Kubernetes API server: EndpointSlices, pods, InferenceWorkerSets, InferencePools.
//!
//! What the API server says becomes [`places`], and these become the engines of a worker set, in pure functions;
//! [`follow`], [`resources`] and [`configured`] are the loops around them. Invariant: while it is away, the fleet stays.

mod address;
mod configured;
mod engines;
mod follow;
mod inference_pool;
mod nodes;
mod places;
mod plan;
mod pods;
mod resources;
mod serving;
mod slices;
mod spec;
mod standing;

pub use address::Addresses;
pub use configured::{Named, follow_pool, follow_service};
pub use follow::Cluster;
pub use nodes::{Nodes, watch_nodes};
pub use resources::Resources;
pub use spec::Configured;

#[cfg(test)]
mod tests;
