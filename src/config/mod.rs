//! The configuration file: TOML in, a validated [`Config`] out, every error of a file in one report.
//!
//! One file per section. Each default has one home: the `Default` of its section. Each key has one home too:
//! the `keys` function of its section, which the reader and the printer of the effective configuration share.

mod address;
mod checks;
mod decision_log;
mod effective;
mod ext_proc;
mod keys;
mod kind;
mod kubernetes;
mod leader_election;
mod load;
mod metrics;
mod policy;
mod profile;
mod rate_limit;
mod reader;
mod report;
mod selector;
mod server;
mod tls;
mod token_review;
mod tokenize;
mod traces;
mod workers_file;
mod workerset;

pub use decision_log::{DecisionLogConfig, DecisionOutput};
pub use ext_proc::{ExtProcConfig, Observe};
pub use kubernetes::KubernetesConfig;
pub use leader_election::LeaderElectionConfig;
pub use load::{load_workers, parse_workers};
pub use metrics::{MetricsConfig, TenantLabels};
pub use policy::{BodyMetadata, PolicyConfig};
pub use profile::{Calibration, PickerConfig, PredictorConfig, Profile, TokenizeMode};
pub use rate_limit::RateLimitConfig;
pub use report::{ConfigError, ConfigErrors, Loaded, Problem, Warnings};
pub use server::{BodyLimits, Config};
pub use tls::{TlsConfig, TlsIdentity};
pub use token_review::TokenReviewConfig;
pub use tokenize::TokenizeConfig;
pub use traces::{OtlpProtocol, TracesConfig};
pub use workers_file::{Topology, WorkerEntry};
pub use workerset::{Discovery, PortDefaults, WorkerSetConfig};
