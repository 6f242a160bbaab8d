//! Whether an engine has certainly filled KV blocks, so that KV events are due.
//!
//! A request may compute up to a block of its prompt and a block of its answer without filling either, and one whose
//! prompt is cached often does just that: work alone is no reason to expect an event.

use super::parse::Scraped;

/// The counters when blocks were last known to be filled.
#[derive(Debug, Default)]
pub(super) struct Work(Option<(f64, f64)>);

impl Work {
    /// Takes a scrape; whether blocks were filled since the last time that the answer was yes.
    pub(super) fn filled_blocks(&mut self, scraped: &Scraped, block_size: u32) -> bool {
        let now = (scraped.computed, scraped.requests);
        let Some((computed, requests)) = self.0 else {
            self.0 = Some(now);
            return false;
        };
        if now.0 < computed || now.1 < requests {
            // Its counters began anew.
            self.0 = Some(now);
            return false;
        }
        // One more: a request may have begun before the counters were read and ended after.
        let unfilled = (now.1 - requests + 1.0) * 2.0 * f64::from(block_size);
        let filled = now.0 - computed > unfilled;
        if filled {
            self.0 = Some(now);
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LoadSample;

    fn scraped(computed: f64, requests: f64) -> Scraped {
        Scraped { load: LoadSample::default(), asleep: None, computed, requests }
    }

    #[test]
    fn cached_prompts_fill_nothing_and_long_ones_do() {
        let mut work = Work::default();
        assert!(
            !work.filled_blocks(&scraped(1000.0, 10.0), 16),
            "the first scrape only says where counting starts"
        );
        assert!(
            !work.filled_blocks(&scraped(1000.0 + 20.0 * 30.0, 30.0), 16),
            "20 cached prompts, 30 tokens each"
        );
        assert!(work.filled_blocks(&scraped(1000.0 + 20.0 * 30.0 + 500.0, 31.0), 16));
        assert!(!work.filled_blocks(&scraped(2100.0, 31.0), 16), "what was told is not told again");
        assert!(!work.filled_blocks(&scraped(50.0, 1.0), 16), "it restarted");
        assert!(work.filled_blocks(&scraped(150.0, 1.0), 16));
    }
}
