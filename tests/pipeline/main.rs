//! The pipeline with a real index, load table and tokenizers over a fleet made up by the test.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod accounts;
mod choice;
mod equal;
mod kept;
mod listing;
#[path = "../logs/mod.rs"]
mod logs;
mod outcome;
mod pools;
mod providers;
mod records;
mod refusal;
mod rules;
mod samples;
mod shown;
mod site;
mod tokens;
mod warmup;
mod wording;
mod words;
