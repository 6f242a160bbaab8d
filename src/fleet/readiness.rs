//! Whether the router can do its work, in words: one answer for `/readyz` and for gRPC health.

use super::{KvState, Member, Registry};

/// The answer, as `/readyz` gives it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Readiness {
    /// At least one worker that is not cordoned is synced, or known to be live-only; or providers can stand in.
    pub ready: bool,
    /// Why not, or what is missing all the same.
    pub reasons: Vec<String>,
}

/// What else there is than the fleet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Besides {
    /// Mock mode: any worker will do that is not cordoned.
    pub mock: bool,
    /// Policies in force have a provider that requests can be sent to.
    pub providers: bool,
    /// What is declared as policies is not all known yet.
    pub policies_unknown: bool,
    /// It is shutting down.
    pub draining: bool,
}

/// Asks the fleet. Providers stand in for workers that are not there or not reached, but not for those of which something
/// is about to be known: right after a start, what could be served at home is not to be sent out.
pub fn readiness(registry: &Registry, besides: Besides) -> Readiness {
    let Readiness { ready, mut reasons } = of_fleet(registry, besides);
    if besides.policies_unknown {
        reasons.push("policies have not been listed yet".into());
    }
    if besides.draining {
        reasons.insert(0, "shutting down".into());
    }
    Readiness { ready: ready && !besides.policies_unknown && !besides.draining, reasons }
}

fn of_fleet(registry: &Registry, besides: Besides) -> Readiness {
    let fleet = registry.snapshot();
    if fleet.is_empty() {
        let ready = besides.providers && registry.described().awaited.is_empty();
        let sought = registry.sought().map(|sought| format!("looked for: {sought}"));
        return Readiness {
            ready,
            reasons: ["no worker is known".into()].into_iter().chain(sought).collect(),
        };
    }
    let reasons: Vec<String> = fleet.values().filter_map(|m| lacks(m, besides.mock)).collect();
    let known = reasons.len() < fleet.len();
    let stand_in = besides.providers && !besides.mock && !fleet.values().any(|m| is_learning(m));
    Readiness { ready: known || stand_in, reasons }
}

fn is_learning(member: &Member) -> bool {
    let learns = matches!(**member.status.kv.load(), KvState::Unknown | KvState::Replaying);
    learns && !member.cordoned()
}

fn lacks(member: &Member, mock: bool) -> Option<String> {
    let name = &member.worker.name;
    if member.cordoned() {
        return Some(format!("{name}: cordoned"));
    }
    let state = member.status.kv.load();
    if mock || **state == KvState::LiveOnly {
        return None;
    }
    state.amiss().map(|amiss| format!("{name}: {amiss}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        super::tests::{set, worker},
        *,
    };

    fn ready(registry: &Registry, providers: bool) -> bool {
        readiness(registry, Besides { providers, ..Besides::default() }).ready
    }

    #[test]
    fn providers_stand_in_for_workers_that_are_not_there_but_not_for_those_about_to_be_known() {
        let registry = Registry::default();
        registry.await_set(&"s".into());
        assert!(!ready(&registry, true), "its workers may be told any moment");
        registry.replace_set("s", Vec::new()).unwrap();
        assert_eq!([ready(&registry, false), ready(&registry, true)], [false, true]);
        registry.replace_set("s", vec![worker(&set("s"), 1, 1), worker(&set("s"), 2, 2)]).unwrap();
        let table = [
            (KvState::Unknown, KvState::Disconnected, [false, false]),
            (KvState::Replaying, KvState::Disconnected, [false, false]),
            (KvState::Evicted("why".into()), KvState::Disconnected, [false, true]),
            (KvState::LiveOnly, KvState::Unknown, [true, true]),
        ];
        for (one, two, want) in table {
            let said = format!("{one:?} {two:?}");
            for (member, state) in registry.snapshot().values().zip([one, two]) {
                member.status.kv.store(Arc::new(state));
            }
            assert_eq!([ready(&registry, false), ready(&registry, true)], want, "{said}");
        }
    }
}
