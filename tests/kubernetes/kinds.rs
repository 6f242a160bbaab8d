//! The kinds of policy: each object's status says whether it is accepted.

use kinference::{
    config::{LeaderElectionConfig, PolicyConfig},
    kubernetes::{StatusDesk, Watches, elect, watch_policy},
    observe::Metrics,
    policy::crd::{self, GatewayBackend, InferencePolicy, InferencePool, InferenceProvider},
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

async fn create<K: Kind>(api: &Api<K>, name: &str, spec: Value) {
    let object = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}, "spec": spec});
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// Status, reason and message of `Accepted`, once it is of the object as it is.
async fn accepted<K: Kind>(api: &Api<K>, name: &str) -> [String; 3] {
    eventually(&format!("{name} is judged"), async || {
        let object = json!(api.get(name).await.unwrap());
        let condition = &object["status"]["conditions"][0];
        let current = object["metadata"]["generation"] == object["status"]["observedGeneration"]
            && condition["observedGeneration"] == object["metadata"]["generation"]
            && condition["type"] == "Accepted";
        let text = |field| condition[field].as_str().map(Into::into);
        current.then_some([text("status")?, text("reason")?, text("message")?])
    })
    .await
}

#[tokio::test]
async fn every_object_is_judged() {
    let Some(cluster) = ApiServer::start() else { return };
    let client = cluster.client().await;
    install::<InferenceProvider>(&client).await;
    install::<InferencePool>(&client).await;
    install::<InferencePolicy>(&client).await;
    let namespace = cluster::namespace(&client).await;
    let metrics = Metrics::new();
    let watches = Watches::with_pace(PACE, &metrics);
    let (leadership, _run, _release) =
        elect(client.clone(), &LeaderElectionConfig::default(), "me".into(), &metrics);
    let (desk, write) = StatusDesk::new(client.clone(), leadership, &metrics);
    let config = PolicyConfig { enabled: true, namespace: Some(namespace.clone()) };
    let mut tasks = JoinSet::new();
    tasks.spawn(write);
    tasks.spawn(watch_policy(client.clone(), &config, (watches.clone(), desk)));

    let providers: Api<InferenceProvider> = Api::namespaced(client.clone(), &namespace);
    let provider = json!({"api": "OpenAI", "host": "h", "models": [{"name": "m"}], "credentials": {"mode": "Header",
        "header": "x-key", "secretRef": {"name": "s", "key": "k"}}});
    create(&providers, "good", provider.clone()).await;
    assert_eq!(accepted(&providers, "good").await[..2], ["True", "Valid"]);
    // Turned bad, and good again.
    let header = async |header: &str| {
        let patch = Patch::Merge(json!({"spec": {"credentials": {"header": header}}}));
        providers.patch("good", &PatchParams::default(), &patch).await.unwrap();
        accepted(&providers, "good").await
    };
    let [status, reason, message] = header("host").await;
    assert_eq!([status.as_str(), reason.as_str()], ["False", "Invalid"]);
    assert!(
        message.contains("`spec.credentials.header` is `host`, which can't carry a credential"),
        "{message}"
    );
    assert_eq!(header("x-key").await[..2], ["True", "Valid"]);

    let pools: Api<InferencePool> = Api::namespaced(client.clone(), &namespace);
    let backend = json!({"workerSet": {"name": "s"}});
    create(&pools, "twice", json!({"models": [{"name": "a", "backends": [backend, backend]}]})).await;
    assert!(accepted(&pools, "twice").await[2].contains("is there twice"));
    let policies: Api<InferencePolicy> = Api::namespaced(client.clone(), &namespace);
    let rule = json!({"name": "a", "when": "request.tags.exists(", "steps": [{"minimize": "Cost"}]});
    create(&policies, "no-cel", json!({"poolRef": {"name": "p"}, "rules": [rule]})).await;
    assert!(accepted(&policies, "no-cel").await[2].contains("is no CEL expression"));

    // A kind that is installed later is judged then.
    let report = watches.report();
    let late = report.iter().find(|watch| watch.resource.starts_with("gatewaybackends.")).unwrap();
    assert!(format!("{:?}", late.state).contains("is not installed"), "{late:?}");
    install::<GatewayBackend>(&client).await;
    let backends: Api<GatewayBackend> = Api::namespaced(client, &namespace);
    create(&backends, "b", json!({"poolRef": {"name": "p"}})).await;
    assert_eq!(accepted(&backends, "b").await[..2], ["True", "Valid"]);

    // What goes is forgotten.
    providers.delete("good", &DeleteParams::default()).await.unwrap();
    create(&providers, "good", provider).await;
    assert_eq!(accepted(&providers, "good").await[..2], ["True", "Valid"]);
    eventually("all is said", async || {
        metrics.render().contains("kinference_kubernetes_statuses_pending 0\n").then_some(())
    })
    .await;
}
