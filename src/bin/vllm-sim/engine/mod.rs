//! The engine: continuous batching over a paged prefix cache, as pure code under a virtual clock.
//!
//! Owner of the scheduler. A step is begun (who runs, how long it takes, which blocks move) and finished (tokens come
//! out, KV events go out); requests may arrive and be aborted in between. Nothing here does I/O, reads a clock or draws
//! randomness: the same calls give the same steps. It depends on nothing of the crate, so that a benchmark can drive it.

pub mod hash;
pub mod pool;
pub mod sequence;
pub mod timing;

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, time::Duration};

use hash::{BlockHash, Salts};
use pool::Pool;
use sequence::{Arrival, RequestId, Sequence, Vocabulary};
use timing::{Timing, millis};

/// The shape of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Tokens in a KV block.
    pub block_size: usize,
    /// Physical blocks, the null block included.
    pub num_blocks: u32,
    /// Sequences in a batch.
    pub max_num_seqs: usize,
    /// Tokens that a step may compute, decoding included.
    pub max_batched_tokens: usize,
    /// Step durations.
    pub timing: Timing,
    /// What block hashes are rooted in.
    pub seed: u64,
}

/// A change of the prefix cache.
#[derive(Clone, Debug, PartialEq)]
pub enum CacheEvent {
    /// Blocks became available, in order.
    Stored(Stored),
    /// One copy of a block went away.
    Removed(BlockHash),
    /// Everything went away.
    Cleared,
}

/// A run of blocks of one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// One a block.
    pub hashes: Vec<BlockHash>,
    /// The block before the first; `None` at the start of a prompt.
    pub parent: Option<BlockHash>,
    /// `hashes.len()` full blocks of token ids.
    pub tokens: Vec<u32>,
    /// What salts the hashes; the cache salt belongs to the first block of a prompt (no parent).
    pub salts: Salts,
}

/// A generated token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Whose.
    pub id: RequestId,
    /// Its id.
    pub token: u32,
    /// Prompt tokens that were found in the cache.
    pub cached: usize,
    /// Whether it is the last one.
    pub finished: bool,
}

/// What a finished step yields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepResult {
    /// One a sequence that produced a token.
    pub outputs: Vec<Output>,
    /// In the order in which they happened.
    pub events: Vec<CacheEvent>,
    /// Tokens that were computed.
    pub tokens: usize,
}

/// Counters of the prefix cache, tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Looked up at admission.
    pub queries: u64,
    /// Found.
    pub hits: u64,
}

/// One simulated engine. A copy goes on as the original would.
#[derive(Clone, Debug)]
pub struct Engine {
    config: EngineConfig,
    vocabulary: Vocabulary,
    root: BlockHash,
    pool: Pool,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    events: Vec<CacheEvent>,
    aborted: Vec<RequestId>,
    reset_asked: bool,
    counters: CacheCounters,
}

impl Engine {
    /// An idle engine with an empty cache.
    pub fn new(config: EngineConfig, vocabulary: Vocabulary) -> Self {
        Self {
            root: BlockHash::root(config.seed),
            pool: Pool::new(config.num_blocks),
            config,
            vocabulary,
            waiting: VecDeque::new(),
            running: Vec::new(),
            events: Vec::new(),
            aborted: Vec::new(),
            reset_asked: false,
            counters: CacheCounters::default(),
        }
    }

    /// Queues a request. Its prompt and answer must fit in the cache, or it waits for ever.
    pub fn submit(&mut self, arrival: Arrival) {
        self.waiting.push_back(Sequence::new(arrival, self.config.block_size, self.root));
    }

    /// Drops a request before the next step, wherever it is. Unknown ids are ignored.
    pub fn abort(&mut self, id: RequestId) {
        self.aborted.push(id);
    }

    /// Empties the prefix cache before the next step. Without effect while a request holds blocks, as in vLLM.
    pub fn reset_prefix_cache(&mut self) {
        self.reset_asked = true;
    }

    /// Requests in the batch.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Requests not yet admitted.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Share of the KV cache in use, 0..=1. Cached blocks that nobody uses are free.
    pub fn cache_usage(&self) -> f64 {
        f64::from(self.pool.used()) / f64::from(self.pool.capacity())
    }

    /// Prefix cache counters since the start.
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }

    /// Names of the adapters in the batch and in the queue, sorted, each once.
    pub fn lora_names(&self) -> (Vec<String>, Vec<String>) {
        let names = |sequences: &mut dyn Iterator<Item = &Sequence>| {
            let mut names: Vec<String> =
                sequences.filter_map(|s| Some(s.salts.lora.as_ref()?.name.to_string())).collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        (names(&mut self.running.iter()), names(&mut self.waiting.iter()))
    }

    /// Decides the next step and says how long it takes; `None` when there is nothing to do.
    pub fn begin_step(&mut self) -> Option<Duration> {
        self.drop_aborted();
        if std::mem::take(&mut self.reset_asked) && self.pool.reset() {
            self.events.push(CacheEvent::Cleared);
        }
        let mut budget = self.config.max_batched_tokens;
        let mut ms = self.config.timing.step_ms;
        let mut running = std::mem::take(&mut self.running);
        for sequence in &mut running {
            ms += self.schedule(sequence, &mut budget);
        }
        while budget > 0
            && running.len() < self.config.max_num_seqs
            && let Some(mut sequence) = self.admit(&running)
        {
            ms += self.schedule(&mut sequence, &mut budget);
            running.push(sequence);
        }
        self.running = running;
        (!self.running.is_empty()).then(|| millis(ms))
    }

    /// Ends the step: tokens come out, finished requests leave.
    pub fn finish_step(&mut self) -> StepResult {
        let mut result = StepResult { events: std::mem::take(&mut self.events), ..StepResult::default() };
        let mut running = std::mem::take(&mut self.running);
        for sequence in running.iter_mut().filter(|sequence| sequence.scheduled > 0) {
            result.tokens += sequence.scheduled;
            sequence.computed += std::mem::take(&mut sequence.scheduled);
            if sequence.computed == sequence.tokens.len() {
                let token = sequence.sample(&self.vocabulary);
                result.outputs.push(Output {
                    id: sequence.id,
                    token,
                    cached: sequence.cached,
                    finished: sequence.generated() == sequence.max_tokens,
                });
            }
        }
        running.retain(|sequence| {
            let finished = sequence.generated() == sequence.max_tokens;
            if finished {
                free(&mut self.pool, sequence);
            }
            !finished
        });
        self.running = running;
        result
    }

    /// Takes the head of the queue into the batch, if its whole life fits beside what the others still need.
    fn admit(&mut self, running: &[Sequence]) -> Option<Sequence> {
        let block_size = self.config.block_size;
        let head = self.waiting.front()?;
        let hits = self.pool.lookup(head.reusable(block_size));
        let promised: usize = running.iter().map(|s| s.total_blocks(block_size) - s.blocks.len()).sum();
        let needed =
            head.total_blocks(block_size) - hits.len() + self.pool.count_free(&hits) as usize + promised;
        if needed > self.pool.free() as usize {
            return None;
        }
        let mut sequence = self.waiting.pop_front()?;
        hits.iter().for_each(|&id| self.pool.hold(id));
        sequence.stored = hits.len();
        sequence.cached = hits.len() * block_size;
        sequence.computed = sequence.cached;
        sequence.blocks = hits;
        self.counters.queries += sequence.prompt_len as u64;
        self.counters.hits += sequence.cached as u64;
        Some(sequence)
    }

    /// Gives a sequence its share of the budget; returns what that costs, ms.
    fn schedule(&mut self, sequence: &mut Sequence, budget: &mut usize) -> f64 {
        let tokens = (sequence.tokens.len() - sequence.computed).min(*budget);
        if tokens == 0 {
            return 0.0;
        }
        *budget -= tokens;
        sequence.scheduled = tokens;
        let end = sequence.computed + tokens;
        self.allocate(sequence, end.div_ceil(self.config.block_size));
        self.store_full(sequence, end);
        if sequence.is_prefilling() {
            self.config.timing.prefill(tokens, end)
        } else {
            self.config.timing.decode(sequence.computed)
        }
    }

    fn allocate(&mut self, sequence: &mut Sequence, blocks: usize) {
        while sequence.blocks.len() < blocks {
            // Admission has promised the blocks.
            let Some((id, evicted)) = self.pool.allocate() else { return };
            self.events.extend(evicted.map(CacheEvent::Removed));
            sequence.blocks.push(id);
        }
    }

    /// Publishes the blocks that this step fills. They count as cached at once, also for the rest of this step's batch.
    fn store_full(&mut self, sequence: &mut Sequence, end: usize) {
        let block_size = self.config.block_size;
        let (from, to) = (sequence.stored, end / block_size);
        if to <= from {
            return;
        }
        sequence.extend_hashes(block_size, self.root);
        for index in from..to {
            self.pool.store(sequence.blocks[index], sequence.hashes[index]);
        }
        sequence.stored = to;
        self.events.push(CacheEvent::Stored(Stored {
            hashes: sequence.hashes[from..to].to_vec(),
            parent: from.checked_sub(1).map(|last| sequence.hashes[last]),
            tokens: sequence.tokens[from * block_size..to * block_size].to_vec(),
            salts: sequence.salts.clone(),
        }));
    }

    fn drop_aborted(&mut self) {
        for id in std::mem::take(&mut self.aborted) {
            self.waiting.retain(|sequence| sequence.id != id);
            if let Some(at) = self.running.iter().position(|sequence| sequence.id == id) {
                let sequence = self.running.remove(at);
                free(&mut self.pool, &sequence);
            }
        }
    }
}

/// Gives a sequence's blocks back, tail first, so that the head of a prefix outlives its tail.
fn free(pool: &mut Pool, sequence: &Sequence) {
    for &id in sequence.blocks.iter().rev() {
        pool.release(id);
    }
}
