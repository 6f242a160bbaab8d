//! The whole path on real parts: a real Envoy, the real server as its own process, `vllm-sim` engines,
//! real sockets. Skips, with one line, where no Envoy is installed (`make test` installs it).
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test may panic, and shows the log"
)]

mod apis;
#[path = "../apiserver/mod.rs"]
#[expect(dead_code, reason = "it serves other tests too")]
mod apiserver;
mod bodies;
mod cloud;
mod cluster;
mod decisions;
mod endpoints;
mod engines;
#[path = "../tools/mod.rs"]
mod tools;
mod grpcurl;
mod metrics;
mod native;
mod operators;
mod outages;
mod outward;
mod policies;
mod providers;
#[path = "../apiserver/process.rs"]
mod process;
#[path = "../../examples/pick/proxy.rs"]
mod proxy;
#[path = "../traces/receiver.rs"]
#[expect(dead_code, reason = "it serves the tests of traces too")]
mod receiver;
mod renames;
mod replicas;
mod stack;
#[path = "../metrics/table.rs"]
#[expect(dead_code, reason = "it serves other tests too")]
mod table;
#[path = "../../examples/pick/usage.rs"]
mod usage;
