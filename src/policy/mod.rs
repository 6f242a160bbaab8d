//! What platform teams declare: the resources of `kinference.buoyant.io`, and what is made of them.
//!
//! Pure: resources in, validated values out. Watching them, and writing their status, is the business of `kubernetes`.

pub mod crd; // the five kinds, as the API server has them
