//! Hot prefixes: which prefix so many prompts share that one worker should not serve it alone.
//!
//! A sliding window of the last 1,024 prompts counts their prefixes at 2^k blocks; the deepest hot one counts.

use std::collections::{HashMap, VecDeque};

use crate::{
    config::{PickerConfig, PredictorConfig},
    load::Prefill,
    types::{BlockKeys, Candidate, SequenceHash},
};

use super::prefill_work_ms;

/// Prompts in the window.
const WINDOW: usize = 1024;
/// A share of fewer prompts than this says nothing yet.
const FEWEST: usize = 32;

/// The window. One for each (model, profile), behind the pick's lock.
#[derive(Debug, Default)]
pub struct HotPrefixes {
    window: VecDeque<Vec<SequenceHash>>,
    counts: HashMap<SequenceHash, u32>,
}

impl HotPrefixes {
    /// Counts a prompt, and says how many leading blocks of it are hot: 0 when none is, or when
    /// `threshold_pct` is 0.
    pub fn observe(&mut self, keys: &BlockKeys, threshold_pct: f64) -> usize {
        if threshold_pct <= 0.0 {
            return 0;
        }
        let marks: Vec<SequenceHash> = depths(keys).map(|depth| keys.sequence[depth - 1]).collect();
        for mark in &marks {
            *self.counts.entry(*mark).or_default() += 1;
        }
        self.window.push_back(marks);
        if self.window.len() > WINDOW
            && let Some(old) = self.window.pop_front()
        {
            self.forget(&old);
        }
        if self.window.len() < FEWEST {
            return 0;
        }
        let least = threshold_pct / 100.0 * self.window.len() as f64;
        let hot =
            |depth: &usize| self.counts.get(&keys.sequence[depth - 1]).is_some_and(|n| f64::from(*n) > least);
        depths(keys).filter(hot).last().unwrap_or(0)
    }

    fn forget(&mut self, marks: &[SequenceHash]) {
        for mark in marks {
            if let Some(count) = self.counts.get_mut(mark) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(mark);
                }
            }
        }
    }
}

/// 1, 2, 4, ... blocks, as far as the prompt's keys go.
fn depths(keys: &BlockKeys) -> impl Iterator<Item = usize> {
    let most = keys.sequence.len();
    (0..usize::BITS).map(|k| 1usize << k).take_while(move |depth| *depth <= most)
}

/// The candidate to warm with a hot prefix of `hot` blocks: while fewer than `replication_warm_target` hold
/// enough of it, the best that does not, unless it is predicted slower than the best by more than the full
/// prefill of the prefix, as part of this prompt: that is the price of warming, anything beyond it is load.
pub fn replica(
    picker: &PickerConfig,
    predictor: &PredictorConfig,
    ranked: &[&Candidate],
    hot: usize,
) -> Option<usize> {
    if hot == 0 {
        return None;
    }
    let enough = picker.replication_warm_threshold_fraction * hot as f64;
    let warm = |c: &&&Candidate| f64::from(c.overlap.expected.max(c.overlap.any_tier)) >= enough;
    if ranked.iter().filter(warm).count() >= picker.replication_warm_target as usize {
        return None;
    }
    let cold = ranked.iter().position(|c| !warm(&c))?;
    let slower = ranked[cold].prediction.ttft_ms - ranked[0].prediction.ttft_ms;
    let hot = hot as f64;
    let warming = prefill_work_ms(predictor, Prefill::of(hot, ranked[cold].prediction.blocks.max(hot)));
    // Of two idle workers the cold one is slower by exactly that, but for rounding.
    (slower <= warming * (1.0 + 1e-9)).then_some(cold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{route::pick::tests::candidate, types::Overlap};

    fn keys(prefix: u64, shared: usize, own: u64, total: usize) -> BlockKeys {
        let sequence = (0..total as u64)
            .map(|i| {
                SequenceHash(if (i as usize) < shared { prefix * 1000 + i } else { own * 1_000_000 + i })
            })
            .collect();
        BlockKeys { block_size: 16, tokens: total * 16, blocks: [].into(), sequence }
    }

    #[test]
    fn the_deepest_hot_prefix_is_found_and_forgotten() {
        let mut hot = HotPrefixes::default();
        let mut last = 0;
        for i in 0..100 {
            last = hot.observe(&keys(1, 20, 100 + i, 40), 50.0);
        }
        assert_eq!(last, 16);
        for i in 0..2000 {
            last = hot.observe(&keys(5000 + i, 1, 10_000 + i, 8), 50.0);
        }
        assert_eq!(last, 0);
        assert!(hot.counts.len() <= WINDOW * 4, "{}", hot.counts.len());
        assert_eq!(hot.observe(&keys(1, 20, 1, 40), 50.0), 0, "the old prefix has left the window");
    }

    #[test]
    fn zero_disables_and_few_prompts_say_nothing() {
        let mut hot = HotPrefixes::default();
        assert_eq!((0..100).map(|i| hot.observe(&keys(1, 20, i, 40), 0.0)).max(), Some(0));
        assert_eq!((0..31).map(|i| hot.observe(&keys(1, 20, i, 40), 1.0)).max(), Some(0));
    }

    fn warm(id: u64, ttft: f64, expected: u32) -> Candidate {
        let overlap = Overlap { confirmed: 0, any_tier: 0, expected };
        Candidate { overlap, ..candidate(id, ttft, 0) }
    }

    #[test]
    fn a_cold_worker_is_warmed_unless_it_is_too_slow() {
        let (picker, predictor) = (PickerConfig::default(), PredictorConfig::default());
        let replica =
            |ranked: &[Candidate], hot| replica(&picker, &predictor, &ranked.iter().collect::<Vec<_>>(), hot);
        // full prefill of 100 blocks: 230 + 90 = 320 ms
        let near = [warm(1, 100.0, 100), warm(2, 400.0, 10), warm(3, 410.0, 0)];
        assert_eq!(replica(&near, 100), Some(1));
        let far = [warm(1, 100.0, 100), warm(2, 430.0, 10)];
        assert_eq!(replica(&far, 100), None);
        let enough = [warm(1, 100.0, 100), warm(2, 110.0, 50), warm(3, 120.0, 0)];
        assert_eq!(replica(&enough, 100), None);
        assert_eq!(replica(&near, 0), None);
        // As part of 150 blocks the prefix costs 230 + 135 = 365 ms: its blocks attend to those behind it too.
        let mut longer = [warm(1, 100.0, 100), warm(2, 465.0, 0)];
        longer[1].prediction.blocks = 150.0;
        assert_eq!(replica(&longer, 100), Some(1));
        longer[1].prediction.ttft_ms = 466.0;
        assert_eq!(replica(&longer, 100), None);
    }
}
