//! Durations counted in steps that grow by a sixteenth of a doubling: quantiles within 2.5 %, however many there are.
//!
//! Invariant: of fixed size once something was added. Milliseconds; what is shorter counts as 1 ms, what is longer than
//! 17 minutes as that.

/// Steps of a doubling.
const STEPS: f64 = 16.0;
/// Doublings from 1 ms on.
const DOUBLINGS: usize = 20;
const SIZE: usize = DOUBLINGS * STEPS as usize;

/// Durations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Histogram {
    counts: Vec<u32>,
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, ms: f64) {
        self.counts.resize(SIZE, 0);
        // Not a number, or too short: `max` takes the other operand.
        let step = (ms.max(1.0).log2() * STEPS) as usize;
        let count = &mut self.counts[step.min(SIZE - 1)];
        *count = count.saturating_add(1);
    }

    /// Counts all that another has.
    pub fn merge(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
    }

    /// The duration that a share `q` of them does not exceed; `None`: there are none.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let all: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let wanted = ((q * all as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let step = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted
        })?;
        Some(((step as f64 + 0.5) / STEPS).exp2())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_has_no_quantile_and_any_number_counts() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        [f64::NAN, -1.0, 0.0, f64::INFINITY].into_iter().for_each(|ms| histogram.add(ms));
        assert!(histogram.quantile(0.5).unwrap() < 1.1 && histogram.quantile(1.0).unwrap() > 1e6);
    }

    proptest! {
        #[test]
        fn quantiles_are_near_the_exact_ones(mut all in proptest::collection::vec(1.0..1e6f64, 1..300), q in 0.01..1.0f64) {
            let (mut histogram, mut other) = (Histogram::default(), Histogram::default());
            for (at, ms) in all.iter().enumerate() {
                if at % 3 == 0 { other.add(*ms) } else { histogram.add(*ms) }
            }
            histogram.merge(&other);
            all.sort_by(f64::total_cmp);
            let exact = all[((q * all.len() as f64).ceil() as usize).max(1) - 1];
            let found = histogram.quantile(q).unwrap();
            prop_assert!((found / exact - 1.0).abs() < 0.025, "{found} for {exact}");
        }
    }
}
