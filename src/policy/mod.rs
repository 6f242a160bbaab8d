//! What platform teams declare: the resources of `kinference.buoyant.io`, and what is made of them.
//!
//! Pure: resources in, validated values out. Watching them, and writing their status, is the business of `kubernetes`.

mod checks; // what schemas can't say
pub mod crd; // the five kinds, as the API server has them
mod problem;
mod resource;
mod schema; // what schemas say, without an API server

pub use problem::{FieldPath, Problem, in_one_line};
pub use resource::{Resource, read, validate};
