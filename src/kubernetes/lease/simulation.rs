//! Replicas with clocks that drift, before an API server that loses, delays and repeats nothing but forgets leases, which
//! somebody edits besides: never two lead at once, and one does soon after faults end. Times are milliseconds of the one true clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use super::machine::{Action, Found, Input, Machine, Now, Record, Terms, Written};

const TERMS: Terms = Terms {
    duration: Duration::from_secs(15),
    grace: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};
/// How long faults go on.
const FAULTS: u64 = 240_000;
/// Until one leads, once all can reach the API server: the lease runs out, is looked at, and requests under way fail.
const HEALED: u64 = 15_000 + 3 * 2_000 + 2 * 3_000 + 2_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request arrives, however late: of a replica, by its number.
    Arrive { replica: usize, request: u64 },
    /// An answer does.
    Answer { replica: usize, request: u64 },
    /// The replica has waited, or gives the request up.
    Wake { replica: usize, request: u64 },
    /// Something goes wrong, or right.
    Fault,
}

struct Replica {
    machine: Machine,
    rate: f64,
    reachable: bool,
    alive: bool,
    /// What it waits for; anything else comes too late.
    request: u64,
    waiting: bool,
    sent: Instant,
}

struct World {
    rng: StdRng,
    start: Instant,
    now: u64,
    events: BTreeSet<(u64, u64, Event)>,
    count: u64,
    asked: BTreeMap<u64, Action>,
    answers: BTreeMap<u64, Input>,
    lease: Option<(u64, Record)>,
    version: u64,
    replicas: Vec<Replica>,
    terms: usize,
}

impl World {
    fn new(seed: u64, replicas: usize) -> Self {
        let mut world = Self {
            rng: StdRng::seed_from_u64(seed),
            start: Instant::now(),
            now: 0,
            events: BTreeSet::new(),
            count: 0,
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            lease: None,
            version: 0,
            replicas: Vec::new(),
            terms: 0,
        };
        (0..replicas).for_each(|_| world.join());
        world.later(1_000, Event::Fault);
        world
    }

    fn later(&mut self, wait: u64, event: Event) {
        self.count += 1;
        self.events.insert((self.now + wait, self.count, event));
    }

    fn join(&mut self) {
        let rate = self.rng.random_range(0.96..1.04);
        let me = format!("replica {}", self.replicas.len());
        self.replicas.push(Replica {
            machine: Machine::new(me, TERMS),
            rate,
            reachable: true,
            alive: true,
            request: 0,
            waiting: false,
            sent: self.start,
        });
        self.step(self.replicas.len() - 1, Input::Woke);
    }

    fn clock(&self, replica: usize) -> Now {
        let ms = self.now as f64 * self.replicas[replica].rate;
        let at = Duration::from_secs_f64(ms / 1000.0);
        // The wall's clock of each is wrong by minutes.
        let off = Duration::from_secs(replica as u64 * 600);
        Now { at: self.start + at, wall: Timestamp::UNIX_EPOCH + at + off }
    }

    fn leaders(&self) -> Vec<usize> {
        let leads = |at: &usize| {
            self.replicas[*at].alive && self.replicas[*at].machine.held(self.clock(*at).at).is_some()
        };
        (0..self.replicas.len()).filter(leads).collect()
    }

    fn step(&mut self, replica: usize, input: Input) {
        let now = self.clock(replica);
        let led = self.replicas[replica].machine.held(now.at).is_some();
        let action = self.replicas[replica].machine.step(input, now);
        let held = self.replicas[replica].machine.held(now.at);
        self.terms += usize::from(held.is_some() && !led);
        self.count += 1;
        let (request, rate) = (self.count, self.replicas[replica].rate);
        let true_ms = |local: Duration| (local.as_secs_f64() * 1000.0 / rate).ceil() as u64;
        let limit = held.map(|end| true_ms(end - now.at));
        let it = &mut self.replicas[replica];
        (it.request, it.sent, it.waiting) = (request, now.at, matches!(action, Action::Wait(_)));
        let wait = match &action {
            Action::Rest => {
                it.alive = false;
                return self.join();
            }
            Action::Wait(until) => true_ms(until.saturating_duration_since(now.at)),
            Action::Read | Action::Write { .. } => true_ms(TERMS.patience()),
        };
        self.later(limit.map_or(wait, |limit| limit.min(wait)), Event::Wake { replica, request });
        if !matches!(action, Action::Wait(_)) {
            self.asked.insert(request, action);
            self.travel(replica, Event::Arrive { replica, request });
        }
    }

    /// Takes a while; in a partition very long, or for ever.
    fn travel(&mut self, replica: usize, event: Event) {
        let wait = match self.replicas[replica].reachable {
            true if self.now >= FAULTS || self.rng.random_bool(0.7) => self.rng.random_range(1..50),
            true => self.rng.random_range(1..1_500),
            false if self.rng.random_bool(0.5) => return,
            false => self.rng.random_range(1_000..40_000),
        };
        self.later(wait, event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { replica, request } => {
                let Some(action) = self.asked.remove(&request) else { return };
                let answer = self.serve(action, self.replicas[replica].sent);
                self.answers.insert(request, answer);
                self.travel(replica, Event::Answer { replica, request });
            }
            Event::Answer { replica, request } => {
                let Some(answer) = self.answers.remove(&request) else { return };
                if self.replicas[replica].alive && self.replicas[replica].request == request {
                    self.step(replica, answer);
                }
            }
            Event::Wake { replica, request } => {
                let it = &self.replicas[replica];
                if !it.alive || it.request != request {
                    return;
                }
                let wrote = matches!(self.asked.get(&request), Some(Action::Write { .. }))
                    || matches!(self.answers.get(&request), Some(Input::Wrote { .. }));
                let input = match (it.waiting, wrote) {
                    (true, _) => Input::Woke,
                    (false, true) => Input::Wrote { sent: it.sent, came: Written::Failed },
                    (false, false) => Input::Read(None),
                };
                self.step(replica, input);
            }
            Event::Fault if self.now < FAULTS => self.fault(),
            Event::Fault => self.heal(),
        }
    }

    /// The API server.
    fn serve(&mut self, action: Action, sent: Instant) -> Input {
        let found = |lease: &Option<(u64, Record)>| match lease {
            Some((version, record)) => Found::Lease { version: version.to_string(), record: record.clone() },
            None => Found::Nothing,
        };
        let Action::Write { record, over } = action else { return Input::Read(Some(found(&self.lease))) };
        let is = self.lease.as_ref().map(|(version, _)| version.to_string());
        if is != over {
            return Input::Wrote { sent, came: Written::Conflict };
        }
        self.version += 1;
        self.lease = Some((self.version, record));
        Input::Wrote { sent, came: Written::Done(found(&self.lease)) }
    }

    fn fault(&mut self) {
        let alive: Vec<_> = (0..self.replicas.len()).filter(|at| self.replicas[*at].alive).collect();
        let it = alive[self.rng.random_range(0..alive.len())];
        match self.rng.random_range(0..14) {
            0..5 => self.replicas[it].reachable = !self.replicas[it].reachable,
            5 => {
                self.replicas[it].alive = false;
                self.join();
            }
            6 => self.step(it, Input::Leave),
            7 => self.lease = None,
            // Somebody labels it.
            8 => self.edit(|_| {}),
            9 => self.edit(|record| record.holder = None),
            10 => self.edit(|record| record.duration = Duration::ZERO),
            11 => self.edit(|record| record.duration = Duration::from_secs(1)),
            12 => self.edit(|record| {
                let (acquired, renewed) = (None, None);
                *record =
                    Record { holder: None, duration: Duration::ZERO, acquired, renewed, transitions: 0 };
            }),
            _ => {}
        }
        let wait = self.rng.random_range(500..12_000);
        self.later(wait, Event::Fault);
    }

    fn edit(&mut self, edit: impl Fn(&mut Record)) {
        self.version += 1;
        self.lease.iter_mut().for_each(|(version, record)| {
            *version = self.version;
            edit(record);
        });
    }

    /// What is still on its way in a partition is lost.
    fn heal(&mut self) {
        self.replicas.iter_mut().for_each(|it| it.reachable = true);
        let soon = self.now + 1_500;
        self.events.retain(|(at, _, event)| *at < soon || matches!(event, Event::Wake { .. }));
    }

    fn run_until(&mut self, end: u64) -> Result<(), TestCaseError> {
        while self.events.first().is_some_and(|(at, ..)| *at <= end) {
            let Some((at, _, event)) = self.events.pop_first() else { break };
            self.now = at;
            self.happen(event);
            let leaders = self.leaders();
            prop_assert!(leaders.len() <= 1, "{leaders:?} lead at {} ms", self.now);
        }
        self.now = end;
        Ok(())
    }
}

proptest! {
    #[test]
    fn never_two_and_soon_one(seed: u64, replicas in 1..5usize) {
        let mut world = World::new(seed, replicas);
        world.run_until(FAULTS)?;
        world.later(0, Event::Fault);
        world.run_until(FAULTS + HEALED)?;
        prop_assert_eq!(world.leaders().len(), 1);
    }
}

/// The property would hold of a world in which nobody ever leads.
#[test]
fn the_simulation_has_many_leaders() {
    let terms = |seed| {
        let mut world = World::new(seed, 3);
        world.run_until(FAULTS).unwrap();
        world.terms
    };
    assert!((0..20).map(terms).sum::<usize>() > 60);
}
