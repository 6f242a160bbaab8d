//! The sequence machine of one subscription: pure. Inputs are what the sockets said, actions what to do.
//!
//! Invariant: what has been applied since the last [`Action::Clear`] is an unbroken run of the engine's
//! batches, up to the last one applied; knowledge that may lack a removal is cleared, never kept.
//! Loss is known by the numbers alone: PUB/SUB drops silently, and an idle engine says nothing.

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use bytes::Bytes;

use super::{history::History, waiting::Waiting};

/// Replays begun anew in one episode before giving up: holes in a replay (the engine's ROUTER drops what
/// does not fit its queue), restarts under way, buffers overrun.
const MAX_RESTARTS: u32 = 64;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Subscribed on a new connection.
    Connected,
    /// The connection is gone, or could not be made.
    Disconnected,
    /// A live message.
    Live {
        /// Its number.
        seq: u64,
        /// Its payload, not decoded.
        payload: Bytes,
    },
    /// A batch of the running replay.
    ReplayBatch {
        /// Its number.
        seq: u64,
        /// Its payload, not decoded.
        payload: Bytes,
    },
    /// The running replay is complete.
    ReplayEnd,
    /// The running replay failed, or took too long.
    ReplayFailed,
    /// The engine works and the socket is silent: the connection may be dead without our knowing.
    Suspect,
}

/// What to do about it, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Forget all blocks of the worker.
    Clear,
    /// Apply a batch.
    Apply(Bytes),
    /// Ask for a replay; ends the one that runs.
    StartReplay {
        /// The first number asked for.
        from: u64,
    },
    /// Drop the connection and dial anew at once.
    Redial,
    /// The subscription is now in this mode; a replay runs in `Replaying` only.
    Enter(Mode),
    /// Numbers are missing from the live stream.
    Gap,
    /// The engine began to count anew.
    Restarted,
}

/// How far the worker's blocks are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not connected: nothing is known.
    Disconnected,
    /// Being learned.
    Replaying,
    /// Known.
    Synced,
    /// Only from some moment on.
    LiveOnly,
}

#[derive(Clone, Debug)]
enum Phase {
    /// `resume`: the blocks are still good if the engine's next words fit.
    Down { resume: bool },
    /// A replay runs.
    Replaying(Replaying),
    /// `known`: nothing is missing since the first batch that could be had.
    Live { known: bool },
}

#[derive(Clone, Debug)]
struct Replaying {
    from: u64,
    /// The first batch must be one that was applied already: its digest.
    anchor: Option<u64>,
    begun: bool,
    restarts: u32,
    waiting: Waiting,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Sequence {
    has_replay: bool,
    phase: Phase,
    history: History,
    /// The last number seen live on this connection.
    live_last: Option<u64>,
}

impl Sequence {
    /// Not connected yet. `has_replay`: the engine has a replay socket.
    pub fn new(has_replay: bool) -> Self {
        let phase = Phase::Down { resume: false };
        Self { has_replay, phase, history: History::default(), live_last: None }
    }

    /// One step.
    #[must_use]
    pub fn step(mut self, input: Input) -> (Self, Vec<Action>) {
        let mut out = Vec::new();
        match input {
            Input::Connected => self.connected(&mut out),
            Input::Disconnected => self.disconnected(&mut out),
            Input::Suspect => self.suspect(&mut out),
            Input::Live { seq, payload } => self.live(seq, payload, &mut out),
            Input::ReplayBatch { seq, payload } => self.replay_batch(seq, payload, &mut out),
            Input::ReplayEnd => self.replay_end(&mut out),
            Input::ReplayFailed => self.live_only(&mut out),
        }
        (self, out)
    }

    fn connected(&mut self, out: &mut Vec<Action>) {
        self.live_last = None;
        let resume = matches!(self.phase, Phase::Down { resume: true });
        match (self.has_replay, self.history.last(), self.history.anchor()) {
            // From the last batch that we have, not the one after it: only its bytes tell an engine that
            // has nothing new from one that restarted meanwhile.
            (true, Some(from), Some(digest)) if resume => {
                self.phase = Phase::Replaying(Replaying {
                    from,
                    anchor: Some(digest),
                    begun: false,
                    restarts: 0,
                    waiting: Waiting::default(),
                });
                out.extend([Action::Enter(Mode::Replaying), Action::StartReplay { from }]);
            }
            (true, ..) => self.start_over(Waiting::default(), out),
            (false, Some(_), _) if resume => self.phase = Phase::Live { known: false },
            (false, ..) => {
                self.forget(out);
                self.phase = Phase::Live { known: false };
                out.push(Action::Enter(Mode::LiveOnly));
            }
        }
    }

    fn disconnected(&mut self, out: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Down { resume: false }) {
            self.forget(out);
        }
        self.phase = Phase::Down { resume: false };
        out.push(Action::Enter(Mode::Disconnected));
    }

    fn suspect(&mut self, out: &mut Vec<Action>) {
        if let Phase::Live { known } = self.phase {
            self.phase = Phase::Down { resume: known || !self.has_replay };
            out.push(Action::Redial);
        }
    }

    fn live(&mut self, seq: u64, payload: Bytes, out: &mut Vec<Action>) {
        let backward = self.live_last.is_some_and(|last| seq <= last);
        match &mut self.phase {
            Phase::Down { .. } => return,
            Phase::Replaying(_) if backward => self.restarted(seq, payload, out),
            Phase::Replaying(replaying) => replaying.waiting.push(seq, payload),
            Phase::Live { known } => {
                let known = *known;
                let covered = self.history.last().is_some_and(|last| seq <= last);
                let first = !known && self.history.last().is_none();
                if backward || (covered && !self.history.holds(seq, &payload)) {
                    self.restarted(seq, payload, out);
                } else if first || seq == self.history.next() {
                    self.apply_live(seq, payload, out);
                } else if !covered {
                    self.gap(known, (seq, payload), out);
                }
            }
        }
        self.live_last = Some(seq);
    }

    /// The engine counts anew: all it said before is void.
    fn restarted(&mut self, seq: u64, payload: Bytes, out: &mut Vec<Action>) {
        out.push(Action::Restarted);
        if self.has_replay {
            self.start_over(Waiting::one(seq, payload), out);
        } else {
            self.forget(out);
            self.apply_live(seq, payload, out);
        }
    }

    fn gap(&mut self, known: bool, (seq, payload): (u64, Bytes), out: &mut Vec<Action>) {
        out.push(Action::Gap);
        if !self.has_replay {
            self.forget(out);
            self.apply_live(seq, payload, out);
        } else if known && self.history.last().is_some() {
            let from = self.history.next();
            let waiting = Waiting::one(seq, payload);
            self.phase =
                Phase::Replaying(Replaying { from, anchor: None, begun: false, restarts: 0, waiting });
            out.extend([Action::Enter(Mode::Replaying), Action::StartReplay { from }]);
        } else {
            self.start_over(Waiting::one(seq, payload), out);
        }
    }

    fn replay_batch(&mut self, seq: u64, payload: Bytes, out: &mut Vec<Action>) {
        let Phase::Replaying(replaying) = &mut self.phase else { return };
        if let Some(anchor) = replaying.anchor.take() {
            replaying.begun = seq == replaying.from && History::digest(&payload) == anchor;
            if !replaying.begun {
                self.start_over(Waiting::default(), out);
            }
            return;
        }
        let expected = match replaying.begun {
            true => Some(self.history.next()),
            false => Some(replaying.from).filter(|from| *from > 0),
        };
        match expected {
            Some(expected) if seq > expected && replaying.begun => self.resume_at(expected, out),
            Some(expected) if seq != expected => self.start_over(Waiting::default(), out),
            _ => {
                replaying.begun = true;
                self.history.replayed(seq, &payload);
                out.push(Action::Apply(payload));
            }
        }
    }

    fn replay_end(&mut self, out: &mut Vec<Action>) {
        let Phase::Replaying(replaying) = &mut self.phase else { return };
        // The engine does not have what it sent, or what we have of it: it is another one.
        let contradicts = replaying.from > 0 && replaying.waiting.reaches(replaying.from);
        if !replaying.begun && (replaying.anchor.is_some() || contradicts) {
            return self.start_over(Waiting::default(), out);
        }
        while let Some(seq) = replaying.waiting.first() {
            let expected = self.history.next();
            if seq > expected {
                out.push(Action::Gap);
                return self.resume_at(expected, out);
            }
            let Some((seq, payload)) = replaying.waiting.pop() else { break };
            if seq == expected {
                self.history.replayed(seq, &payload);
                out.push(Action::Apply(payload));
            } else if !self.history.holds(seq, &payload) {
                // A number that the replay had with other bytes, or that it no longer has. What waits came
                // before the next replay is asked for, so that one from 0 covers it.
                return self.start_over(Waiting::default(), out);
            }
        }
        self.phase = Phase::Live { known: true };
        out.push(Action::Enter(Mode::Synced));
    }

    /// Replays on from `expected` into what is there.
    fn resume_at(&mut self, expected: u64, out: &mut Vec<Action>) {
        let Phase::Replaying(replaying) = &mut self.phase else { return };
        if replaying.restarts >= MAX_RESTARTS {
            return self.live_only(out);
        }
        replaying.restarts += 1;
        replaying.from = expected;
        replaying.begun = false;
        out.push(Action::StartReplay { from: expected });
    }

    /// Replays everything into a cleared worker.
    fn start_over(&mut self, waiting: Waiting, out: &mut Vec<Action>) {
        let restarts = match &self.phase {
            Phase::Replaying(replaying) => replaying.restarts + 1,
            _ => 0,
        };
        if restarts > MAX_RESTARTS {
            return self.live_only(out);
        }
        if restarts == 0 {
            out.push(Action::Enter(Mode::Replaying));
        }
        self.forget(out);
        self.phase = Phase::Replaying(Replaying { from: 0, anchor: None, begun: false, restarts, waiting });
        out.push(Action::StartReplay { from: 0 });
    }

    /// No replay to be had: on with what is live, without what may lack a removal.
    fn live_only(&mut self, out: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Replaying(_)) {
            return;
        }
        self.forget(out);
        let phase = std::mem::replace(&mut self.phase, Phase::Live { known: false });
        out.push(Action::Enter(Mode::LiveOnly));
        if let Phase::Replaying(Replaying { waiting, .. }) = phase {
            for (seq, payload) in waiting.unbroken_tail() {
                self.apply_live(seq, payload, out);
            }
        }
    }

    fn apply_live(&mut self, seq: u64, payload: Bytes, out: &mut Vec<Action>) {
        self.history.live(seq, &payload);
        out.push(Action::Apply(payload));
    }

    fn forget(&mut self, out: &mut Vec<Action>) {
        self.history = History::default();
        out.push(Action::Clear);
    }
}
