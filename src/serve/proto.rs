//! What `build.rs` made of `proto/kinference/v1alpha1`.
#![expect(
    clippy::all,
    clippy::allow_attributes,
    clippy::too_many_lines,
    reason = "generated; documented in the .proto files"
)]

tonic::include_proto!("kinference.v1alpha1");

/// The descriptors, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kinference.descriptors"));
