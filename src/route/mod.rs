//! Predict, pick, replicate: candidates in, `Decision` out. Pure but for the clock.
