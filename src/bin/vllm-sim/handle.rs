//! How the HTTP side reaches the engine: requests go in, their tokens come out through a ticket.
//!
//! Requests are told apart by ids that are given here; a dropped `Ticket` aborts what is left of its request.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::engine::{
    Output,
    hash::Salts,
    sequence::{Arrival, RequestId},
};

/// What the engine's driver is asked for.
pub enum Command {
    /// A request, and where its tokens go.
    Submit(Arrival, UnboundedSender<Output>),
    /// Its client went away.
    Abort(RequestId),
    /// `POST /reset_prefix_cache`
    ResetPrefixCache,
}

/// How the rest of the program reaches the engine.
#[derive(Clone)]
pub struct Handle {
    commands: UnboundedSender<Command>,
    next: Arc<AtomicU64>,
    open: Arc<AtomicUsize>,
}

impl Handle {
    /// A handle that sends its commands there.
    pub fn new(commands: UnboundedSender<Command>) -> Self {
        Self { commands, next: Arc::default(), open: Arc::default() }
    }

    /// Queues the prompts of one request; all their tokens come through the ticket.
    pub fn submit(&self, prompts: Vec<Vec<u32>>, max_tokens: u32, salts: &Salts) -> Ticket {
        let count = prompts.len() as u64;
        self.open.fetch_add(prompts.len(), Ordering::Relaxed);
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        let (sender, tokens) = unbounded_channel();
        for (prompt, id) in prompts.into_iter().zip(first..) {
            let arrival = Arrival { id: RequestId(id), prompt, max_tokens, salts: salts.clone() };
            self.send(Command::Submit(arrival, sender.clone()));
        }
        Ticket { first, open: (first..first + count).collect(), tokens, handle: self.clone() }
    }

    /// Prompts whose answers are under way.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Asks for an empty prefix cache.
    pub fn reset_prefix_cache(&self) {
        self.send(Command::ResetPrefixCache);
    }

    fn send(&self, command: Command) {
        // The engine outlives its handles but at the very end, when nobody waits for an answer any more.
        self.commands.send(command).ok();
    }
}

/// A token of a request, and of which of its prompts.
pub struct Token {
    /// Index of the prompt.
    pub choice: usize,
    /// The engine's output.
    pub output: Output,
}

/// A request under way.
pub struct Ticket {
    first: u64,
    open: Vec<u64>,
    tokens: UnboundedReceiver<Output>,
    handle: Handle,
}

impl Ticket {
    /// The next token; `None` after the last one of all.
    pub async fn next(&mut self) -> Option<Token> {
        let output = self.tokens.recv().await?;
        Some(self.note(output))
    }

    /// The next token, if it is there already.
    pub fn ready(&mut self) -> Option<Token> {
        let output = self.tokens.try_recv().ok()?;
        Some(self.note(output))
    }

    /// Whether all tokens have been taken.
    pub fn is_done(&self) -> bool {
        self.open.is_empty()
    }

    fn note(&mut self, output: Output) -> Token {
        let id = output.id.0;
        if output.finished {
            self.open.retain(|&open| open != id);
            self.handle.open.fetch_sub(1, Ordering::Relaxed);
        }
        Token { choice: (id - self.first) as usize, output }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.handle.open.fetch_sub(self.open.len(), Ordering::Relaxed);
        for &id in &self.open {
            self.handle.send(Command::Abort(RequestId(id)));
        }
    }
}
