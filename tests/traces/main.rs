//! Traces of real decisions, as an OTLP receiver in this process gets them, over gRPC and over HTTP.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod receiver;
#[path = "../pipeline/site.rs"]
#[expect(dead_code, reason = "it serves the tests of the pipeline too")]
mod site;
mod spans;
