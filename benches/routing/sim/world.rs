//! The simulation: engines of vllm-sim's model under a virtual clock, requests through one arm.
//!
//! Owner of the clock and of the engines. One event at a time, in order of time, then of making: the same plan, arm and
//! seed give the same run. Engine events reach the router [`KV_LAG`] after their step, scrapes every second.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use crate::{
    arms::{Arm, Seen},
    engine::{
        CacheEvent, Engine, EngineConfig,
        hash::Salts,
        sequence::{Arrival, RequestId, Vocabulary},
        timing::Preset,
    },
    workload::Session,
};

/// From the end of an engine's step to our index: encoding, a socket, decoding.
pub const KV_LAG: Duration = Duration::from_millis(5);
const SCRAPE: Duration = Duration::from_millis(1000);
const BLOCK: usize = 16;

/// What a request came to.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    pub ttft: Duration,
    pub prompt: usize,
    pub cached: usize,
}

/// What happens next.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A turn of a session is sent.
    Send { session: usize, turn: usize },
    /// An engine's step ends.
    Step(usize),
    /// The router hears of the oldest batch of an engine.
    Told(usize),
    /// All engines are scraped.
    Scrape,
}

/// A request under way.
struct Flight {
    session: usize,
    turn: usize,
    engine: usize,
    sent: Duration,
    prompt: Vec<u32>,
    answer: Vec<u32>,
}

/// Engines, as the oracle may look at them.
#[derive(Clone)]
pub struct Slot {
    pub engine: Engine,
    /// When the running step ends.
    pub until: Option<Duration>,
}

/// See the file's head.
pub struct World {
    now: Duration,
    slots: Vec<Slot>,
    due: BinaryHeap<Reverse<(Duration, u64, Due)>>,
    made: u64,
    batches: Vec<std::collections::VecDeque<Vec<CacheEvent>>>,
    flights: BTreeMap<u64, Flight>,
    served: Vec<Served>,
    /// When the last first token came.
    last: Duration,
    plan: Vec<Session>,
    /// Turns that have not ended.
    open: usize,
}

/// The engine that a preset describes, with vllm-sim's defaults.
pub fn engine(preset: Preset, seed: u64) -> Engine {
    let profile = preset.profile();
    let config = EngineConfig {
        block_size: BLOCK,
        num_blocks: (profile.cache_tokens / BLOCK as u64) as u32,
        max_num_seqs: 64,
        max_batched_tokens: 2048,
        timing: profile.timing,
        seed,
    };
    let vocabulary: Vec<u32> = (100..4196).collect();
    let vocabulary = Vocabulary::new(&vocabulary).unwrap_or_else(|| unreachable!("it has tokens"));
    Engine::new(config, vocabulary)
}

impl World {
    /// Idle engines, and what will be sent to them.
    pub fn new(preset: Preset, engines: usize, plan: Vec<Session>) -> Self {
        let slots =
            (0..engines as u64).map(|seed| Slot { engine: engine(preset, seed), until: None }).collect();
        let mut world = Self {
            now: Duration::ZERO,
            slots,
            due: BinaryHeap::new(),
            made: 0,
            batches: (0..engines).map(|_| Default::default()).collect(),
            flights: BTreeMap::new(),
            served: Vec::new(),
            last: Duration::ZERO,
            open: plan.iter().map(|session| session.turns.len()).sum(),
            plan,
        };
        for session in 0..world.plan.len() {
            world.at(world.plan[session].at, Due::Send { session, turn: 0 });
        }
        world.at(Duration::ZERO, Due::Scrape);
        world
    }

    fn at(&mut self, when: Duration, due: Due) {
        self.made += 1;
        self.due.push(Reverse((when, self.made, due)));
    }

    /// Plays the whole plan: one entry a request, and when the last first token came.
    pub async fn run(mut self, arm: &mut Arm) -> (Vec<Served>, Duration) {
        while self.open > 0 {
            let Some(Reverse((when, _, due))) = self.due.pop() else { break };
            arm.advance(when - self.now).await;
            self.now = when;
            match due {
                Due::Send { session, turn } => self.send((session, turn, Vec::new()), arm).await,
                Due::Step(engine) => self.step(engine, arm).await,
                Due::Told(engine) => {
                    let batch = self.batches[engine].pop_front().unwrap_or_default();
                    arm.told(engine, batch);
                }
                Due::Scrape => {
                    for (engine, slot) in self.slots.iter().enumerate() {
                        arm.scraped(engine, Seen::of(&slot.engine));
                    }
                    self.at(self.now + SCRAPE, Due::Scrape);
                }
            }
        }
        (self.served, self.last)
    }

    async fn send(&mut self, (session, turn, mut prompt): (usize, usize, Vec<u32>), arm: &mut Arm) {
        let asked = &self.plan[session].turns[turn];
        if turn > 0 && prompt.is_empty() {
            prompt = self.flights.remove(&key(session, turn - 1)).map(Flight::said).unwrap_or_default();
        }
        prompt.extend(asked.parts.iter().flat_map(|part| part.ids()));
        let id = key(session, turn);
        let max_tokens = asked.output_tokens;
        let engine = arm.choose(id, &prompt, (&self.slots, self.now)).await;
        let arrival =
            Arrival { id: RequestId(id), prompt: prompt.clone(), max_tokens, salts: Salts::default() };
        self.slots[engine].engine.submit(arrival);
        let flight = Flight { session, turn, engine, sent: self.now, prompt, answer: Vec::new() };
        self.flights.insert(id, flight);
        self.kick(engine);
    }

    /// Begins the next step of an engine that does nothing.
    fn kick(&mut self, engine: usize) {
        let slot = &mut self.slots[engine];
        if slot.until.is_none()
            && let Some(duration) = slot.engine.begin_step()
        {
            let until = self.now + duration;
            slot.until = Some(until);
            self.at(until, Due::Step(engine));
        }
    }

    async fn step(&mut self, engine: usize, arm: &mut Arm) {
        let slot = &mut self.slots[engine];
        slot.until = None;
        let result = slot.engine.finish_step();
        if !result.events.is_empty() {
            self.batches[engine].push_back(result.events);
            self.at(self.now + KV_LAG, Due::Told(engine));
        }
        for output in result.outputs {
            let Some(flight) = self.flights.get_mut(&output.id.0) else { continue };
            if flight.answer.is_empty() {
                let ttft = self.now - flight.sent;
                self.served.push(Served { ttft, prompt: flight.prompt.len(), cached: output.cached });
                self.last = self.now;
                arm.first_token(output.id.0);
            }
            flight.answer.push(output.token);
            if output.finished {
                arm.finished(output.id.0, flight.engine);
                let (session, turn) = (flight.session, flight.turn);
                self.ended(session, turn);
            }
        }
        self.kick(engine);
    }

    fn ended(&mut self, session: usize, turn: usize) {
        self.open -= 1;
        match self.plan[session].turns.get(turn + 1).map(|next| next.think) {
            Some(think) => self.at(self.now + think, Due::Send { session, turn: turn + 1 }),
            None => drop(self.flights.remove(&key(session, turn))),
        }
    }
}

impl Flight {
    fn said(mut self) -> Vec<u32> {
        self.prompt.append(&mut self.answer);
        self.prompt
    }
}

/// A request's number.
fn key(session: usize, turn: usize) -> u64 {
    (session as u64) << 16 | turn as u64
}
