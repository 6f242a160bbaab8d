//! The answer of an engine's `/kv_event_sources` (vLLM 0.31 and later) into sockets to subscribe to: pure.
//!
//! Invariant: whatever the engine answers, every socket is on the engine's own host: only ports are taken from the
//! answer. An engine that lies can't make us dial anyone else.

mod host;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::{fleet::KvSockets, types::Rank};

pub use host::{BadUrl, Host};

/// Most ranks of one engine.
pub const MAX_RANKS: usize = 64;
/// Ranks are below it: engines number them over all nodes, and each that was ever named costs us a little.
pub const RANKS_END: u32 = 4096;

/// Why an answer can't be used: all that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its /kv_event_sources can't be used: {}", .0.join("; "))]
pub struct BadSources(pub Vec<String>);

/// What is said of one rank. Fields that we have no use for are left out.
#[derive(Deserialize)]
struct Entry {
    enable_kv_cache_events: Option<bool>,
    publisher: Option<String>,
    endpoint: Option<String>,
    replay_endpoint: Option<String>,
}

/// The ports of a rank that publishes.
#[derive(Clone, Copy)]
struct Ports {
    rank: u32,
    events: u16,
    replay: Option<u16>,
}

/// Reads an answer of the engine at `host`. No sockets: it publishes no KV events.
///
/// # Errors
/// All that is wrong with it; then nothing of it is used.
pub fn parse(body: &[u8], host: &Host) -> Result<Vec<KvSockets>, BadSources> {
    let entries: BTreeMap<String, Entry> = serde_json::from_slice(body)
        .map_err(|error| BadSources(vec![format!("not a map of ranks to sources: {error}")]))?;
    if entries.len() > MAX_RANKS {
        return Err(BadSources(vec![format!("{} ranks, at most {MAX_RANKS} are accepted", entries.len())]));
    }
    let mut wrong = vec![];
    let mut ports: Vec<Ports> =
        entries.iter().filter_map(|(rank, entry)| source(rank, entry, (host, &mut wrong))).collect();
    spread(&mut ports, &mut wrong);
    if !wrong.is_empty() {
        return Err(BadSources(wrong));
    }
    let sockets = |ports: Ports| KvSockets {
        rank: Rank(ports.rank),
        events: host.endpoint(ports.events),
        replay: ports.replay.map(|port| host.endpoint(port)),
    };
    Ok(ports.into_iter().map(sockets).collect())
}

/// The ports of one rank; `None` also when it publishes nothing.
fn source(rank: &str, entry: &Entry, (host, wrong): (&Host, &mut Vec<String>)) -> Option<Ports> {
    let number = rank.parse().ok().filter(|number: &u32| *number < RANKS_END && number.to_string() == rank);
    if number.is_none() {
        wrong.push(format!("rank {}: not a number below {RANKS_END}", quoted(rank)));
    }
    match entry.publisher.as_deref().filter(|_| entry.enable_kv_cache_events != Some(false)) {
        None | Some("null") => return None,
        Some("zmq") => {}
        Some(other) => {
            wrong.push(format!(
                "rank {}: publisher {} is none of `zmq`, `null`",
                quoted(rank),
                quoted(other)
            ));
            return None;
        }
    }
    let mut port = |key: &str, endpoint: &str| match host.port_of(endpoint) {
        Ok(port) => Some(port),
        Err(reason) => {
            wrong.push(format!("rank {}: {key} {}: {reason}", quoted(rank), quoted(endpoint)));
            None
        }
    };
    let events = port("endpoint", entry.endpoint.as_deref().unwrap_or_default());
    let replay = entry.replay_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty());
    let replay = replay.map(|endpoint| port("replay_endpoint", endpoint));
    Some(Ports { rank: number?, events: events?, replay: replay.flatten() })
}

/// Makes ports that several ranks name their own. Two ranks can't share a socket: when all name the same one it is
/// the port as configured, to which every rank adds its number.
fn spread(ports: &mut [Ports], wrong: &mut Vec<String>) {
    let Some(first) = ports.first().copied() else { return };
    if ports.len() > 1 && ports.iter().all(|p| (p.events, p.replay) == (first.events, first.replay)) {
        for own in ports.iter_mut() {
            let add = |port: u16| u16::try_from(u32::from(port) + own.rank).ok();
            match (add(own.events), own.replay.map(add)) {
                (Some(events), Some(Some(replay))) => (own.events, own.replay) = (events, Some(replay)),
                (Some(events), None) => own.events = events,
                _ => wrong.push(format!("rank {}: its port would be beyond 65535", own.rank)),
            }
        }
    }
    let mut taken = BTreeSet::new();
    for own in ports.iter() {
        for port in [Some(own.events), own.replay].into_iter().flatten() {
            if !taken.insert(port) {
                wrong.push(format!("rank {}: port {port} is named twice", own.rank));
            }
        }
    }
}

/// Words of the engine as we repeat them: shortened, nothing in them works on a terminal or a log.
fn quoted(text: &str) -> String {
    const MOST: usize = 80;
    let kept: String = text.chars().take(MOST).collect();
    let more = if kept.len() < text.len() { "..." } else { "" };
    format!("`{}{more}`", kept.escape_default())
}
