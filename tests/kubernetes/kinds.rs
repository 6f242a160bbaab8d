//! The kinds of policy: what is declared is in force, and each object's status says where it stands.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use kinference::{
    config::{Config, LeaderElectionConfig},
    enforce::{Declarations, Enforcer, Realm},
    fleet::Registry,
    kubernetes::{StatusDesk, Watches, elect, watch_policy},
    load::Providers,
    observe::Metrics,
    pipeline::PoliciesInForce,
    policy::{
        Secrets,
        crd::{self, GatewayBackend, InferencePolicy, InferencePool, InferenceProvider},
    },
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{apiserver::ApiServer, cluster, eventually, watches::PACE};

trait Kind:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Serialize
    + DeserializeOwned
    + std::fmt::Debug
{
}
impl Kind for GatewayBackend {}
impl Kind for InferencePolicy {}
impl Kind for InferencePool {}
impl Kind for InferenceProvider {}

async fn install<K: Kind>(client: &Client) {
    let kind = K::kind(&());
    let definition = crd::definitions().iter().find(|definition| definition.spec.names.kind == kind);
    cluster::install::<K>(client, definition.unwrap()).await;
}

/// A namespace, and an enforcer that follows it and a file.
struct Site {
    client: Client,
    namespace: String,
    registry: Arc<Registry>,
    policies: PoliciesInForce,
    metrics: Metrics,
    watches: Watches,
    known: Arc<AtomicBool>,
    _tasks: JoinSet<std::convert::Infallible>,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn start(client: Client) -> Self {
        let (namespace, dir) = (cluster::namespace(&client).await, tempfile::tempdir().unwrap());
        let of_file = json!({"apiVersion": format!("{}/{}", crd::GROUP, crd::VERSION), "kind": "InferencePool",
            "metadata": {"name": "filed", "namespace": namespace}, "spec": pool("s")});
        std::fs::write(dir.path().join("pool.yaml"), of_file.to_string()).unwrap();
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[[profile]]\nname = \"p\"\n[kubernetes]\nenabled = true\n[policy]\n\
             enabled = true\nnamespace = \"{namespace}\"\nfiles = [\"*.yaml\"]\n"
        );
        let (config, _) = Config::parse(&text, dir.path()).unwrap();
        let (metrics, registry) = (Metrics::new(), Arc::<Registry>::default());
        registry.await_set(&"s".into());
        let watches = Watches::with_pace(PACE, &metrics);
        let (leadership, _run, _release) =
            elect(client.clone(), &LeaderElectionConfig::default(), "me".into(), &metrics);
        let (desk, write) = StatusDesk::new(client.clone(), leadership, &metrics);
        let (kinds, follow) = watch_policy(client.clone(), &config.policy, (watches.clone(), desk));
        let (declarations, _files) = Declarations::load(&config, &metrics).await.unwrap();
        let policies = PoliciesInForce::default();
        let realm = Realm {
            registry: registry.clone(),
            secrets: Secrets::default(),
            providers: Providers::new(&metrics),
            to: policies.clone(),
        };
        let enforcer = Enforcer::new(declarations, Some(kinds), realm);
        let known = enforcer.known();
        let mut tasks = JoinSet::new();
        tasks.spawn(write);
        tasks.spawn(follow);
        tasks.spawn(enforcer.run());
        Self { client, namespace, registry, policies, metrics, watches, known, _tasks: tasks, _dir: dir }
    }

    fn api<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates an object or changes its spec.
    async fn put<K: Kind>(&self, name: &str, spec: Value) {
        let object = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}, "spec": spec});
        let api = self.api::<K>();
        match api.get_opt(name).await.unwrap() {
            Some(_) => drop(api.patch(name, &PatchParams::default(), &Patch::Merge(object)).await.unwrap()),
            None => {
                drop(
                    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap())
                        .await
                        .unwrap(),
                );
            }
        }
    }

    async fn delete<K: Kind>(&self, name: &str) {
        self.api::<K>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until a condition of the object as it is has that status, and its message that text; tells `activeGeneration`.
    async fn says<K: Kind>(&self, name: &str, condition: &str, (status, text): (&str, &str)) -> Option<i64> {
        let what = format!("{} {name} says {condition} {status}: {text}", K::kind(&()));
        eventually(&what, async || {
            let object = json!(self.api::<K>().get(name).await.unwrap());
            let generation = &object["metadata"]["generation"];
            let of_now = |at: &Value| &at["observedGeneration"] == generation;
            let found = object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == condition)?;
            let said = found["status"] == status && found["message"].as_str()?.contains(text);
            (said && of_now(found) && of_now(&object["status"]))
                .then(|| object["status"]["activeGeneration"].as_i64())
        })
        .await
    }

    /// The published names of a pool; none: it is not there.
    fn names(&self, pool: &str) -> Vec<String> {
        let policies = self.policies.load_full().unwrap();
        let pool = policies.pool(pool).ok();
        pool.into_iter().flat_map(|pool| pool.names(None)).map(ToString::to_string).collect()
    }
}

fn pool(worker_set: &str) -> Value {
    json!({"models": [{"name": "m", "backends": [{"workerSet": {"name": worker_set}}]}]})
}

fn provider(header: &str) -> Value {
    json!({"api": "OpenAI", "host": "h", "models": [{"name": "m"}], "credentials": {"mode": "Header",
        "header": header, "secretRef": {"name": "s", "key": "k"}}})
}

fn policy(when: &str) -> Value {
    let rule = json!({"name": "a", "when": when, "steps": [{"minimize": "Cost"}]});
    json!({"poolRef": {"name": "p"}, "rules": [rule]})
}

#[tokio::test]
async fn what_is_declared_is_in_force_and_its_status_says_so() {
    let Some(cluster) = ApiServer::start() else { return };
    let client = cluster.client().await;
    install::<InferenceProvider>(&client).await;
    install::<InferencePool>(&client).await;
    install::<InferencePolicy>(&client).await;
    let site = Site::start(client.clone()).await;
    site.put::<InferencePool>("p", pool("s")).await;
    kinds_that_are_not_all_known_are_not_in_force(&site).await;
    install::<GatewayBackend>(&client).await;

    a_broken_edit_leaves_the_last_sound_version_in_force(&site).await;
    what_an_object_names_may_come_and_go(&site).await;
    names_are_of_one(&site).await;

    site.put::<InferencePool>("last", pool("s")).await;
    site.says::<InferencePool>("last", "Accepted", ("True", "")).await;
    let rendered = site.metrics.render();
    let gauge = |kind: &str, standing: &str, count: usize| {
        let line =
            format!("kinference_policy_resources{{kind=\"{kind}\",standing=\"{standing}\"}} {count}\n");
        assert!(rendered.contains(&line), "{line}{rendered}");
    };
    gauge("InferencePool", "in_force", 4);
    gauge("InferencePool", "rejected", 2);
    gauge("GatewayBackend", "in_force", 1);
    let refused = "kinference_policy_changes_total{outcome=\"refused\"} 5\n";
    assert!(rendered.contains(refused), "each refusal counts once\n{rendered}");
    eventually("all is said", async || {
        site.metrics.render().contains("kinference_kubernetes_statuses_pending 0\n").then_some(())
    })
    .await;
}

/// A pool without its rules could send a request where it must not go.
async fn kinds_that_are_not_all_known_are_not_in_force(site: &Site) {
    eventually("the others are known", async || {
        let report = site.watches.report();
        let waiting: Vec<_> = report
            .iter()
            .filter(|w| !matches!(w.state, kinference::kubernetes::WatchState::Current))
            .collect();
        let only = waiting.len() == 1 && waiting[0].resource.starts_with("gatewaybackends.");
        (only && format!("{:?}", waiting[0].state).contains("is not installed")).then_some(())
    })
    .await;
    assert!(!site.known.load(Ordering::Relaxed));
    assert!(site.names("p").is_empty() && site.names("filed").is_empty());
}

async fn a_broken_edit_leaves_the_last_sound_version_in_force(site: &Site) {
    assert_eq!(site.says::<InferencePool>("p", "Accepted", ("True", "in force")).await, Some(1));
    assert!(site.known.load(Ordering::Relaxed));
    assert_eq!([site.names("p"), site.names("filed")], [["m"], ["m"]]);
    site.put::<InferenceProvider>("cloud", provider("x-key")).await;
    assert_eq!(site.says::<InferenceProvider>("cloud", "Accepted", ("True", "")).await, Some(1));
    site.put::<InferenceProvider>("cloud", provider("host")).await;
    let why = "`spec.credentials.header` is `host`, which can't carry a credential";
    assert_eq!(site.says::<InferenceProvider>("cloud", "Accepted", ("False", why)).await, Some(1));
    site.says::<InferenceProvider>("cloud", "Accepted", ("False", "generation 1 stays in force")).await;
    site.put::<InferenceProvider>("cloud", provider("x-key")).await;
    assert_eq!(site.says::<InferenceProvider>("cloud", "Accepted", ("True", "")).await, Some(3));

    site.put::<InferencePolicy>("r", policy("request.tags.exists(")).await;
    let said = site.says::<InferencePolicy>("r", "Accepted", ("False", "is no CEL expression")).await;
    assert_eq!(said, None, "it never was in force");
    let rules = || site.policies.load_full().unwrap().pool("p").unwrap().rules.len();
    assert_eq!(rules(), 0);
    site.put::<InferencePolicy>("r", policy("request.tenant == 'x'")).await;
    assert_eq!(site.says::<InferencePolicy>("r", "Accepted", ("True", "")).await, Some(2));
    assert_eq!(rules(), 1);
    site.put::<InferencePolicy>("r", policy("request.tenant ==")).await;
    assert_eq!(site.says::<InferencePolicy>("r", "Accepted", ("False", "generation 2 stays")).await, Some(2));
    assert_eq!(rules(), 1);
    site.delete::<InferencePolicy>("r").await;
    eventually("what is deleted decides no more", async || (rules() == 0).then_some(())).await;
}

async fn what_an_object_names_may_come_and_go(site: &Site) {
    let resolved = async |found: &str, text: &str| {
        site.says::<InferencePool>("p", "ResolvedRefs", (found, text)).await;
    };
    resolved("True", "").await;
    let backends = json!([{"workerSet": {"name": "later"}}, {"provider": {"name": "cloud"}}]);
    site.put::<InferencePool>("p", json!({"models": [{"name": "m", "backends": backends}]})).await;
    resolved("False", "is \"later\", which is no worker set").await;
    site.registry.await_set(&"later".into());
    resolved("True", "").await;
    site.delete::<InferenceProvider>("cloud").await;
    resolved("False", "no such InferenceProvider").await;
    site.put::<InferenceProvider>("cloud", provider("x-key")).await;
    resolved("True", "").await;

    site.put::<GatewayBackend>("gate", json!({"poolRef": {"name": "q"}})).await;
    site.says::<GatewayBackend>("gate", "Accepted", ("True", "")).await;
    site.says::<GatewayBackend>("gate", "ResolvedRefs", ("False", "no such InferencePool")).await;
    assert!(site.names("gate").is_empty());
    site.put::<InferencePool>("q", pool("s")).await;
    site.says::<GatewayBackend>("gate", "ResolvedRefs", ("True", "")).await;
    assert_eq!(site.names("gate"), ["m"], "a stream may name the backend");
    site.put::<InferencePolicy>("stray", {
        let mut stray = policy("true");
        stray["poolRef"]["name"] = "nowhere".into();
        stray
    })
    .await;
    site.says::<InferencePolicy>("stray", "ResolvedRefs", ("False", "no such InferencePool")).await;
}

async fn names_are_of_one(site: &Site) {
    let model =
        |name: &str| json!({"name": name, "aliases": ["x"], "backends": [{"workerSet": {"name": "s"}}]});
    site.put::<InferencePool>("aliases", json!({"models": [model("a"), model("b")]})).await;
    site.says::<InferencePool>("aliases", "Accepted", ("False", "aliases[0]")).await;
    assert!(site.names("aliases").is_empty());
    site.put::<InferencePool>("filed", pool("later")).await;
    let told =
        site.says::<InferencePool>("filed", "Accepted", ("False", "pool.yaml:1, which is in force")).await;
    assert_eq!(told, None);
}
