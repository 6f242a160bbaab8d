//! Which resources are in force, and what is said of each.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    super::{
        serving::Serving,
        spec::Source,
        standing::{Seen, standing},
    },
    *,
};
use crate::{
    config::{PortDefaults, Profile},
    kubernetes::status::{Verdict, Wanted},
};

fn configured() -> Configured {
    let profiles = ["p", "q"].map(|name| Arc::new(Profile { name: name.into(), ..Profile::default() }));
    Configured {
        profiles: profiles.into(),
        defaults: PortDefaults::default(),
        workersets: vec!["listed".into()],
    }
}

fn resource(namespace: &str, name: &str, age: u32, more: Value) -> Arc<InferenceWorkerSet> {
    let mut spec = json!({"profile": "p", "modelName": "m", "kvBlockSize": 16, "service": {"name": "vllm"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let uid = format!("{namespace}/{name}/{age}");
    let created = format!("2026-01-01T00:{:02}:00Z", 59 - age);
    Arc::new(
        serde_json::from_value(json!({
            "apiVersion": "kinference.buoyant.io/v1alpha1", "kind": "InferenceWorkerSet", "spec": spec,
            "metadata": {"namespace": namespace, "name": name, "uid": uid, "creationTimestamp": created},
        }))
        .unwrap(),
    )
}

fn planned(resources: &[Arc<InferenceWorkerSet>]) -> BTreeMap<Key, Planned> {
    plan(resources, &configured(), &BTreeMap::new())
}

fn of<'a>(planned: &'a BTreeMap<Key, Planned>, namespace: &str, name: &str) -> &'a Planned {
    &planned[&(namespace.to_owned(), name.to_owned())]
}

/// `Accepted/reason`, `ResolvedRefs/reason`, `Ready/reason`; `!` for what does not hold.
fn shown(standing: &Wanted) -> String {
    let one = |c: &Verdict| format!("{}{}", if c.holds { "" } else { "!" }, c.reason);
    standing.conditions.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_name_has_one_owner_and_the_others_are_told_who() {
    let (old, young) = (resource("b", "x", 9, json!({})), resource("a", "x", 1, json!({})));
    let same_age = resource("c", "x", 9, json!({}));
    let listed = resource("a", "listed", 9, json!({}));
    let other = resource("a", "y", 0, json!({}));
    let planned = planned(&[young, old, same_age, listed, other]);
    assert!(of(&planned, "b", "x").refusal.is_none() && of(&planned, "a", "y").refusal.is_none());
    let told = |namespace, name| {
        let planned = of(&planned, namespace, name);
        assert_eq!(planned.in_force, None);
        let refusal = planned.refusal.clone().unwrap();
        assert_eq!(refusal.reason, Reason::NameConflict);
        refusal.message
    };
    let by_older = "the worker set name `x` of InferenceWorkerSet `a/x` is already used by InferenceWorkerSet `b/x`, which was first";
    assert_eq!(told("a", "x"), by_older);
    assert!(told("c", "x").contains("`b/x`"));
    assert_eq!(
        told("a", "listed"),
        "the worker set name `listed` of InferenceWorkerSet `a/listed` is already used by a `[[workerset]]` of Kinference's \
         configuration"
    );
    assert_eq!(
        shown(&standing(of(&planned, "a", "x"), &Seen::default(), &Serving::default())),
        "!NameConflict !NotAccepted !NotAccepted"
    );
}

#[test]
fn a_change_that_is_refused_leaves_what_was_in_force() {
    let (configured, good) = (configured(), resource("n", "x", 5, json!({})));
    let first = planned(&[good]);
    let bad = resource("n", "x", 5, json!({"profile": "nope"}));
    let second = plan(std::slice::from_ref(&bad), &configured, &first);
    let refused = of(&second, "n", "x");
    assert_eq!(refused.in_force, of(&first, "n", "x").in_force);
    let refusal = refused.refusal.clone().unwrap();
    assert_eq!(refusal.reason, Reason::UnknownProfile);
    assert!(refusal.message.contains("is `nope`") && refusal.message.contains("defined: `p`, `q`"));
    let seen = Seen { listed: Some(1), left_out: Some("x: loopback".into()), ..Seen::default() };
    let serving = Serving { workers: 2, ready: 1, kept: vec![("not ready".into(), 1)] };
    let standing = standing(refused, &seen, &serving);
    assert_eq!(shown(&standing), "!UnknownProfile Resolved WorkersReady");
    assert!(standing.conditions[0].message.ends_with("what was accepted before stays in force"));
    assert_eq!(
        standing.conditions[1].message,
        "engines found by EndpointSlices of Service `vllm` in namespace `n`: 2; left out: x: loopback"
    );
    assert_eq!(standing.conditions[2].message, "workers that take requests: 1 of 2; 1 not ready");
    assert_eq!(json!(standing.fields), json!({"workers": 2, "readyWorkers": 1}));
    // Refused again, it still stays; and what was never accepted has nothing to stay.
    assert_eq!(plan(std::slice::from_ref(&bad), &configured, &second), second);
    assert_eq!(of(&planned(&[bad]), "n", "x").in_force, None);
    // Another resource of that name has never been accepted.
    let another = resource("n", "x", 1, json!({"profile": "nope"}));
    assert_eq!(of(&plan(&[another], &configured, &second), "n", "x").in_force, None);
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let wrong = |more: Value| {
        let planned = planned(&[resource("n", "x", 0, more)]);
        let refusal = of(&planned, "n", "x").refusal.clone().unwrap();
        assert_eq!(refusal.reason, Reason::Invalid);
        refusal.message
    };
    let all =
        wrong(json!({"kvBlockSize": 0, "modelName": "", "renderUrl": "ftp://x", "kvEvents": {"ranks": 257}}));
    for words in ["spec.kvBlockSize", "spec.modelName", "spec.renderUrl", "spec.kvEvents.ranks"] {
        assert!(all.contains(words), "{words:?} is not in {all}");
    }
    let selects = |selector: Value| wrong(json!({"service": null, "selector": selector}));
    assert!(wrong(json!({"selector": {"matchLabels": {"a": "b"}}})).contains("either"));
    assert!(wrong(json!({"service": null})).contains("either"));
    assert!(selects(json!({})).contains("spec.selector"));
    assert!(selects(json!({"matchLabels": {"a b": "c"}})).contains("spec.selector"));
    assert!(
        selects(json!({"matchLabels": {"a": "b,c=d"}})).contains("spec.selector"),
        "no other label gets in"
    );
    assert!(
        selects(json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})).contains("spec.selector")
    );
}

#[test]
fn what_has_not_changed_is_not_looked_at_again() {
    let configured = configured();
    let with = |generation: i64, more: Value| {
        let mut resource = InferenceWorkerSet::clone(&resource("n", "x", 5, more));
        resource.metadata.generation = Some(generation);
        [Arc::new(resource)]
    };
    let first = planned(&with(1, json!({})));
    // What is written under one generation can't change but by its status; this one shows that nobody looks.
    let same = plan(&with(1, json!({"profile": "nope"})), &configured, &first);
    assert_eq!(of(&same, "n", "x").refusal, None);
    let changed = plan(&with(2, json!({"profile": "nope"})), &configured, &same);
    assert_eq!(of(&changed, "n", "x").refusal.as_ref().unwrap().reason, Reason::UnknownProfile);
}

#[test]
fn a_selector_is_asked_for_as_the_api_server_reads_it() {
    let selector = json!({"matchLabels": {"app": "vllm"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}, {"key": "old", "operator": "DoesNotExist"}]});
    let planned = planned(&[resource("n", "x", 0, json!({"service": null, "selector": selector}))]);
    let spec = of(&planned, "n", "x").in_force.clone().unwrap();
    let labels = "app=vllm,tier in (a,b),!old".to_owned();
    assert_eq!(spec.source, Some(Source::Pods { namespace: "n".into(), labels }));
}

#[test]
fn what_refers_to_nothing_says_to_what() {
    let service = planned(&[resource("n", "x", 0, json!({}))]);
    let pods = json!({"service": null, "selector": {"matchLabels": {"app": "vllm"}}});
    let pods = planned(&[resource("n", "x", 0, pods)]);
    let of = |planned: &BTreeMap<Key, Planned>, listed| {
        let seen = Seen { listed, ..Seen::default() };
        let standing = standing(of(planned, "n", "x"), &seen, &Serving::default());
        (shown(&standing), standing.conditions[1].message.clone())
    };
    let (conditions, message) = of(&service, Some(0));
    assert_eq!(conditions, "Accepted !ServiceNotFound !NoReadyWorkers");
    assert!(message.contains("Service `vllm` in namespace `n`"), "{message}");
    let (conditions, message) = of(&pods, Some(0));
    assert_eq!(conditions, "Accepted !NoPods !NoReadyWorkers");
    assert!(message.contains("pods `app=vllm` in namespace `n`"), "{message}");
    assert_eq!(of(&service, None).0, "Accepted !Pending !NoReadyWorkers");
    assert_eq!(of(&pods, Some(2)).0, "Accepted Resolved !NoReadyWorkers");
}

proptest! {
    #[test]
    fn however_they_are_told_each_name_has_one_owner(
        told in proptest::collection::btree_map((0..3u8, 0..3u8), (0..4u32, 0..3u8), 0..9),
        turn in any::<prop::sample::Index>(),
    ) {
        let mut resources: Vec<_> = told.iter().map(|((namespace, name), (age, profile))| {
            let profile = ["p", "q", "nope"][usize::from(*profile)];
            resource(&format!("n{namespace}"), &format!("s{name}"), *age, json!({"profile": profile}))
        }).collect();
        let first = planned(&resources);
        prop_assert_eq!(first.len(), told.len());
        let mut owners = BTreeMap::new();
        for planned in first.values() {
            let conflict = planned.refusal.as_ref().is_some_and(|refusal| refusal.reason == Reason::NameConflict);
            *owners.entry(planned.key().1).or_insert(0) += usize::from(!conflict);
        }
        prop_assert!(owners.values().all(|owners| *owners == 1), "{:?}", owners);
        if !resources.is_empty() {
            let at = turn.index(resources.len());
            resources.rotate_left(at);
        }
        prop_assert_eq!(planned(&resources), first);
    }
}
