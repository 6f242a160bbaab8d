//! Workers that have answered nothing yet: until they have, each gets a bounded number of requests, while others have.
//!
//! What an engine does with its first requests (it compiles, it loads, it is set up wrong) is in no prediction. Pure.

use std::collections::BTreeSet;

use super::stale::is_stale;
use crate::types::Candidate;

/// Which of the candidates come after all others of their level: they are warming, and have `in_flight_max` of our own
/// requests. Nobody does where all workers are warming, or where nobody else's load is known: a fleet that starts does not
/// give way to a provider. 0: there is no bound.
pub fn held_back(candidates: &[Candidate], in_flight_max: u32) -> Vec<bool> {
    let full = |c: &Candidate| in_flight_max > 0 && c.warming && c.own_in_flight >= in_flight_max;
    let warm = candidates.iter().filter(|c| c.target.worker().is_some() && !c.warming && !is_stale(c));
    let levels: BTreeSet<u32> = warm.map(|c| c.level).collect();
    candidates.iter().map(|c| full(c) && levels.contains(&c.level)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{route::pick::tests::candidate, types::Degradation};

    fn warming(id: u64, own_in_flight: u32) -> Candidate {
        Candidate { warming: true, ..candidate(id, 100.0, own_in_flight) }
    }

    #[test]
    fn those_that_have_their_share_are_held_back() {
        let mut c = [warming(1, 3), warming(2, 4), warming(3, 9), candidate(4, 900.0, 40)];
        assert_eq!(held_back(&c, 4), [false, true, true, false]);
        assert_eq!(held_back(&c, 0), [false; 4], "no bound");
        assert_eq!(held_back(&c[..3], 4), [false; 3], "all are warming");
        c[3].degraded.push(Degradation::StaleMetrics);
        assert_eq!(held_back(&c, 4), [false; 4], "the other one may hang");
        assert_eq!(held_back(&[], 4), [false; 0]);
    }

    #[test]
    fn only_others_of_their_level_count() {
        let mut c = [warming(1, 4), candidate(2, 900.0, 0), warming(3, 4)];
        c[1].level = 1;
        c[2].level = 1;
        assert_eq!(held_back(&c, 4), [false, false, true]);
    }
}
