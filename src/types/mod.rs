//! Plain domain types that every room speaks. No I/O, no async runtime, no locks.

mod api;
mod decision;
mod error;
mod ids;
mod kv_event;
mod prediction;
mod prompt;
mod record;
mod ruled;
mod target;
mod trace_parent;
mod usage;

pub use api::{Api, RequestKind, is_json};
pub use decision::{Candidate, Decision, Degradation, Overlap, Removed, RemovedReason};
pub use error::{ErrorKind, ErrorShape, PolicyStatus, Rejection};
pub use ids::{Rank, WorkerId};
pub use kv_event::{EngineHash, ExtraKey, Group, KvEvent, StoredBlocks, Tier};
pub use prediction::Prediction;
pub use prompt::{BlockHash, BlockKeys, ImageSpan, PromptTokens, SequenceHash};
pub use record::{Ending, Record, Stage, Stages, Took, brief};
pub use ruled::{RuleSaid, RuleUnknown, Ruled, StepEffect, StepSaid};
pub use target::{Credential, ProviderTarget, Target, TargetKey, WorkerTarget, provider_label};
pub use trace_parent::TraceParent;
pub use usage::{Outcome, Usage};
