//! Traffic as the benchmarks have it: prompts without a shared prefix, with one, and of several turns. Seeded.
//!
//! Units: tokens; seconds of virtual time.

use rand::{Rng, SeedableRng, rngs::StdRng};

/// A request that is to arrive.
#[derive(Clone, Debug)]
pub struct Request {
    /// When, in seconds since the start.
    pub at: f64,
    pub prompt: Vec<u32>,
    pub answer: u32,
}

/// What kinds of prompts there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No two prompts share a prefix.
    Control,
    /// A third each: no shared prefix, one of eight long prefixes, turns of a chat.
    Mixed,
}

struct Maker {
    rng: StdRng,
    kind: Kind,
    /// Turns so far of the chats that go on, and when each may go on.
    chats: Vec<(f64, Vec<u32>)>,
}

/// Requests with `gap` seconds between them on average, in the order of their arrival.
pub fn requests(kind: Kind, (count, gap): (usize, f64), seed: u64) -> Vec<Request> {
    let mut maker = Maker { rng: StdRng::seed_from_u64(seed), kind, chats: Vec::new() };
    let mut at = 0.0;
    let mut next = || {
        at += -gap * (1.0 - maker.rng.random::<f64>()).ln();
        maker.request(at, gap)
    };
    (0..count).map(|_| next()).collect()
}

impl Maker {
    fn text(&mut self, tokens: usize) -> Vec<u32> {
        (0..tokens).map(|_| self.rng.random_range(1000..1_000_000)).collect()
    }

    fn request(&mut self, at: f64, gap: f64) -> Request {
        let answer = self.rng.random_range(32..256);
        let kind = if self.kind == Kind::Control { 0 } else { self.rng.random_range(0..3) };
        let prompt = match kind {
            0 => {
                let tokens = self.rng.random_range(512..4096);
                self.text(tokens)
            }
            1 => {
                let prefix = self.rng.random_range(0..8);
                let tokens = self.rng.random_range(128..1024);
                (0..2048).map(|i| prefix * 10_000 + i).chain(self.text(tokens)).collect()
            }
            _ => self.turn(at, gap),
        };
        Request { at, prompt, answer }
    }

    /// The next turn of a chat that has waited for it, or the first of a new one.
    fn turn(&mut self, at: f64, gap: f64) -> Vec<u32> {
        let waited = self.chats.iter().position(|(from, chat)| *from <= at && chat.len() < 8192);
        let mut chat = match waited {
            Some(index) if self.chats.len() >= 8 => self.chats.swap_remove(index).1,
            _ => Vec::new(),
        };
        // What was answered, as far as the prompt knows it, and what is asked now.
        let tokens = self.rng.random_range(256..1024);
        let more = self.text(tokens);
        chat.extend(more);
        self.chats.push((at + gap * 20.0, chat.clone()));
        chat
    }
}
