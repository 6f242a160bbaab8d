//! The configuration file: TOML in, a validated [`Config`] out, every error of a file in one report.
//!
//! One file per section. Each default has one home: the `Default` of its section.

mod ext_proc;
mod profile;
mod server;
mod workerset;
mod workers_file;

pub use ext_proc::ExtProcConfig;
pub use profile::{PickerConfig, PredictorConfig, Profile, TokenizeMode};
pub use server::{BodyLimits, Config, TokenizeConfig};
pub use workers_file::{Topology, WorkerEntry};
pub use workerset::{Discovery, PortDefaults, WorkerSetConfig};
