//! `vllm-sim`: an engine stand-in that speaks vLLM's HTTP, metrics and KV-event protocols.

fn main() {}
