//! Every rule of the load table by a case computed by hand. Time is paused; work and time in milliseconds.

use std::{sync::Arc, time::Duration};

use tokio::time::advance;

use super::*;
use crate::{
    observe::Metrics,
    types::{BlockKeys, SequenceHash, WorkerId},
};

const A: WorkerId = WorkerId(1);
const B: WorkerId = WorkerId(2);
const POLL: Duration = Duration::from_secs(1);

fn table() -> Arc<LoadTable> {
    LoadTable::new(POLL, &Metrics::new())
}

fn streamed(work_ms: f64) -> Claim {
    Claim { work_ms: Some(work_ms), streamed: true, ..Claim::default() }
}

fn whole(work_ms: f64) -> Claim {
    Claim { streamed: false, ..streamed(work_ms) }
}

fn unknown() -> Claim {
    Claim { streamed: true, ..Claim::default() }
}

fn keys(of: &[u64]) -> Arc<[SequenceHash]> {
    of.iter().copied().map(SequenceHash).collect()
}

fn sample(running: f64, waiting: f64, kv_usage: f64) -> LoadSample {
    LoadSample { running, waiting, kv_usage }
}

async fn ms(ms: u64) {
    advance(Duration::from_millis(ms)).await;
}

fn backlog(table: &Arc<LoadTable>) -> f64 {
    table.lock().view(A).backlog_ms
}

#[tokio::test(start_paused = true)]
async fn the_head_drains_and_the_rest_waits() {
    let table = table();
    let mut first = table.lock().reserve(A, streamed(100.0));
    let second = table.lock().reserve(A, streamed(50.5));
    assert_eq!(backlog(&table), 150.5);
    ms(30).await;
    assert_eq!(backlog(&table), 120.5);
    // Past its estimate a streamed head counts zero, and the one behind it does not start.
    ms(500).await;
    assert_eq!(backlog(&table), 50.5);
    first.first_token();
    assert_eq!(backlog(&table), 50.5);
    ms(20).await;
    assert_eq!(backlog(&table), 30.5);
    // A first token before the estimate removes all of what was left.
    drop(second);
    assert_eq!(backlog(&table), 0.0);
    assert_eq!(table.lock().view(A).own_in_flight, 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_behind_the_head_leaves_the_heads_clock_alone() {
    let table = table();
    let _first = table.lock().reserve(A, streamed(100.0));
    let mut second = table.lock().reserve(A, streamed(50.0));
    ms(40).await;
    second.first_token();
    assert_eq!(backlog(&table), 60.0);
    // One that comes to a queue whose head is drained waits whole.
    ms(100).await;
    let _third = table.lock().reserve(A, streamed(7.0));
    assert_eq!(backlog(&table), 7.0);
}

#[tokio::test(start_paused = true)]
async fn reports_count_from_when_they_were_made() {
    let table = table();
    let mut first = table.lock().reserve(A, streamed(100.0));
    let _second = table.lock().reserve(A, streamed(50.0));
    ms(10).await;
    first.first_token();
    ms(20).await;
    // Nobody looked at the table in between; the second is head since its predecessor's token.
    assert_eq!(backlog(&table), 30.0);
}

#[tokio::test(start_paused = true)]
async fn whole_heads_leave_after_their_work_one_by_one() {
    let table = table();
    let _held: Vec<_> = [10.0, 20.0, 40.0].map(|work| table.lock().reserve(A, whole(work))).into();
    ms(25).await;
    let view = table.lock().view(A);
    // 10 left at t=10, 20 has been worked on for 15 since.
    assert_eq!((view.backlog_ms, view.own_without_token, view.own_in_flight), (45.0, 2, 3));
    ms(25).await;
    assert_eq!(backlog(&table), 20.0);
    ms(50).await;
    let view = table.lock().view(A);
    assert_eq!((view.backlog_ms, view.own_without_token, view.own_in_flight), (0.0, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_streamed_request_holds_up_whole_ones_behind_it() {
    let table = table();
    let mut head = table.lock().reserve(A, streamed(10.0));
    let _behind = table.lock().reserve(A, whole(20.0));
    ms(100).await;
    assert_eq!(backlog(&table), 20.0);
    head.first_token();
    ms(15).await;
    assert_eq!(backlog(&table), 5.0);
    ms(5).await;
    assert_eq!(table.lock().view(A).own_without_token, 0);
}

#[tokio::test(start_paused = true)]
async fn unknown_work_is_counted_and_not_queued() {
    let table = table();
    let mut first = table.lock().reserve(A, unknown());
    let second = table.lock().reserve(A, unknown());
    let _third = table.lock().reserve(A, streamed(10.0));
    let view = table.lock().view(A);
    assert_eq!((view.own_untracked, view.own_without_token, view.backlog_ms), (2, 3, 10.0));
    first.first_token();
    first.first_token();
    drop(second);
    let view = table.lock().view(A);
    assert_eq!((view.own_untracked, view.own_without_token, view.own_in_flight), (0, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn scraped_waiting_counts_without_our_own() {
    let table = table();
    let mut first = table.lock().reserve(A, streamed(10.0));
    let _second = table.lock().reserve(A, unknown());
    table.record_scrape(A, sample(3.0, 7.0, 0.5));
    let _third = table.lock().reserve(A, streamed(10.0));
    // What we did since the scrape does not change what the scrape said of others.
    first.first_token();
    let view = table.lock().view(A);
    assert_eq!((view.queue, view.running, view.kv_usage), (5.0, 4.0, 0.5));
    assert_eq!(view.freshness, Freshness::Fresh);
    table.record_scrape(A, sample(3.0, 1.0, 0.5));
    assert_eq!(table.lock().view(A).queue, 0.0);
    assert_eq!(table.lock().view(A).running, 3.0);
}

#[tokio::test(start_paused = true)]
async fn running_counts_what_was_dispatched_since_the_scrape_and_lives() {
    let table = table();
    let before = table.lock().reserve(A, streamed(1.0));
    // Never scraped: all of our own, and zeros for what a scrape would say.
    let view = table.lock().view(A);
    assert_eq!((view.freshness, view.running, view.queue, view.kv_usage), (Freshness::Never, 1.0, 0.0, 0.0));
    table.record_scrape(A, sample(10.0, 0.0, 0.0));
    let after = table.lock().reserve(A, streamed(1.0));
    assert_eq!(table.lock().view(A).running, 11.0);
    drop(before);
    assert_eq!(table.lock().view(A).running, 10.0, "the scrape saw it");
    drop(after);
    assert_eq!(table.lock().view(A).running, 9.0, "the scrape did not");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_our_last_request_left_is_idle_before_the_next_scrape() {
    let table = table();
    let all = [(); 3].map(|()| table.lock().reserve(A, streamed(1.0)));
    table.record_scrape(A, sample(1.0, 2.0, 0.0));
    let [one, two, three] = all;
    // Two waited: those may be the ones that ended.
    drop((one, two));
    assert_eq!(table.lock().view(A).running, 1.0);
    drop(three);
    assert_eq!(table.lock().view(A).running, 0.0);
    table.record_scrape(A, sample(4.0, 0.0, 0.0));
    assert_eq!(table.lock().view(A).running, 4.0, "others'");
}

#[tokio::test(start_paused = true)]
async fn stale_load_is_the_worst_of_the_fleet() {
    let table = table();
    table.record_scrape(A, sample(1.0, 2.0, 0.9));
    let _own = table.lock().reserve(A, streamed(0.0));
    for (seconds, want) in
        [(1, Freshness::Fresh), (1, Freshness::Fresh), (1, Freshness::Kept), (2, Freshness::Kept)]
    {
        ms(seconds * 1000).await;
        table.record_scrape(B, sample(5.0, 9.0, 0.25));
        let view = table.lock().view(A);
        assert_eq!((view.freshness, view.queue, view.kv_usage), (want, 2.0, 0.9));
    }
    ms(1).await;
    let view = table.lock().view(A);
    assert_eq!((view.freshness, view.queue, view.kv_usage), (Freshness::Stale, 9.0, 0.9));
    assert_eq!(view.running, 6.0, "the worst scraped, and our own since our last scrape");
    // Back to its own values with the next scrape.
    table.record_scrape(A, sample(0.0, 0.0, 0.0));
    let view = table.lock().view(A);
    assert_eq!((view.freshness, view.queue, view.running), (Freshness::Fresh, 0.0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn stale_load_keeps_its_own_when_nobody_is_fresh() {
    let table = table();
    table.record_scrape(A, sample(1.0, 2.0, 0.3));
    table.record_scrape(B, sample(9.0, 9.0, 0.9));
    ms(6000).await;
    let view = table.lock().view(A);
    assert_eq!((view.queue, view.running, view.kv_usage), (2.0, 1.0, 0.3));
}

#[tokio::test(start_paused = true)]
async fn hostile_numbers_are_clamped() {
    let table = table();
    let hold = [f64::NAN, f64::INFINITY, -5.0, 1e300].map(|work| table.lock().reserve(A, streamed(work)));
    assert_eq!(backlog(&table), 2.0 * 3_600_000.0);
    drop(hold);
    table.record_scrape(A, sample(f64::NAN, -3.0, 1e18));
    let view = table.lock().view(A);
    assert_eq!((view.running, view.queue, view.kv_usage), (0.0, 0.0, 1.0));
    table.record_scrape(A, sample(1e18, f64::INFINITY, f64::NAN));
    let view = table.lock().view(A);
    assert_eq!((view.running, view.queue, view.kv_usage), (1e6, 1e6, 0.0));
}

#[tokio::test(start_paused = true)]
async fn moved_load_joins_the_end_of_the_other_queue() {
    let table = table();
    let mut moved = table.lock().reserve(A, streamed(100.0));
    let _there = table.lock().reserve(B, streamed(30.0));
    ms(10).await;
    moved.move_to(B);
    assert_eq!(moved.worker(), B);
    let pick = table.lock();
    assert_eq!((pick.view(A).backlog_ms, pick.view(A).own_in_flight, pick.view(A).running), (0.0, 0, 0.0));
    assert_eq!((pick.view(B).backlog_ms, pick.view(B).own_in_flight), (120.0, 2));
    drop(pick);
    // One that has its token moves without coming back to life.
    moved.first_token();
    moved.move_to(A);
    let view = table.lock().view(A);
    assert_eq!((view.own_in_flight, view.own_without_token, view.backlog_ms), (1, 0, 0.0));
    drop(moved);
    assert_eq!(table.lock().view(A), LoadView::default());
}

#[tokio::test(start_paused = true)]
async fn expected_is_the_longest_prefix_that_is_still_prefilled() {
    let table = table();
    let claim = |of: &[u64]| Claim { keys: Some(keys(of)), ..streamed(5.0) };
    let mut long = table.lock().reserve(A, claim(&[1, 2, 3, 40]));
    let _short = table.lock().reserve(A, claim(&[1, 2, 30]));
    let asked =
        BlockKeys { block_size: 16, tokens: 80, sequence: keys(&[1, 2, 3, 4, 5]), ..Default::default() };
    let expected = |worker, confirmed| table.lock().expected(worker, &asked, confirmed);
    assert_eq!((expected(A, 0), expected(A, 3), expected(A, 4), expected(B, 1)), (3, 3, 4, 1));
    long.first_token();
    assert_eq!(expected(A, 1), 2);
    let _same = table.lock().reserve(B, claim(&[1, 2, 3, 4, 5]));
    assert_eq!(expected(B, 0), 5);
    let _other = table.lock().reserve(A, claim(&[]));
    assert_eq!(expected(A, 0), 2);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_worker_keeps_what_is_in_flight_there() {
    let table = table();
    let held = table.lock().reserve(A, streamed(10.0));
    table.record_scrape(A, sample(4.0, 4.0, 0.4));
    table.forget(A);
    table.forget(B);
    let view = table.lock().view(A);
    assert_eq!((view.freshness, view.running, view.own_in_flight), (Freshness::Never, 1.0, 1));
    drop(held);
    assert_eq!(table.lock().view(A), LoadView::default());
}

#[tokio::test(start_paused = true)]
async fn a_reservation_may_be_dropped_under_the_lock() {
    let table = table();
    let mut pick = table.lock();
    let mut made = pick.reserve(A, streamed(10.0));
    made.first_token();
    drop(made);
    drop(pick);
    assert_eq!(table.lock().view(A), LoadView::default());
}
