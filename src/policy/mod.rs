//! What platform teams declare: the resources of `kinference.buoyant.io`, and what is made of them.
//!
//! Resources in, validated values out. Watching them, and writing their status, is the business of `kubernetes`. Pure but
//! for [`Secrets`], where who fetches credentials and who needs them meet.

mod checks; // what schemas can't say
pub mod crd; // the five kinds, as the API server has them
pub mod compile; // resources -> rules that can be evaluated
pub mod eval; // which rule decides, and what its steps make of the candidates
mod expression; // CEL
mod in_force; // the last sound version of each resource
pub mod manifests; // files of resources, with lines
mod notices; // where everything stands, for whoever shows it
mod problem;
mod resource;
mod secrets; // credentials of providers
mod standing; // what a status says
mod when; // conditions in CEL
mod schema; // what schemas say, without an API server

pub use in_force::InForce;
pub use notices::Notices;
pub use problem::{FieldPath, Problem, in_one_line};
pub use resource::{Resource, read, validate};
pub use secrets::{Known, NoSecret, Secret, SecretKey, Secrets};
pub use standing::{Condition, Standing};
