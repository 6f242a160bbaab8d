//! The prefill that own requests on a worker wait for, in the units that its time is computed from.
//!
//! Milliseconds follow from the coefficients of whoever asks: those of the claims may be out of date by now, or not
//! be the ones that are to be judged. Units: blocks, blocks times blocks, milliseconds of time that passed.

use std::ops::{Add, Sub};

/// How much there is to prefill, of one prompt or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Prefill {
    /// Uncached blocks.
    pub uncached: f64,
    /// Uncached blocks times all blocks of their prompt.
    pub products: f64,
}

impl Prefill {
    /// Of a prompt of `blocks`, `uncached` of which are not cached.
    pub fn of(uncached: f64, blocks: f64) -> Self {
        Self { uncached, products: uncached * blocks }
    }
}

impl Add for Prefill {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { uncached: self.uncached + other.uncached, products: self.products + other.products }
    }
}

impl Sub for Prefill {
    type Output = Self;

    /// Never below nothing.
    fn sub(self, other: Self) -> Self {
        let less = |a: f64, b: f64| (a - b).max(0.0);
        Self { uncached: less(self.uncached, other.uncached), products: less(self.products, other.products) }
    }
}

/// What waits on a worker, the head of the queue included.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Ahead {
    /// Of all own requests without a token.
    pub waiting: Prefill,
    /// Of the head among them, which is the one that is worked on.
    pub head: Prefill,
    /// Milliseconds since it became head.
    pub worked_ms: f64,
    /// It came when none waited: the engine may have been in the middle of a step.
    pub began_idle: bool,
}
