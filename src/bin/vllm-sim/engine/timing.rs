//! How long a scheduler step takes, and presets for real cards.
//!
//! Times are milliseconds of the simulated engine (before `--speedup`). Work is counted in units of 16 tokens, the
//! unit of the documented predictor coefficients, whatever the block size.
//! Where each preset's numbers come from is in `docs/vllm-sim.md`: nothing here was measured by us.

use std::time::Duration;

/// Tokens in a unit of prefill work.
pub const UNIT_TOKENS: f64 = 16.0;

/// Coefficients of one step's duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Of every step: reading the weights once.
    pub step_ms: f64,
    /// Of every decoding sequence in the step.
    pub decode_seq_ms: f64,
    /// Of every unit of context that a decoding sequence reads back.
    pub decode_context_ms: f64,
    /// Of every unit of prompt that is prefilled.
    pub prefill_ms: f64,
    /// Of every prefilled unit times every unit that it attends to.
    pub attention_ms: f64,
}

impl Timing {
    /// The cost of prefilling `tokens` of a prompt, up to its token `end`, in this step.
    pub fn prefill(&self, tokens: usize, end: usize) -> f64 {
        let units = tokens as f64 / UNIT_TOKENS;
        units * (self.prefill_ms + self.attention_ms * (end as f64 / UNIT_TOKENS))
    }

    /// The cost of one more token of a sequence with `context` tokens before it.
    pub fn decode(&self, context: usize) -> f64 {
        self.decode_seq_ms + self.decode_context_ms * (context as f64 / UNIT_TOKENS)
    }
}

/// Milliseconds as a duration.
pub fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms.max(0.0) / 1000.0)
}

/// A timing with the KV cache that goes with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Step durations.
    pub timing: Timing,
    /// KV cache, tokens.
    pub cache_tokens: u64,
}

/// Which engine is stood in for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// The router's documented coefficients taken as the truth.
    #[default]
    Documented,
    /// One L40S with a 27B model in FP8.
    #[value(name = "l40s-27b-fp8")]
    L40s27bFp8,
    /// One A100 (80 GB) with an 8B model in BF16.
    #[value(name = "a100-8b")]
    A100With8b,
    /// One H100 (SXM) with an 8B model in BF16.
    #[value(name = "h100-8b")]
    H100With8b,
    /// Four H100 (SXM) with a 70B model in FP8.
    #[value(name = "h100x4-70b-fp8")]
    H100x4With70bFp8,
}

/// A card (or several as one) by its data sheet: dense peak of the arithmetic used, no sparsity.
struct Card {
    tflops: f64,
    attention_tflops: f64,
    gb_per_s: f64,
    gb: f64,
}

/// A model by its published shape.
struct Model {
    giga_params: f64,
    bytes_per_param: f64,
    layers: f64,
    hidden: f64,
    kv_bytes_per_token: f64,
}

const L40S_FP8: Card = Card { tflops: 733.0, attention_tflops: 362.0, gb_per_s: 864.0, gb: 48.0 };
const A100: Card = Card { tflops: 312.0, attention_tflops: 312.0, gb_per_s: 2039.0, gb: 80.0 };
const H100: Card = Card { tflops: 989.0, attention_tflops: 989.0, gb_per_s: 3350.0, gb: 80.0 };
const H100X4_FP8: Card = Card { tflops: 7916.0, attention_tflops: 3956.0, gb_per_s: 13_400.0, gb: 320.0 };

const M8B: Model = Model {
    giga_params: 8.0,
    bytes_per_param: 2.0,
    layers: 32.0,
    hidden: 4096.0,
    kv_bytes_per_token: 131_072.0,
};
const M27B_FP8: Model = Model {
    giga_params: 27.0,
    bytes_per_param: 1.0,
    layers: 16.0,
    hidden: 6144.0,
    kv_bytes_per_token: 65_536.0,
};
const M70B_FP8: Model = Model {
    giga_params: 70.0,
    bytes_per_param: 1.0,
    layers: 80.0,
    hidden: 8192.0,
    kv_bytes_per_token: 327_680.0,
};

/// Assumed share of the peak arithmetic that prefill reaches.
const COMPUTE_SHARE: f64 = 0.5;
/// Assumed share of the peak bandwidth that decoding reaches.
const BANDWIDTH_SHARE: f64 = 0.7;
/// Share of memory that the engine uses (vLLM's default), and what of it is neither weights nor KV cache, as a share.
const MEMORY_SHARE: f64 = 0.92;
const WORKSPACE_SHARE: f64 = 0.04;

impl Preset {
    /// The numbers of this preset.
    pub fn profile(self) -> Profile {
        match self {
            Self::Documented => Profile { timing: DOCUMENTED, cache_tokens: 200_000 },
            Self::L40s27bFp8 => derive(&L40S_FP8, &M27B_FP8),
            Self::A100With8b => derive(&A100, &M8B),
            Self::H100With8b => derive(&H100, &M8B),
            Self::H100x4With70bFp8 => derive(&H100X4_FP8, &M70B_FP8),
        }
    }
}

/// Prefill and attention as documented; the step and the decoding cost as in the routing study.
const DOCUMENTED: Timing = Timing {
    step_ms: 18.0,
    decode_seq_ms: 0.25,
    decode_context_ms: 0.0,
    prefill_ms: 2.3,
    attention_ms: 0.009,
};

fn derive(card: &Card, model: &Model) -> Profile {
    let flops_per_ms = card.tflops * 1e9 * COMPUTE_SHARE;
    let attention_flops_per_ms = card.attention_tflops * 1e9 * COMPUTE_SHARE;
    let bytes_per_ms = card.gb_per_s * 1e6 * BANDWIDTH_SHARE;
    let weights = model.giga_params * model.bytes_per_param;
    let kv_gb = card.gb * (MEMORY_SHARE - WORKSPACE_SHARE) - weights;
    Profile {
        timing: Timing {
            step_ms: weights * 1e9 / bytes_per_ms,
            decode_seq_ms: 0.0,
            decode_context_ms: UNIT_TOKENS * model.kv_bytes_per_token / bytes_per_ms,
            // A multiplication and an addition a parameter and token.
            prefill_ms: UNIT_TOKENS * 2.0 * model.giga_params * 1e9 / flops_per_ms,
            // Scores and their weighted sum: two of those for every hidden unit, layer and pair of tokens.
            attention_ms: UNIT_TOKENS * UNIT_TOKENS * 4.0 * model.hidden * model.layers
                / attention_flops_per_ms,
        },
        cache_tokens: (kv_gb * 1e9 / model.kv_bytes_per_token) as u64,
    }
}
