//! Kinference picks, for every inference request, the engine that will answer it soonest.
//!
//! The map of the house, floors in order: a room imports only from rooms above it in this list.
//! `tests/floors.rs` reads the `use crate::` lines and fails on an import that points down the list.

pub mod types; // plain domain types: no I/O, no async runtime
pub mod config; // TOML -> validated `Config`
pub mod observe; // metrics that every room records into
pub mod files; // files that others replace, followed
pub mod fleet; // who the workers are, and what state each is in
pub mod cache; // which blocks each worker holds
pub mod load; // in-flight reservations and scraped load
pub mod policy; // what platform teams declare: CRDs, rules
pub mod prompt; // request bodies: buffers, parsing, tokenization
pub mod route; // predict, pick, replicate: candidates in, `Decision` out
pub mod roster; // the fleet as it is shown to people and programs
pub mod pipeline; // the one path from a parsed request to a `Decision`
pub mod kubernetes; // what we ask of the API server
pub mod enforce; // policies put in force: from files, from a cluster
pub mod ingest; // what engines tell us: KV events, scrapes, models
pub mod discovery; // where workers come from
pub mod serve; // the front doors
pub mod admin; // dashboard data, readiness, metrics over HTTP
pub mod app; // builds every room, wires and supervises them
