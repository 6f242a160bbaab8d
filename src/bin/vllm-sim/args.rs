//! The command line. Times are simulated milliseconds unless said otherwise.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::{Result, ensure};
use clap::Parser;

use crate::{
    engine::{EngineConfig, timing::Preset},
    kv_wire::HashKind,
};

/// An engine stand-in that speaks vLLM 0.32's HTTP, metrics and KV-event protocols.
#[derive(Clone, Debug, Parser)]
#[command(name = "vllm-sim", version = kinference::observe::version())]
pub struct Args {
    /// Where to serve HTTP; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The name under which the base model is served
    #[arg(long, default_value = "sim")]
    pub model: String,
    /// Directory with tokenizer.json and the chat template
    #[arg(long)]
    pub model_dir: PathBuf,
    /// Most tokens of prompt and answer together
    #[arg(long, default_value_t = 32_768)]
    pub max_model_len: usize,
    /// A LoRA adapter's name (repeatable)
    #[arg(long)]
    pub lora: Vec<String>,
    /// Whose speed to imitate
    #[arg(long, value_enum, default_value_t)]
    pub preset: Preset,
    /// Divides every simulated time
    #[arg(long, default_value_t = 1.0)]
    pub speedup: f64,
    /// Tokens in a KV block
    #[arg(long, default_value_t = 16)]
    pub block_size: usize,
    /// Physical KV blocks [default: what the preset's cache holds]
    #[arg(long)]
    pub num_blocks: Option<u32>,
    /// Page the cache, and publish events, in blocks of this size, while /metrics goes on to say --block-size
    #[arg(long)]
    pub kv_block_size_published: Option<usize>,
    /// Most sequences in a batch
    #[arg(long, default_value_t = 64)]
    pub max_num_seqs: usize,
    /// Most tokens in a step
    #[arg(long, default_value_t = 2048)]
    pub max_num_batched_tokens: usize,
    /// Block hashes and request ids depend on it
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Serve the render endpoints (403 without)
    #[arg(long)]
    pub enable_scale_out: bool,
    /// PUB endpoint for KV events, e.g. tcp://127.0.0.1:0; none are published without
    #[arg(long)]
    pub kv_events: Option<String>,
    /// ROUTER endpoint for replays; needs --kv-events
    #[arg(long, requires = "kv_events")]
    pub replay: Option<String>,
    /// Data-parallel ranks, each with its own cache and event stream; rank n has the ports given plus n
    #[arg(long, default_value_t = 1)]
    pub data_parallel_size: u16,
    /// Topic of the KV events
    #[arg(long, default_value = "")]
    pub topic: String,
    /// How block hashes are published
    #[arg(long, value_enum, default_value_t)]
    pub hash: HashKind,
    /// Exit when stdin ends, so that the engine dies with its parent
    #[arg(long)]
    pub exit_with_stdin: bool,
}

impl Args {
    /// Tokens in a block as the cache really pages them.
    pub fn paged_block_size(&self) -> usize {
        self.kv_block_size_published.unwrap_or(self.block_size)
    }

    /// The engine that these arguments describe.
    ///
    /// # Errors
    /// If sizes are zero, or a prompt of the longest length would not fit in the cache.
    pub fn engine(&self) -> Result<EngineConfig> {
        let profile = self.preset.profile();
        let block_size = self.paged_block_size();
        ensure!(block_size > 0 && self.block_size > 0, "a block needs at least one token");
        ensure!(self.max_num_seqs > 0 && self.max_num_batched_tokens > 0, "a batch needs at least one token");
        ensure!(self.data_parallel_size > 0, "there is at least one data-parallel rank");
        ensure!(self.speedup.is_finite() && self.speedup > 0.0, "--speedup must be above zero");
        let default = u32::try_from(profile.cache_tokens / block_size as u64).unwrap_or(u32::MAX);
        let num_blocks = self.num_blocks.unwrap_or(default);
        let needed = self.max_model_len.div_ceil(block_size);
        ensure!(
            (num_blocks as usize) > needed,
            "--max-model-len {} needs {needed} blocks and the null block, the cache has {num_blocks}",
            self.max_model_len
        );
        Ok(EngineConfig {
            block_size,
            num_blocks,
            max_num_seqs: self.max_num_seqs,
            max_batched_tokens: self.max_num_batched_tokens,
            timing: profile.timing,
            seed: self.seed,
        })
    }
}
