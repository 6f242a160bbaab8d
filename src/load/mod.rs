//! In-flight reservations and scraped load, as one view per worker; and what is known of providers.
//!
//! Invariant: every reservation is released by `Drop`, so when none is left every count is exactly zero.
//! Work is kept in whole nanoseconds (sums are exact); views give milliseconds. Time is tokio's.

mod ahead;
mod backlog;
mod own;
mod providers;
mod sample;
mod table;

pub use ahead::{Ahead, Prefill};
pub use providers::{AtProvider, FAILURES, Fault, ProviderReservation, ProviderView, Providers, SetAside};
pub use sample::{Freshness, LoadSample, LoadView};
pub use table::{Claim, LoadTable, POLLS_KEPT, Pick, Reservation};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
