//! Conditions, as plain comparisons.

use super::{
    super::crd::{Bounds, CountRange, PercentBounds, Statistic, StatisticBounds, StatisticPercentBounds},
    request::Spread,
};

/// More than one value and less than another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::policy) struct Between {
    above: f64,
    below: f64,
}

impl Between {
    fn new(above: Option<f64>, below: Option<f64>) -> Self {
        Self { above: above.unwrap_or(f64::NEG_INFINITY), below: below.unwrap_or(f64::INFINITY) }
    }

    pub(super) fn has(self, value: f64) -> bool {
        value > self.above && value < self.below
    }
}

impl From<Bounds> for Between {
    fn from(bounds: Bounds) -> Self {
        Self::new(bounds.above, bounds.below)
    }
}

impl From<PercentBounds> for Between {
    fn from(bounds: PercentBounds) -> Self {
        Self::new(bounds.above, bounds.below)
    }
}

/// A statistic between two values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::policy) struct SpreadBetween {
    stat: Statistic,
    between: Between,
}

impl SpreadBetween {
    pub(super) fn has(self, spread: Option<Spread>) -> bool {
        spread.is_some_and(|spread| {
            self.between.has(match self.stat {
                Statistic::Min => spread.min,
                Statistic::Mean => spread.mean,
                Statistic::Max => spread.max,
            })
        })
    }
}

impl From<StatisticBounds> for SpreadBetween {
    fn from(bounds: StatisticBounds) -> Self {
        Self { stat: bounds.stat, between: Between::new(bounds.above, bounds.below) }
    }
}

impl From<StatisticPercentBounds> for SpreadBetween {
    fn from(bounds: StatisticPercentBounds) -> Self {
        Self { stat: bounds.stat, between: Between::new(bounds.above, bounds.below) }
    }
}

/// Whether a count is in a range.
pub(super) fn in_range(range: CountRange, count: u64) -> bool {
    range.min.is_none_or(|min| count >= min.into()) && range.max.is_none_or(|max| count <= max.into())
}
