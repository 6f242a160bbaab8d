//! The workers as last told, and whether that is still true. Pure.

use std::collections::BTreeMap;

use kinference::serve::proto::{Worker, watch_workers_response::Update};

use crate::workers::is_up;

/// News.
#[derive(Debug)]
pub enum Told {
    /// The server's.
    Update(Box<Update>),
    /// The server does not answer; says why.
    Lost(String),
}

/// What is known.
#[derive(Debug)]
pub struct Fleet {
    /// Whose workers they are.
    pub title: String,
    /// By worker_id_num.
    pub workers: BTreeMap<u64, Worker>,
    /// Why what is shown may be old.
    pub lost: Option<String>,
}

/// Sums over the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Workers that take requests.
    pub up: usize,
    /// Our requests in flight.
    pub in_flight: u32,
    /// Requests that wait.
    pub queue: f64,
    /// Requests that run.
    pub running: f64,
}

impl Fleet {
    /// Nothing is known yet.
    pub fn new(title: String) -> Self {
        Self { title, workers: BTreeMap::new(), lost: None }
    }

    /// Takes news in.
    pub fn told(&mut self, told: Told) {
        let update = match told {
            Told::Update(update) => *update,
            Told::Lost(why) => {
                self.lost = Some(why);
                return;
            }
        };
        self.lost = None;
        match update {
            Update::Snapshot(all) => {
                self.workers = all.workers.into_iter().map(|worker| (worker.worker_num, worker)).collect();
            }
            Update::Changed(worker) => {
                self.workers.insert(worker.worker_num, worker);
            }
            Update::Removed(name) => self.workers.retain(|_, worker| worker.worker_id != name),
        }
    }

    /// Sums over the workers.
    pub fn totals(&self) -> Totals {
        let mut out = Totals::default();
        for worker in self.workers.values() {
            let load = worker.load.unwrap_or_default();
            out.up += usize::from(is_up(worker));
            out.in_flight += load.in_flight;
            out.queue += load.queue;
            out.running += load.running;
        }
        out
    }
}
