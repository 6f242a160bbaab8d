//! Workers from a Kubernetes API server: EndpointSlices, pods, InferenceWorkerSets, InferencePools.
//!
//! What it says becomes [`places`], and these the engines of a worker set, in pure functions; the rest watches.

mod address;
mod engines;
mod nodes;
mod places;
mod pods;
mod slices;

#[cfg(test)]
mod tests;
