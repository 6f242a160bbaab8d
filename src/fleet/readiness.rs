//! Whether the router can do its work, in words: one answer for `/readyz` and for gRPC health.

use super::{KvState, Member, Snapshot};

/// The answer, as `/readyz` gives it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Readiness {
    /// At least one worker that is not cordoned is synced, or known to be live-only.
    pub ready: bool,
    /// Why not, or what is missing all the same.
    pub reasons: Vec<String>,
}

/// Asks the fleet. In mock mode any worker will do that is not cordoned.
pub fn readiness(fleet: &Snapshot, mock: bool) -> Readiness {
    if fleet.is_empty() {
        return Readiness { ready: false, reasons: vec!["no worker is known".into()] };
    }
    let reasons: Vec<String> = fleet.values().filter_map(|m| lacks(m, mock)).collect();
    Readiness { ready: reasons.len() < fleet.len(), reasons }
}

fn lacks(member: &Member, mock: bool) -> Option<String> {
    let name = &member.worker.name;
    if member.cordoned() {
        return Some(format!("{name}: cordoned"));
    }
    if mock {
        return None;
    }
    match &**member.status.kv.load() {
        KvState::Synced | KvState::LiveOnly => None,
        KvState::Unknown => Some(format!("{name}: no KV events yet")),
        KvState::Replaying => Some(format!("{name}: its KV events are being replayed")),
        KvState::Disconnected => Some(format!("{name}: its KV-event socket is not reached")),
        KvState::Evicted(why) => Some(format!("{name}: evicted: {why}")),
    }
}
