//! Predict, pick, replicate: candidates in, a choice out. Pure: no clock, no locks, randomness passed in.

pub mod calibrate;
mod eligible;
mod pick;
mod predict;
mod replicate;
mod stale;
mod warmup;

pub use eligible::{Demand, eligible};
pub use pick::{Choice, pick, rank};
pub use predict::{Cost, predict, predict_provider, prefill_work_ms};
pub use replicate::{HotPrefixes, replica};
pub use stale::assume_worst;
pub use warmup::held_back;
