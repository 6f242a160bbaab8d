//! What is in force, and what is found.

use serde_json::{Value, json};

use super::{
    super::{crd, read},
    *,
};

fn resource(kind: &str, name: &str, spec: Value) -> Resource {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    read(json!({
        "apiVersion": format!("{}/{}", crd::GROUP, crd::VERSION), "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    }))
    .unwrap()
}

fn pool(name: &str, backend: Value) -> Resource {
    resource("InferencePool", name, json!({"models": [{"name": "m", "backends": [backend]}]}))
}

fn policy(name: &str, priority: i32, rules: &[&str]) -> Resource {
    let rules: Vec<_> = rules
        .iter()
        .map(|name| json!({"name": name, "when": "request.tenant == 'x'", "steps": [{"minimize": "Cost"}]}))
        .collect();
    resource("InferencePolicy", name, json!({"poolRef": {"name": "p"}, "priority": priority, "rules": rules}))
}

fn said(resources: &[Resource]) -> Vec<(usize, Weight, String)> {
    let findings = compile(resources, None).1;
    findings
        .into_iter()
        .map(|finding| (finding.resource, finding.weight, finding.problem.to_string()))
        .collect()
}

#[test]
fn rules_come_by_priority_then_name_then_as_they_stand() {
    let set = json!({"workerSet": {"name": "s"}});
    let resources = [
        policy("b", 0, &["b1", "b2"]),
        policy("z", 5, &["z1"]),
        policy("a", 0, &["a1"]),
        policy("other/a", 0, &["elsewhere"]),
        pool("p", set),
    ];
    let (policies, _) = compile(&resources, None);
    let rules = &policies.pool("p").unwrap().rules;
    assert_eq!(rules.iter().map(|rule| &*rule.name).collect::<Vec<_>>(), ["z1", "a1", "b1", "b2"]);
    let of_other = "`spec.poolRef.name` is \"p\", but other has no such InferencePool".to_owned();
    assert!(said(&resources).contains(&(3, Weight::Unresolved, of_other)));
}

#[test]
fn a_pool_is_found_by_its_name_or_with_its_namespace() {
    let set = || json!({"workerSet": {"name": "s"}});
    let backend = |pool: &str| json!({"poolRef": {"name": pool}});
    let resources = [
        pool("a/p", set()),
        pool("b/p", set()),
        pool("b/q", set()),
        resource("GatewayBackend", "b/gate", backend("q")),
        resource("GatewayBackend", "a/gate", backend("q")),
    ];
    let (policies, findings) = compile(&resources, None);
    assert_eq!(policies.pool("p").unwrap_err(), NoPool::Ambiguous);
    assert_eq!(policies.pool("c/p").unwrap_err(), NoPool::Unknown);
    assert_eq!(policies.pool("b/p").unwrap().key.to_string(), "b/p");
    assert_eq!(policies.pool("q").unwrap().key.to_string(), "b/q");
    assert_eq!(policies.pool("gate").unwrap().key.to_string(), "b/q", "through the GatewayBackend");
    assert_eq!(policies.pool("a/gate").unwrap_err(), NoPool::Unknown);
    let key = |namespace: &str| Key { namespace: namespace.into(), name: "gate".into() };
    assert_eq!(policies.behind(&key("b")).unwrap().key.to_string(), "b/q");
    assert!(policies.behind(&key("a")).is_none());
    assert_eq!(findings.len(), 1);
}

#[test]
fn what_does_not_exist_is_said_and_the_rest_is_in_force() {
    let models = json!([{"name": "m", "backends": [
        {"provider": {"name": "nobody"}}, {"provider": {"name": "cloud"}}, {"provider": {"name": "cloud", "model": "l"}},
        {"workerSet": {"name": "s"}}, {"workerSet": {"name": "file"}},
    ]}]);
    let spec = json!({
        "api": "Anthropic", "host": "h", "port": 8443, "models": [{"name": "l", "upstream": "u"}],
        "credentials": {"mode": "Header", "secretRef": {"name": "s", "key": "k"}},
    });
    let resources = [
        resource("InferencePool", "p", json!({"models": models})),
        resource("InferenceProvider", "cloud", spec),
    ];
    let (policies, findings) = compile(&resources, Some(&["file".to_owned()].into()));
    let texts: Vec<_> = findings.iter().map(|finding| finding.problem.to_string()).collect();
    assert_eq!(
        texts,
        [
            "`spec.models[0].backends[0].provider.name` is \"nobody\", but default has no such InferenceProvider; there \
             are: `cloud`",
            "`spec.models[0].backends[1].provider.model` is \"m\", which `cloud` does not have; it has: `l`",
            "`spec.models[0].backends[3].workerSet.name` is \"s\", which is no worker set; there are: `file`",
        ]
    );
    let backends = &policies.pool("p").unwrap().models[0].backends;
    let names: Vec<_> = backends.iter().map(|one| (&*one.source, &*one.model)).collect();
    assert_eq!(names, [("cloud", "l"), ("s", "m"), ("file", "m")]);
    let provider = backends[0].provider.as_ref().unwrap();
    assert_eq!((&*provider.upstream, &*provider.authority), ("u", "h:8443"));
    let secrets: Vec<_> = policies.secrets().iter().map(|(of, secret)| format!("{of}: {secret}")).collect();
    assert_eq!(secrets, ["default/cloud: key `k` of Secret default/s"]);
    let served: Vec<_> = crate::types::Api::ALL.into_iter().filter(|api| provider.serves(*api)).collect();
    assert_eq!(served, [crate::types::Api::Messages], "nothing is translated");
}

#[test]
fn a_name_that_is_taken_is_not_in_force() {
    let set = |name: &str| json!({"workerSet": {"name": name}});
    let resources = [pool("p", set("first")), pool("p", set("second")), pool("x/p", set("third"))];
    let expected = "`metadata.name` is \"p\", as of another InferencePool in default".to_owned();
    assert_eq!(said(&resources), [(1, Weight::Conflict, expected)]);
    let (policies, _) = compile(&resources, None);
    assert_eq!(&*policies.pool("default/p").unwrap().models[0].backends[0].source, "first");
}
