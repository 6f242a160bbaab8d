//! From predictions to one worker and its ordered fallbacks.

use std::cmp::Ordering;

use rand::{Rng, rngs::StdRng};

use super::{stale::is_stale, warmup::held_back};
use crate::{config::PickerConfig, types::Candidate};

/// What was picked: indices into the ranked candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The picked one.
    pub chosen: usize,
    /// The rest of the candidate set, best first.
    pub fallbacks: Vec<usize>,
}

/// Sorts candidates: by the level that rules gave them, then the best prediction first; equal ones by id, so that equal
/// inputs rank equally.
pub fn rank(candidates: &mut [Candidate]) {
    let by_target = |a: &Candidate, b: &Candidate| a.target.key().cmp(&b.target.key());
    candidates.sort_by(|a, b| by_level(a, b).then_with(|| by_ttft(a, b)).then_with(|| by_target(a, b)));
}

fn by_level(a: &Candidate, b: &Candidate) -> Ordering {
    a.level.cmp(&b.level)
}

fn by_ttft(a: &Candidate, b: &Candidate) -> Ordering {
    a.prediction.ttft_ms.total_cmp(&b.prediction.ttft_ms)
}

/// Picks among ranked candidates: the best `max(top_k_min, ceil(top_k_fraction * n))` are the candidate set;
/// of those of the best's level within `tie_tolerance_ms` of it, one whose load is known rather than assumed, the one with the
/// fewest own requests in flight, then at random. Equal predictions enter the set by the same rules, or a fleet
/// that idles would only ever use its lowest ids. Of a level, those that [`held_back`] names come last. `forced` is picked
/// regardless, and joins the candidate set.
/// A request is worded for the picked one: only workers who know the model by the same name can stand in for a worker,
/// and nobody for a provider.
///
/// `None` when there is no candidate.
pub fn pick(
    picker: &PickerConfig,
    ranked: &[Candidate],
    forced: Option<usize>,
    rng: &mut StdRng,
) -> Option<Choice> {
    let held = held_back(ranked, picker.warmup_in_flight_max);
    let fraction = (picker.top_k_fraction * ranked.len() as f64).ceil() as usize;
    let size = fraction.max(picker.top_k_min as usize).max(1).min(ranked.len());
    let mut all: Vec<(usize, Preference)> = ranked.iter().map(|c| preference(c, rng)).enumerate().collect();
    let by_group = |a: usize, b: usize| by_level(&ranked[a], &ranked[b]).then_with(|| held[a].cmp(&held[b]));
    all.sort_by(|(a, one), (b, other)| {
        by_group(*a, *b).then_with(|| by_ttft(&ranked[*a], &ranked[*b])).then_with(|| one.cmp(other))
    });
    let best = all.first()?.0;
    let limit = ranked[best].prediction.ttft_ms + picker.tie_tolerance_ms;
    let is_tied = |i: usize| by_group(i, best).is_eq() && ranked[i].prediction.ttft_ms <= limit;
    let tied = all.iter().take(size).take_while(|(i, _)| is_tied(*i));
    let chosen = forced.or_else(|| tied.min_by_key(|(_, preference)| *preference).map(|(i, _)| *i))?;
    let is_worker = |i: usize| ranked[i].target.worker().is_some();
    let takes_the_same =
        |i: &usize| is_worker(chosen) && is_worker(*i) && ranked[*i].model == ranked[chosen].model;
    let set = all.into_iter().map(|(i, _)| i).filter(takes_the_same).take(size);
    Some(Choice { chosen, fallbacks: set.filter(|i| *i != chosen).collect() })
}

/// What decides between equal predictions, lower first: load that is assumed (the engine may hang), own requests
/// in flight, chance.
type Preference = (bool, u32, u64);

fn preference(candidate: &Candidate, rng: &mut StdRng) -> Preference {
    (is_stale(candidate), candidate.own_in_flight, rng.random())
}

#[cfg(test)]
pub(super) mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::types::{Degradation, Prediction, ProviderTarget, Target, WorkerId, WorkerTarget};

    fn worker(id: u64) -> Target {
        Target::Worker(WorkerTarget {
            id: WorkerId(id),
            name: format!("w{id}").into(),
            workerset: "set".into(),
            endpoint: format!("10.0.0.{id}:8000").into(),
        })
    }

    fn id(candidate: &Candidate) -> u64 {
        candidate.target.worker().unwrap().id.0
    }

    pub(in crate::route) fn candidate(id: u64, ttft_ms: f64, own_in_flight: u32) -> Candidate {
        Candidate {
            prediction: Prediction { ttft_ms, ..Default::default() },
            own_in_flight,
            ..Candidate::new(worker(id), None)
        }
    }

    pub(in crate::route) fn provider(ttft_ms: f64) -> Candidate {
        let target = ProviderTarget {
            namespace: "ns".into(),
            name: "cloud".into(),
            authority: "cloud.example".into(),
            path_prefix: None,
            credential: None,
        };
        Candidate { target: Target::Provider(target.into()), ..candidate(0, ttft_ms, 0) }
    }

    fn picked(picker: &PickerConfig, list: &[(u64, f64, u32)], seed: u64) -> (u64, Vec<u64>) {
        let mut c: Vec<_> = list.iter().map(|(id, ms, own)| candidate(*id, *ms, *own)).collect();
        rank(&mut c);
        let choice = pick(picker, &c, None, &mut StdRng::seed_from_u64(seed)).unwrap();
        (id(&c[choice.chosen]), choice.fallbacks.iter().map(|i| id(&c[*i])).collect())
    }

    #[test]
    fn the_best_wins_and_the_rest_of_the_set_falls_back() {
        let picker = PickerConfig { top_k_min: 3, ..Default::default() };
        let list = [(1, 900.0, 0), (2, 100.0, 9), (3, 300.0, 0), (4, 500.0, 0)];
        assert_eq!(picked(&picker, &list, 0), (2, vec![3, 4]));
    }

    #[test]
    fn among_tied_the_fewest_in_flight_wins() {
        let list = [(1, 100.0, 3), (2, 149.0, 1), (3, 151.0, 0)];
        let picker = PickerConfig { top_k_min: 3, ..Default::default() };
        assert_eq!(picked(&picker, &list, 0).0, 2);
    }

    #[test]
    fn ties_outside_the_candidate_set_do_not_count() {
        let list = [(1, 100.0, 3), (2, 101.0, 3), (3, 102.0, 0)];
        assert_ne!(picked(&PickerConfig::default(), &list, 0).0, 3);
    }

    #[test]
    fn level_candidates_are_drawn_by_the_seed() {
        let list: Vec<_> = (0..8).map(|id| (id, 100.0, 0)).collect();
        let picker = PickerConfig { top_k_min: 8, ..Default::default() };
        let draws: std::collections::BTreeSet<_> = (0..64).map(|s| picked(&picker, &list, s).0).collect();
        assert_eq!(draws.len(), 8);
        assert_eq!(picked(&picker, &list, 7), picked(&picker, &list, 7));
    }

    #[test]
    fn a_fleet_that_idles_uses_all_of_its_workers() {
        let list: Vec<_> = (0..6).map(|id| (id, 100.0, 0)).collect();
        let draws: std::collections::BTreeSet<_> =
            (0..64).map(|seed| picked(&PickerConfig::default(), &list, seed).0).collect();
        assert_eq!(draws.len(), 6);
        // Of equal predictions, those with fewer in flight enter the set.
        let busy = [(1, 100.0, 2), (2, 100.0, 1), (3, 100.0, 0)];
        assert_eq!(picked(&PickerConfig::default(), &busy, 0), (3, vec![2]));
    }

    #[test]
    fn a_load_that_is_only_assumed_never_wins_a_tie() {
        let mut c = [candidate(1, 100.0, 0), candidate(2, 120.0, 3)];
        c[0].degraded.push(Degradation::StaleMetrics);
        let pick = |c: &[_]| pick(&PickerConfig::default(), c, None, &mut StdRng::seed_from_u64(0)).unwrap();
        assert_eq!(pick(&c), Choice { chosen: 1, fallbacks: vec![0] });
        assert_eq!(pick(&c[..1]).chosen, 0);
    }

    #[test]
    fn the_fraction_widens_the_set() {
        let picker = PickerConfig { top_k_fraction: 0.5, ..Default::default() };
        let list: Vec<_> = (0..10).map(|id| (id, 1000.0 * id as f64, 0)).collect();
        assert_eq!(picked(&picker, &list, 0).1, vec![1, 2, 3, 4]);
    }

    #[test]
    fn nothing_to_pick_from_is_none() {
        assert_eq!(pick(&PickerConfig::default(), &[], None, &mut StdRng::seed_from_u64(0)), None);
    }

    #[test]
    fn levels_come_before_predictions_and_only_the_first_one_ties() {
        let picker = PickerConfig { top_k_min: 3, ..Default::default() };
        let levelled = |id, ms, level| Candidate { level, ..candidate(id, ms, 0) };
        let mut c =
            [levelled(1, 100.0, 1), levelled(2, 900.0, 0), levelled(3, 905.0, 1), levelled(4, 990.0, 2)];
        rank(&mut c);
        assert_eq!(c.each_ref().map(id), [2, 1, 3, 4]);
        for seed in 0..16 {
            let choice = pick(&picker, &c, None, &mut StdRng::seed_from_u64(seed)).unwrap();
            assert_eq!(choice, Choice { chosen: 0, fallbacks: vec![1, 2] });
        }
    }

    #[test]
    fn those_held_back_come_last_of_their_level() {
        let picker = PickerConfig { top_k_min: 4, ..Default::default() };
        let warming = |id, ms| Candidate { warming: true, ..candidate(id, ms, 4) };
        let second = |c: Candidate| Candidate { level: 1, ..c };
        let mut c = [
            warming(1, 100.0),
            candidate(2, 110.0, 30),
            candidate(3, 900.0, 0),
            second(candidate(4, 1.0, 0)),
        ];
        rank(&mut c);
        for seed in 0..16 {
            let pick =
                |picker: &PickerConfig, forced| pick(picker, &c, forced, &mut StdRng::seed_from_u64(seed));
            let want = Choice { chosen: 1, fallbacks: vec![2, 0, 3] };
            assert_eq!(pick(&picker, None), Some(want), "near the best, and not tied with it");
            assert_eq!(pick(&picker, Some(0)).map(|choice| choice.chosen), Some(0));
            let unbounded = PickerConfig { warmup_in_flight_max: 0, ..picker.clone() };
            assert_eq!(pick(&unbounded, None), Some(Choice { chosen: 0, fallbacks: vec![1, 2, 3] }));
        }
    }

    #[test]
    fn fallbacks_know_the_model_by_the_name_of_the_picked_one() {
        let picker = PickerConfig { top_k_min: 2, tie_tolerance_ms: 0.0, ..Default::default() };
        let of = |id, ms, model: &str| Candidate { model: Some(model.into()), ..candidate(id, ms, 0) };
        let c = [of(1, 1.0, "a"), of(2, 2.0, "b"), of(3, 3.0, "a"), of(4, 4.0, "a")];
        let pick = |forced| pick(&picker, &c, forced, &mut StdRng::seed_from_u64(0)).unwrap();
        assert_eq!(pick(None), Choice { chosen: 0, fallbacks: vec![2] });
        assert_eq!(pick(Some(1)), Choice { chosen: 1, fallbacks: vec![] });
    }

    #[test]
    fn a_provider_is_picked_like_a_worker_but_stands_in_for_nobody() {
        let picker = PickerConfig { top_k_min: 4, tie_tolerance_ms: 0.0, ..Default::default() };
        let pick = |c: &[Candidate]| pick(&picker, c, None, &mut StdRng::seed_from_u64(0)).unwrap();
        let mut c = [candidate(1, 9.0, 0), provider(2.0), candidate(2, 8.0, 0)];
        rank(&mut c);
        assert_eq!(pick(&c), Choice { chosen: 0, fallbacks: vec![] }, "nor does anybody for it");
        let mut c = [candidate(1, 1.0, 0), provider(2.0), candidate(2, 8.0, 0)];
        rank(&mut c);
        assert_eq!(pick(&c), Choice { chosen: 0, fallbacks: vec![2] });
    }
}
