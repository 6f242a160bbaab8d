//! Workers from a real Kubernetes API server, as the real server's `/api/fleet` shows them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::print_stderr, reason = "what was measured is shown")]

#[path = "../apiserver/mod.rs"]
mod apiserver;
mod engines;
mod objects;
mod outage;
mod pools;
#[path = "../kubernetes/proxy.rs"]
mod proxy;
mod resources;
mod rights;
mod scale;
mod site;
mod slices;
mod statuses;
