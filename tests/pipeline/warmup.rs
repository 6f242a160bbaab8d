//! A worker that has answered nothing yet gets a few requests at a time, as long as others have.

use std::sync::atomic::Ordering;

use kinference::{
    config::Profile,
    pipeline::{Incoming, Placement},
    types::Outcome,
};

use crate::site::{BLOCK, Site, other, picked, profile, prompt, worker, worker_of, worker_set};

/// The default bound.
const BOUND: u32 = 4;

/// Every worker is predicted alike, whatever its load: the fewest in flight decide.
fn level(seed: u64) -> Profile {
    profile("p", |p| {
        p.picker.seed = Some(seed);
        p.picker.top_k_min = 4;
        p.predictor.q_running_penalty_peak_ms = 0.0;
        p.predictor.queue_ms_per_entry = 0.0;
        p.predictor.backlog_weight = 0.0;
    })
}

async fn places(site: &Site, n: u32, incoming: impl Fn(u32) -> Incoming) -> Vec<Placement> {
    let mut out = Vec::new();
    for i in 0..n {
        out.push(site.place(incoming(i)).await);
    }
    out
}

/// Workers 1 to 3 have answered and are busy; worker 4 has just joined.
async fn busy(profile: &Profile) -> (Site, Vec<Placement>) {
    let site = Site::of(profile, 3);
    let mut held = places(&site, 30, |i| prompt(i * 1000..i * 1000 + 64)).await;
    held.iter_mut().for_each(Placement::first_token);
    assert_eq!([1, 2, 3].map(|id| (site.in_flight(id), site.member(id).warming())), [(10, false); 3]);
    let set = worker_set("s", profile);
    site.registry.replace_set("s", (1..=4).map(|id| worker(&set, id)).collect()).unwrap();
    (site, held)
}

#[tokio::test(start_paused = true)]
async fn a_new_worker_of_a_busy_fleet_gets_few_requests_until_its_first_token_and_then_its_share() {
    for seed in 0..8 {
        let (site, _held) = busy(&level(seed)).await;
        assert!(site.member(4).warming());
        let mut first = places(&site, 22, |i| prompt(i * 1000..i * 1000 + 64)).await;
        assert_eq!([1, 2, 3, 4].map(|id| site.in_flight(id)), [16, 16, 16, BOUND], "seed {seed}");
        // The last one knew of it, and had it among its candidates.
        let last = &first.last().unwrap().decision;
        assert!(
            last.candidates.iter().all(|c| c.warming == (worker_of(c) == 4)) && last.candidates.len() == 4
        );
        let its_first = first.iter_mut().find(|placement| picked(&placement.decision) == 4).unwrap();
        its_first.first_token();
        assert!(!site.member(4).warming());
        let _second = places(&site, 28, |i| prompt(i * 1000..i * 1000 + 64)).await;
        assert_eq!([1, 2, 3, 4].map(|id| site.in_flight(id)), [20; 4], "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_ends_makes_room_and_a_whole_answer_counts() {
    let (site, _held) = busy(&level(7)).await;
    for outcome in [Outcome::Failed, Outcome::ClientError, Outcome::Cancelled] {
        let placement = site.place(other()).await;
        assert_eq!((picked(&placement.decision), site.in_flight(4)), (4, 1));
        placement.finish(outcome, None);
        assert!(site.member(4).warming(), "{outcome:?} is no answer");
    }
    let mut on_it = places(&site, 20, |_| other()).await;
    assert_eq!(site.in_flight(4), BOUND);
    on_it.retain(|placement| picked(&placement.decision) == 4);
    on_it.pop().unwrap().finish(Outcome::Failed, None);
    assert_eq!(picked(&site.decide(other()).await), 4, "there is room for one");
    on_it.pop().unwrap().finish(Outcome::Completed, None);
    assert!(!site.member(4).warming());
}

#[tokio::test(start_paused = true)]
async fn it_is_used_as_ever_where_nobody_else_is() {
    let (site, _held) = busy(&level(7)).await;
    for id in 1..=3 {
        site.member(id).status.cordoned.store(true, Ordering::Relaxed);
    }
    let _more = places(&site, 9, |_| other()).await;
    assert_eq!(site.in_flight(4), 9);
}

#[tokio::test(start_paused = true)]
async fn without_a_bound_it_catches_up_at_once() {
    let mut unbounded = level(7);
    unbounded.picker.warmup_in_flight_max = 0;
    let (site, _held) = busy(&unbounded).await;
    assert!(!site.member(4).warming());
    let _more = places(&site, 10, |_| other()).await;
    assert_eq!(site.in_flight(4), 10);
}

#[tokio::test(start_paused = true)]
async fn a_hot_prefix_is_not_spread_beyond_the_bound() {
    let mut hot = level(7);
    hot.picker.replication_threshold_pct = 50.0;
    hot.picker.replication_warm_target = 4;
    let (site, _held) = busy(&hot).await;
    for id in 1..=3 {
        site.store(id, 0..64 * BLOCK).await;
    }
    let more =
        places(&site, 60, |i| prompt((0..64 * BLOCK).chain(1_000_000 + i * 100..1_000_040 + i * 100))).await;
    assert!(more.iter().filter(|placement| placement.decision.replicated).count() > 0);
    assert_eq!(site.in_flight(4), BOUND);
}
