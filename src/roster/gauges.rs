//! The fleet in metrics: read off the workers at every scrape, so that one that left has no series.
//!
//! Invariant: all series of one scrape are of one snapshot. Seconds, shares of 0 to 1.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use prometheus::{
    GaugeVec, IntCounterVec, IntGaugeVec, Opts, Result,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use super::Roster;
use crate::{fleet::Member, load::LoadView, observe::Metrics};

/// The state of a worker that takes requests; the others are those of `RemovedReason`.
const READY: &str = "ready";

impl Roster {
    /// Registers the fleet's metrics. Once a process.
    pub fn register(self, metrics: &Metrics) {
        match Gauges::new(self) {
            Ok(gauges) => metrics.add(gauges),
            Err(error) => tracing::error!(%error, "the metrics of the fleet are not shown"),
        }
    }
}

struct Gauges {
    roster: Roster,
    sets: Sets,
    workers: Workers,
    /// One scrape at a time: the families are emptied and filled anew.
    scrape: Mutex<()>,
}

/// By worker set.
struct Sets {
    states: IntGaugeVec,
    kv_events: IntGaugeVec,
}

/// By worker.
struct Workers {
    ready: IntGaugeVec,
    ended: IntCounterVec,
    in_flight: IntGaugeVec,
    prefilling: IntGaugeVec,
    backlog: GaugeVec,
    queued: GaugeVec,
    running: GaugeVec,
    kv_usage: GaugeVec,
    kv_blocks: IntGaugeVec,
    scrape_age: GaugeVec,
}

impl Gauges {
    /// # Errors
    /// None: the names are constants.
    fn new(roster: Roster) -> Result<Self> {
        Ok(Self { roster, sets: Sets::new()?, workers: Workers::new()?, scrape: Mutex::default() })
    }

    fn all(&self) -> Vec<&dyn Collector> {
        let Workers { ready, ended, in_flight, prefilling, backlog, .. } = &self.workers;
        let Workers { queued, running, kv_usage, kv_blocks, scrape_age, .. } = &self.workers;
        vec![
            &self.sets.states,
            &self.sets.kv_events,
            ready,
            ended,
            in_flight,
            prefilling,
            backlog,
            queued,
            running,
            kv_usage,
            kv_blocks,
            scrape_age,
        ]
    }
}

impl Collector for Gauges {
    fn desc(&self) -> Vec<&Desc> {
        self.all().into_iter().flat_map(|one| one.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _one = self.scrape.lock();
        self.sets.reset();
        self.workers.reset();
        let (fleet, loads) = self.roster.loads();
        for (member, load) in fleet.values().zip(&loads) {
            self.workers.show(member, load);
            let blocks = self.roster.index.blocks(member.worker.id);
            for (tier, blocks) in [("gpu", blocks.gpu), ("lower", blocks.lower)] {
                let labels: &[&str] = &[&member.worker.set.name, &member.worker.name, tier];
                self.workers
                    .kv_blocks
                    .with_label_values(labels)
                    .set(i64::try_from(blocks).unwrap_or(i64::MAX));
            }
        }
        let described = self.roster.registry.described();
        self.sets.show(described.sets.iter().chain(&described.awaited), fleet.values());
        self.all().into_iter().flat_map(Collector::collect).collect()
    }
}

impl Sets {
    fn new() -> Result<Self> {
        let gauges = |name, help| IntGaugeVec::new(Opts::new(name, help), &["workerset", "state"]);
        Ok(Self {
            states: gauges(
                "kinference_workers",
                "Workers that take requests (ready), and those that do not, by why.",
            )?,
            kv_events: gauges(
                "kinference_workers_kv_events",
                "Workers by how far their KV events can be trusted.",
            )?,
        })
    }

    fn reset(&self) {
        self.states.reset();
        self.kv_events.reset();
    }

    /// Of every set that is `known`, be it that it has no workers: none that is ready is a number too.
    fn show<'a>(
        &self,
        known: impl Iterator<Item = &'a Arc<str>>,
        members: impl Iterator<Item = &'a Arc<Member>>,
    ) {
        let mut states: BTreeMap<_, i64> = known.map(|set| ((&**set, READY), 0)).collect();
        let mut kv_events: BTreeMap<_, i64> = BTreeMap::new();
        for member in members {
            let set = &*member.worker.set.name;
            states.entry((set, READY)).or_default();
            *states.entry((set, member.unavailable().map_or(READY, |why| why.label()))).or_default() += 1;
            *kv_events.entry((set, member.status.kv.load().label())).or_default() += 1;
        }
        for (gauges, counts) in [(&self.states, states), (&self.kv_events, kv_events)] {
            for ((set, state), count) in counts {
                gauges.with_label_values(&[set, state]).set(count);
            }
        }
    }
}

impl Workers {
    fn new() -> Result<Self> {
        const LABELS: &[&str] = &["workerset", "worker"];
        let whole = |name, help| IntGaugeVec::new(Opts::new(name, help), LABELS);
        let real = |name, help| GaugeVec::new(Opts::new(name, help), LABELS);
        let ended =
            Opts::new("kinference_worker_requests_total", "Requests that it served and that ended, by how.");
        let blocks =
            Opts::new("kinference_worker_kv_blocks", "Blocks that its KV events say it holds, by tier.");
        Ok(Self {
            ready: whole("kinference_worker_ready", "1: it takes requests.")?,
            ended: IntCounterVec::new(ended, &["workerset", "worker", "outcome"])?,
            in_flight: whole("kinference_worker_in_flight_requests", "Our own requests that it serves.")?,
            prefilling: whole(
                "kinference_worker_prefilling_requests",
                "Of these, those without a first token.",
            )?,
            backlog: real(
                "kinference_worker_backlog_seconds",
                "Their prefill work that is left, as predicted.",
            )?,
            queued: real("kinference_worker_queued_requests", "Requests of others that wait there.")?,
            running: real(
                "kinference_worker_running_requests",
                "Requests that run there, others' and our own.",
            )?,
            kv_usage: real("kinference_worker_kv_usage_ratio", "Share of its KV cache that is in use.")?,
            kv_blocks: IntGaugeVec::new(blocks, &["workerset", "worker", "tier"])?,
            scrape_age: real("kinference_worker_scrape_age_seconds", "Time since its last scrape.")?,
        })
    }

    fn reset(&self) {
        self.ended.reset();
        self.scrape_age.reset();
        [&self.ready, &self.in_flight, &self.prefilling, &self.kv_blocks]
            .iter()
            .for_each(|gauges| gauges.reset());
        [&self.backlog, &self.queued, &self.running, &self.kv_usage].iter().for_each(|gauges| gauges.reset());
    }

    fn show(&self, member: &Member, load: &LoadView) {
        let (set, worker) = (&*member.worker.set.name, &*member.worker.name);
        let labels: &[&str] = &[set, worker];
        self.ready.with_label_values(labels).set(i64::from(member.unavailable().is_none()));
        for (outcome, count) in member.status.ended() {
            self.ended.with_label_values(&[set, worker, outcome.label()]).inc_by(count);
        }
        self.in_flight.with_label_values(labels).set(load.own_in_flight.into());
        self.prefilling.with_label_values(labels).set(load.own_without_token.into());
        self.backlog.with_label_values(labels).set(load.backlog_ms / 1000.0);
        self.queued.with_label_values(labels).set(load.queue);
        self.running.with_label_values(labels).set(load.running);
        self.kv_usage.with_label_values(labels).set(load.kv_usage);
        if let Some(age) = load.age_ms {
            self.scrape_age.with_label_values(labels).set(age / 1000.0);
        }
    }
}

#[cfg(test)]
mod tests;
