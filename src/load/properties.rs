//! The load table against a plain model, and under threads: whatever happens, the books come out even.

use std::{sync::Arc, thread, time::Duration};

use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::{observe::Metrics, types::WorkerId};

const WORKERS: u64 = 3;

#[derive(Clone, Debug)]
enum Step {
    Reserve { worker: u64, work: Option<u64>, streamed: bool },
    Token(usize),
    Move(usize, u64),
    Drop(usize),
    Scrape(u64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let worker = 0..WORKERS;
    prop_oneof![
        4 => (worker.clone(), proptest::option::weighted(0.8, 0..40u64), any::<bool>())
            .prop_map(|(worker, work, streamed)| Step::Reserve { worker, work, streamed }),
        2 => any::<usize>().prop_map(Step::Token),
        1 => (any::<usize>(), worker.clone()).prop_map(|(at, to)| Step::Move(at, to)),
        2 => any::<usize>().prop_map(Step::Drop),
        1 => worker.prop_map(Step::Scrape),
        3 => (0..30u64).prop_map(Step::Wait),
    ]
}

/// One request of the model; the order of `Model::all` is the order of arrival on its worker.
struct Known {
    id: usize,
    worker: u64,
    left: Option<u64>,
    streamed: bool,
    prefills: bool,
}

#[derive(Default)]
struct Model {
    all: Vec<Known>,
}

impl Model {
    fn of(&self, worker: u64) -> impl Iterator<Item = &Known> {
        self.all.iter().filter(move |k| k.worker == worker)
    }

    /// Lets whole requests leave that have nothing left to do and stand at the head.
    fn settle(&mut self) {
        for worker in 0..WORKERS {
            while let Some(head) = self.head(worker)
                && !head.streamed
                && head.left == Some(0)
            {
                head.prefills = false;
            }
        }
    }

    fn head(&mut self, worker: u64) -> Option<&mut Known> {
        self.all.iter_mut().find(|k| k.worker == worker && k.prefills && k.left.is_some())
    }

    /// A millisecond goes by.
    fn tick(&mut self) {
        self.settle();
        for worker in 0..WORKERS {
            if let Some(left) = self.head(worker).and_then(|head| head.left.as_mut()) {
                *left = left.saturating_sub(1);
            }
        }
        self.settle();
    }

    fn find(&mut self, id: usize) -> Option<usize> {
        self.all.iter().position(|k| k.id == id)
    }

    fn check(&self, table: &Arc<LoadTable>) -> Result<(), TestCaseError> {
        let pick = table.lock();
        for worker in 0..WORKERS {
            let view = pick.view(WorkerId(worker));
            let prefilling = || self.of(worker).filter(|k| k.prefills);
            prop_assert_eq!(view.own_in_flight as usize, self.of(worker).count());
            prop_assert_eq!(view.own_without_token as usize, prefilling().count());
            prop_assert_eq!(view.own_untracked as usize, prefilling().filter(|k| k.left.is_none()).count());
            let left: u64 = prefilling().filter_map(|k| k.left).sum();
            prop_assert_eq!(view.backlog_ms, left as f64, "worker {}", worker);
        }
        Ok(())
    }
}

/// A request is moved with its work as it was claimed: the model keeps that beside each reservation.
struct Run {
    table: Arc<LoadTable>,
    model: Model,
    held: Vec<(usize, Option<u64>, Reservation)>,
    made: usize,
}

impl Run {
    async fn apply(&mut self, step: Step) {
        match step {
            Step::Reserve { worker, work, streamed } => {
                let claim = Claim { work_ms: work.map(|w| w as f64), streamed, ..Claim::default() };
                let reservation = self.table.lock().reserve(WorkerId(worker), claim);
                self.held.push((self.made, work, reservation));
                self.model.all.push(Known { id: self.made, worker, left: work, streamed, prefills: true });
                self.made += 1;
            }
            Step::Scrape(worker) => self.table.record_scrape(WorkerId(worker), LoadSample::default()),
            Step::Wait(ms) => {
                tokio::time::advance(Duration::from_millis(ms)).await;
                (0..ms).for_each(|_| self.model.tick());
            }
            Step::Token(_) | Step::Move(..) | Step::Drop(_) if self.held.is_empty() => {}
            Step::Token(at) => {
                let at = at % self.held.len();
                let (id, _, reservation) = &mut self.held[at];
                reservation.first_token();
                if let Some(found) = self.model.find(*id) {
                    self.model.all[found].prefills = false;
                }
            }
            Step::Move(at, to) => {
                let at = at % self.held.len();
                let (id, work, reservation) = &mut self.held[at];
                let stays = reservation.worker() == WorkerId(to);
                reservation.move_to(WorkerId(to));
                if let Some(found) = self.model.find(*id).filter(|_| !stays) {
                    let known = self.model.all.remove(found);
                    self.model.all.push(Known { worker: to, left: *work, ..known });
                }
            }
            Step::Drop(at) => {
                let (id, ..) = self.held.swap_remove(at % self.held.len());
                self.model.all.retain(|k| k.id != id);
            }
        }
        self.model.settle();
    }
}

proptest! {
    #[test]
    fn the_table_is_what_a_plain_model_says(steps in proptest::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let table = LoadTable::new(Duration::from_secs(1), &Metrics::new());
            let mut run = Run { table, model: Model::default(), held: Vec::new(), made: 0 };
            for step in steps {
                // Reports of several steps are settled at one look, as under traffic.
                let looks = matches!(step, Step::Scrape(_));
                run.apply(step).await;
                if looks {
                    run.model.check(&run.table)?;
                }
            }
            run.model.check(&run.table)?;
            run.held.clear();
            (0..WORKERS).for_each(|worker| run.table.forget(WorkerId(worker)));
            for worker in 0..WORKERS {
                prop_assert_eq!(run.table.lock().view(WorkerId(worker)), LoadView::default());
            }
            Ok(())
        })?;
    }

    #[test]
    fn clamped_samples_stay_in_range(numbers in any::<[f64; 3]>()) {
        let [running, waiting, kv_usage] = numbers;
        let sane = LoadSample { running, waiting, kv_usage }.clamped();
        prop_assert!((0.0..=1e6).contains(&sane.running) && (0.0..=1e6).contains(&sane.waiting));
        prop_assert!((0.0..=1.0).contains(&sane.kv_usage));
    }
}

#[test]
fn ten_thousand_reservations_under_threads_leave_zero() {
    let table = LoadTable::new(Duration::from_secs(1), &Metrics::new());
    thread::scope(|scope| {
        for seed in 0..8 {
            let table = &table;
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed);
                let mut held = Vec::new();
                for _ in 0..1250 {
                    let work_ms = random.random_bool(0.8).then(|| random.random_range(0.0..0.1));
                    let claim = Claim { work_ms, streamed: random.random(), ..Claim::default() };
                    let worker = WorkerId(random.random_range(0..WORKERS));
                    held.push(table.lock().reserve(worker, claim));
                    let at = random.random_range(0..held.len());
                    match random.random_range(0..5) {
                        0 => held[at].first_token(),
                        1 => held[at].move_to(WorkerId(random.random_range(0..WORKERS))),
                        2 => table.record_scrape(worker, LoadSample::default()),
                        _ => drop(held.swap_remove(at)),
                    }
                }
            });
        }
    });
    (0..WORKERS).for_each(|worker| table.forget(WorkerId(worker)));
    for worker in 0..WORKERS {
        assert_eq!(table.lock().view(WorkerId(worker)), LoadView::default());
    }
}
