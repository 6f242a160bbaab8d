//! Runs the engine on the wall clock: commands in, tokens and KV events out.
//!
//! Owner of the engine. One task; everyone else talks to it through a `Handle`.

use std::{
    collections::HashMap,
    time::{SystemTime, UNIX_EPOCH},
};

use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, sleep_until},
};
use tracing::error;

use crate::{
    engine::{CacheEvent, Engine, Output, StepResult, sequence::RequestId},
    handle::{Command, Handle},
    kv_socket::Publisher,
    kv_wire::Wire,
    metrics::EngineMetrics,
    pacer::Pacer,
};

struct Client {
    tokens: UnboundedSender<Output>,
    arrived: Instant,
    last: Option<Instant>,
}

/// The engine and what its steps are reported to.
pub struct Driver {
    engine: Engine,
    pacer: Pacer,
    publisher: Option<Publisher>,
    wire: Wire,
    metrics: EngineMetrics,
    commands: UnboundedReceiver<Command>,
    clients: HashMap<RequestId, Client>,
}

/// What a driver is made of.
pub struct Parts {
    /// The engine.
    pub engine: Engine,
    /// Divides simulated times.
    pub speedup: f64,
    /// Where KV events go, if anywhere.
    pub publisher: Option<Publisher>,
    /// How they are encoded.
    pub wire: Wire,
    /// The series of `/metrics`.
    pub metrics: EngineMetrics,
}

impl Driver {
    /// A driver, and the handle of its engine.
    pub fn new(parts: Parts) -> (Self, Handle) {
        let (sender, commands) = unbounded_channel();
        let Parts { engine, speedup, publisher, wire, metrics } = parts;
        let pacer = Pacer::new(Instant::now(), speedup);
        let driver = Self { engine, pacer, publisher, wire, metrics, commands, clients: HashMap::new() };
        (driver, Handle::new(sender))
    }

    /// Runs until all handles are gone.
    pub async fn run(mut self) {
        loop {
            let step = self.engine.begin_step();
            self.metrics.observe(&self.engine, self.pacer.lost());
            let Some(duration) = step else {
                let Some(command) = self.commands.recv().await else { return };
                self.pacer.restart(Instant::now());
                self.apply(command);
                self.drain();
                continue;
            };
            let due = self.pacer.next(Instant::now(), duration);
            self.take_commands_until(due).await;
            let result = self.engine.finish_step();
            self.report(result).await;
        }
    }

    async fn take_commands_until(&mut self, due: Instant) {
        loop {
            tokio::select! {
                biased;
                () = sleep_until(due) => break,
                Some(command) = self.commands.recv() => self.apply(command),
            }
        }
        // A step that was overdue must not starve those who share the thread.
        tokio::task::yield_now().await;
        self.drain();
    }

    fn drain(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.apply(command);
        }
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Submit(arrival, tokens) => {
                let client = Client { tokens, arrived: Instant::now(), last: None };
                self.clients.insert(arrival.id, client);
                self.engine.submit(arrival);
                self.metrics.waiting(&self.engine);
            }
            Command::Abort(id) => {
                if self.clients.remove(&id).is_some() {
                    self.metrics.aborted();
                }
                self.engine.abort(id);
            }
            Command::ResetPrefixCache => self.engine.reset_prefix_cache(),
        }
    }

    async fn report(&mut self, result: StepResult) {
        self.publish(&result.events).await;
        let now = Instant::now();
        for output in result.outputs {
            let Some(client) = self.clients.get_mut(&output.id) else { continue };
            match client.last.replace(now) {
                None => self.metrics.first_token(now - client.arrived),
                Some(last) => self.metrics.next_token(now - last),
            }
            // A receiver that is gone has sent its abort.
            client.tokens.send(output).ok();
            if output.finished {
                self.metrics.finished(now - client.arrived);
                self.clients.remove(&output.id);
            }
        }
    }

    async fn publish(&mut self, events: &[CacheEvent]) {
        let Some(publisher) = self.publisher.as_mut().filter(|_| !events.is_empty()) else { return };
        let ts = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        match self.wire.encode(ts, events) {
            Ok(payload) => publisher.publish(payload).await,
            Err(error) => error!(%error, "a KV-event batch could not be encoded"),
        }
    }
}
