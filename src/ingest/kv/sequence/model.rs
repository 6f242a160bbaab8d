//! A model of an engine, its sockets and the blocks behind the machine, for random histories.
//!
//! Invariant checked on every step: what is applied since the last clear is numbered without a hole.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use super::{Action, Input, Mode, Sequence};

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Command {
    /// The engine publishes: op 0 stores, 1 removes, 2 clears.
    Publish { op: u8, block: u8, lost: bool },
    /// So many live messages arrive.
    Deliver(usize),
    /// So many batches of the replay arrive, then its end.
    Serve(usize),
    /// The engine's ROUTER drops so many.
    DropFromReplay(usize),
    /// The replay socket dies.
    FailReplay,
    /// The connection ends, and both sides know.
    Disconnect,
    /// It is dialled.
    Connect,
    /// The engine restarts; unseen: something between us keeps the connection.
    Restart { seen: bool },
    /// Silence is noticed.
    Suspect,
}

enum Replay {
    Asked(u64),
    Serving(VecDeque<(u64, Bytes)>),
}

/// All of it.
pub struct World {
    machine: Option<Sequence>,
    has_replay: bool,
    /// Batches that the engine keeps for replay.
    kept: usize,
    life: u8,
    log: Vec<Bytes>,
    wire: VecDeque<(u64, Bytes)>,
    subscribed: bool,
    /// After an unseen restart nothing is lost until a message of the new life arrived: a loss that makes
    /// the numbers fit is beyond any receiver.
    lossless: bool,
    replay: Option<Replay>,
    mode: Mode,
    held: BTreeSet<u8>,
    /// Numbers of the first and last batch applied since the last clear.
    applied: Option<(u64, u64)>,
}

fn fold<'a>(log: impl Iterator<Item = &'a Bytes>, held: &mut BTreeSet<u8>) {
    for batch in log {
        match batch[0] {
            0 => drop(held.insert(batch[1])),
            1 => drop(held.remove(&batch[1])),
            _ => held.clear(),
        }
    }
}

fn number(batch: &Bytes) -> u64 {
    u64::from_be_bytes(batch[3..11].try_into().unwrap())
}

impl World {
    pub fn new(has_replay: bool, kept: usize) -> Self {
        Self {
            machine: Some(Sequence::new(has_replay)),
            has_replay,
            kept,
            life: 0,
            log: vec![],
            wire: VecDeque::new(),
            subscribed: false,
            lossless: false,
            replay: None,
            mode: Mode::Disconnected,
            held: BTreeSet::new(),
            applied: None,
        }
    }

    pub fn run(&mut self, command: Command) {
        match command {
            Command::Publish { op, block, lost } => self.publish(op, block, lost),
            Command::Deliver(count) => (0..count).for_each(|_| self.deliver()),
            Command::Serve(count) => self.serve(count),
            Command::DropFromReplay(count) => self.drop_from_replay(count),
            Command::FailReplay => self.fail_replay(),
            Command::Disconnect => self.disconnect(),
            Command::Connect if !self.subscribed => {
                self.subscribed = true;
                self.step(Input::Connected);
            }
            Command::Restart { seen } => self.restart(seen),
            // Without replay, a restart behind a silent connection may fit by chance: beyond any receiver.
            Command::Suspect if self.has_replay => self.step(Input::Suspect),
            Command::Connect | Command::Suspect => {}
        }
    }

    fn publish(&mut self, op: u8, block: u8, lost: bool) {
        let seq = self.log.len() as u64;
        let mut batch = vec![op, block, self.life];
        batch.extend(seq.to_be_bytes());
        self.log.push(batch.into());
        if self.subscribed && (!lost || self.lossless) {
            self.wire.push_back((seq, self.log[self.log.len() - 1].clone()));
        }
    }

    fn deliver(&mut self) {
        if let Some((seq, payload)) = self.wire.pop_front() {
            self.lossless &= payload[2] != self.life;
            self.step(Input::Live { seq, payload });
        }
    }

    fn serve(&mut self, count: usize) {
        if let Some(Replay::Asked(from)) = self.replay {
            let oldest = self.log.len().saturating_sub(self.kept) as u64;
            let numbered = (0u64..).zip(self.log.iter().cloned());
            self.replay = Some(Replay::Serving(numbered.filter(|(n, _)| *n >= from.max(oldest)).collect()));
        }
        for _ in 0..count {
            let Some(Replay::Serving(left)) = &mut self.replay else { return };
            match left.pop_front() {
                Some((seq, payload)) => self.step(Input::ReplayBatch { seq, payload }),
                None => {
                    self.replay = None;
                    self.step(Input::ReplayEnd);
                }
            }
        }
    }

    fn drop_from_replay(&mut self, count: usize) {
        if let Some(Replay::Serving(left)) = &mut self.replay {
            // What is dropped is a hole, not an end: else nobody could know.
            let droppable = left.len().saturating_sub(1).min(count);
            left.drain(..droppable);
        }
    }

    fn fail_replay(&mut self) {
        if self.replay.take().is_some() {
            self.step(Input::ReplayFailed);
        }
    }

    fn disconnect(&mut self) {
        if self.subscribed {
            self.hang_up();
            self.step(Input::Disconnected);
        }
    }

    fn hang_up(&mut self) {
        self.subscribed = false;
        self.lossless = false;
        self.wire.clear();
    }

    fn restart(&mut self, seen: bool) {
        if seen {
            self.disconnect();
        } else {
            self.fail_replay();
            self.lossless = self.subscribed;
        }
        self.life += 1;
        self.log.clear();
    }

    fn step(&mut self, input: Input) {
        let (machine, actions) = self.machine.take().unwrap().step(input);
        self.machine = Some(machine);
        for action in actions {
            match action {
                Action::Clear => {
                    self.held.clear();
                    self.applied = None;
                }
                Action::Apply(batch) => {
                    let seq = number(&batch);
                    if let Some((_, last)) = self.applied {
                        assert_eq!(seq, last + 1, "a hole in what is applied");
                    }
                    self.applied = Some((self.applied.map_or(seq, |(first, _)| first), seq));
                    fold(std::iter::once(&batch), &mut self.held);
                }
                Action::StartReplay { from } => {
                    assert!(self.has_replay && self.subscribed);
                    self.replay = Some(Replay::Asked(from));
                }
                Action::Redial => {
                    self.hang_up();
                    self.replay = None;
                }
                Action::Enter(mode) => {
                    if mode != Mode::Replaying {
                        self.replay = None;
                    }
                    self.mode = mode;
                }
                Action::Gap | Action::Restarted => {}
            }
        }
    }

    /// One last message that is not lost, and all that is under way arrives.
    pub fn settle(&mut self) {
        self.run(Command::Connect);
        self.publish(0, 9, false);
        for _ in 0..10_000 {
            if self.wire.is_empty() && self.replay.is_none() {
                return;
            }
            self.deliver();
            self.serve(1);
        }
        panic!("it never comes to rest");
    }

    pub fn check(&self) {
        let mut truth = BTreeSet::new();
        fold(self.log.iter(), &mut truth);
        assert!(self.held.is_subset(&truth), "ghosts: {:?} of {truth:?}", self.held);
        match self.mode {
            Mode::LiveOnly => {}
            Mode::Synced => {
                let (first, last) = self.applied.expect("at least the last message");
                assert_eq!(last + 1, self.log.len() as u64);
                assert!(first == 0 || self.log.len() > self.kept, "more could be had");
                let mut had = BTreeSet::new();
                let first = usize::try_from(first).unwrap();
                fold(self.log[first..].iter(), &mut had);
                assert_eq!(self.held, had);
            }
            mode => panic!("at rest in {mode:?}"),
        }
    }
}
