//! The providers of the policies in force, as they are shown: their load, what was learnt of them, what is wrong. Pure.
//!
//! Invariant: bounded; whoever gets no requests has a reason. Times in milliseconds, since the epoch where they end in `at_ms`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::Serialize;

use super::clock::Clock;
use crate::{
    load::{FAILURES, Providers},
    pipeline::at_provider,
    policy::{Notices, Standing, compile::Policies, eval::Provider, in_one_line},
    roster::State,
};

/// Providers that are listed.
const MOST: usize = 100;

/// All of them.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    all: Vec<ShownProvider>,
    /// Providers that are not listed.
    more: usize,
}

#[derive(Debug, PartialEq, Serialize)]
struct ShownProvider {
    /// `namespace/name`
    name: Arc<str>,
    /// The host, with its port unless that is 443.
    authority: Arc<str>,
    /// `namespace/name` of those that have it.
    pools: BTreeSet<String>,
    /// `out`: it gets no requests, but for one now and then that tries it.
    state: State,
    /// Our own requests there that have not ended.
    in_flight: u32,
    models: Vec<ShownModel>,
    /// It keeps failing.
    set_aside: Option<ShownAside>,
    /// What is wrong with its credential.
    credential: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct ShownModel {
    /// What the provider calls it.
    name: Arc<str>,
    expected_ttft_ms: f64,
    /// From the first tokens that were seen; `None`: none was.
    learnt_ttft_ms: Option<f64>,
}

#[derive(Debug, PartialEq, Serialize)]
struct ShownAside {
    since_at_ms: u64,
    why: String,
    /// The next request from then on tries it; `None`: one is there.
    tried_from_at_ms: Option<u64>,
}

impl Shown {
    /// Of the policies in force, if they decide; with what is known of providers and where they stand.
    pub fn of(policies: Option<&Policies>, (known, notices): (&Providers, &Notices), clock: Clock) -> Self {
        let mut all = BTreeMap::<Arc<str>, ShownProvider>::new();
        let standings = notices.standings();
        for pool in policies.into_iter().flat_map(Policies::pools) {
            for provider in pool.models.iter().flat_map(|model| model.providers()).map(|(_, one)| one) {
                let of = |one: &&Standing| one.kind == "InferenceProvider" && one.key == provider.key;
                let credential = standings.iter().find(of).and_then(credential);
                let new = || ShownProvider::of(provider, credential, (known, clock));
                let shown = all.entry(provider.id.clone()).or_insert_with(new);
                shown.pools.insert(pool.key.to_string());
                if shown.models.iter().all(|model| model.name != provider.upstream) {
                    shown.models.push(ShownModel::of(provider, known));
                }
            }
        }
        let more = all.len().saturating_sub(MOST);
        Self { all: all.into_values().take(MOST).collect(), more }
    }
}

impl ShownProvider {
    /// Without its models.
    fn of(provider: &Provider, credential: Option<String>, (known, clock): (&Providers, Clock)) -> Self {
        let view = known.view(at_provider(provider));
        let set_aside = view.set_aside.map(|aside| ShownAside {
            since_at_ms: clock.ms(aside.since),
            why: format!("it failed {FAILURES} times in a row; the last request there {}", aside.fault),
            tried_from_at_ms: aside.tried_from.map(|from| clock.ms(from)),
        });
        Self {
            name: provider.id.clone(),
            authority: provider.authority.clone(),
            pools: BTreeSet::new(),
            state: if set_aside.is_some() || credential.is_some() { State::Out } else { State::Ok },
            in_flight: view.own_in_flight,
            models: Vec::new(),
            set_aside,
            credential,
        }
    }
}

impl ShownModel {
    fn of(provider: &Provider, known: &Providers) -> Self {
        let view = known.view(at_provider(provider));
        Self {
            name: provider.upstream.clone(),
            expected_ttft_ms: provider.expected_ttft_ms.into(),
            // What was learnt is forgotten bit by bit: whole milliseconds are no news all the time.
            learnt_ttft_ms: view.learnt.then(|| view.ttft_ms.round()),
        }
    }
}

/// What is wrong with the credential of a provider.
fn credential(standing: &Standing) -> Option<String> {
    let missing = in_one_line(&standing.unresolved);
    match standing.unread {
        true => Some("its Secret was not read yet".into()),
        false => Some(missing).filter(|missing| !missing.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        observe::Metrics,
        policy::{FieldPath, InForce, Problem},
        types::Outcome,
    };

    fn object(kind: &str, name: &str, spec: Value) -> Value {
        let group = "kinference.buoyant.io/v1alpha1";
        json!({"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec})
    }

    fn pool(name: &str, provider: &str) -> Value {
        let backends = json!([{"provider": {"name": provider, "model": "large"}}]);
        object("InferencePool", name, json!({"models": [{"name": "m", "backends": backends}]}))
    }

    fn provider(name: &str) -> Value {
        let models = json!([{"name": "large", "expectedTtftMs": 900}]);
        object(
            "InferenceProvider",
            name,
            json!({"api": "OpenAI", "host": "h", "port": 8443, "models": models}),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn each_is_there_once_with_its_pools_and_what_is_wrong() {
        let resources = [
            provider("a"),
            provider("b"),
            provider("unused"),
            pool("x", "a"),
            pool("y", "a"),
            pool("z", "b"),
        ];
        let (policies, mut standings) = InForce::default().update(resources, None);
        let known = Providers::new(&Metrics::new());
        let a = policies.providers().find(|one| &*one.id == "default/a").cloned().unwrap();
        for _ in 0..FAILURES {
            known.reserve(at_provider(&a)).ended(Outcome::Refused);
        }
        let problem = Problem::new(FieldPath::of("spec.credentials.secretRef"), "names nothing".to_owned());
        let of_b = standings.iter_mut().find(|one| &*one.key.name == "b").unwrap();
        of_b.unresolved.push(problem);
        let notices = Notices::default();
        notices.stand(standings);
        let shown = Shown::of(Some(&policies), (&known, &notices), Clock::default());
        let shown = serde_json::to_value(&shown).unwrap();
        let (a, b) = (&shown["all"][0], &shown["all"][1]);
        assert_eq!((shown["all"].as_array().unwrap().len(), &shown["more"]), (2, &0.into()));
        assert_eq!(
            (&a["name"], &a["authority"], &a["state"]),
            (&json!("default/a"), &json!("h:8443"), &json!("out"))
        );
        assert_eq!(a["pools"], json!(["default/x", "default/y"]));
        assert_eq!(
            a["models"],
            json!([{"name": "large", "expected_ttft_ms": 900.0, "learnt_ttft_ms": null}])
        );
        let why =
            "it failed 3 times in a row; the last request there was refused: 401, 403, 429, or a redirection";
        assert_eq!(a["set_aside"]["why"], why);
        let pause = a["set_aside"]["tried_from_at_ms"].as_u64().unwrap()
            - a["set_aside"]["since_at_ms"].as_u64().unwrap();
        assert_eq!(pause, 10_000);
        assert_eq!((&b["state"], &b["set_aside"]), (&json!("out"), &Value::Null));
        assert_eq!(b["credential"], "`spec.credentials.secretRef` names nothing");
    }
}
