//! Statuses as they arrive at a real API server: what one writer says, and what the writers of two leaders do.

use std::time::Duration;

use kinference::{
    config::LeaderElectionConfig,
    kubernetes::{
        StatusDesk, elect,
        status::{Verdict, Wanted},
    },
    observe::Metrics,
    policy::crd::InferenceWorkerSet,
};
use kube::{
    Api, CustomResourceExt, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    apiserver::ApiServer,
    cluster, eventually,
    proxy::Link,
    replica::{Replica, free_lease, leader, three},
};

fn worker_set(name: &str) -> InferenceWorkerSet {
    serde_json::from_value(json!({
        "apiVersion": "kinference.buoyant.io/v1alpha1", "kind": "InferenceWorkerSet", "metadata": {"name": name},
        "spec": {"profile": "p", "modelName": "m", "kvBlockSize": 16, "service": {"name": "s"}},
    }))
    .unwrap()
}

fn wanted(writer: &str, workers: u32) -> Wanted {
    let verdict =
        Verdict { kind: "Accepted", holds: true, reason: "Valid", message: format!("says {writer}") };
    Wanted { conditions: vec![verdict], fields: json!({"workers": workers}).as_object().cloned().unwrap() }
}

/// Every replica wants to say something else all the time.
struct Quarrel {
    sets: Api<InferenceWorkerSet>,
    replicas: Vec<Replica>,
    /// Objects and who is seen to have written them.
    timeline: Vec<(String, String)>,
    said: u32,
}

impl Quarrel {
    /// A round of words; who leads after it.
    async fn say(&mut self) -> Option<usize> {
        self.said += 1;
        for set in self.sets.list(&ListParams::default()).await.unwrap() {
            if let Some(written) = set.status.as_ref().and_then(|status| status.conditions.first()) {
                self.see((set.name_any(), written.message.clone()));
            }
            for replica in &self.replicas {
                replica.desk.say(&set, wanted(&replica.name, self.said));
            }
        }
        sleep(Duration::from_millis(20)).await;
        leader(&self.replicas)
    }

    fn see(&mut self, seen: (String, String)) {
        if self.timeline.iter().rev().find(|(name, _)| *name == seen.0) != Some(&seen) {
            self.timeline.push(seen);
        }
    }

    async fn say_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.say().await;
        }
    }

    async fn say_until_one_leads_but(&mut self, other: Option<usize>) -> usize {
        loop {
            if let Some(leader) = self.say().await.filter(|leader| Some(*leader) != other) {
                return leader;
            }
        }
    }

    fn writers(&self, object: &str) -> Vec<&str> {
        self.timeline.iter().filter(|(name, _)| name == object).map(|(_, writer)| writer.as_str()).collect()
    }
}

/// For each object the API server must see the writes of one leader, then those of the next, never one of the former after
/// one of the latter, even if a partition held it up.
#[tokio::test]
async fn writes_of_two_leaders_never_interleave() {
    let Some(cluster) = ApiServer::start() else { return };
    let client = cluster.client().await;
    cluster::install::<InferenceWorkerSet>(&client, &InferenceWorkerSet::crd()).await;
    let namespace = cluster::namespace(&client).await;
    free_lease(&client, &namespace).await;
    let sets: Api<InferenceWorkerSet> = Api::namespaced(client, &namespace);
    for name in ["x", "y"] {
        sets.create(&PostParams::default(), &worker_set(name)).await.unwrap();
    }
    let replicas = three(&cluster, &namespace).await;
    let mut quarrel = Quarrel { sets, replicas, timeline: Vec::new(), said: 0 };
    let first = quarrel.say_until_one_leads_but(None).await;
    let (mut holder, mut leaders) = (first, vec![first]);
    for link in [Link::Stalled, Link::Cut] {
        quarrel.say_for(Duration::from_secs(2)).await;
        quarrel.replicas[holder].proxy.set(link);
        let next = quarrel.say_until_one_leads_but(Some(holder)).await;
        quarrel.say_for(Duration::from_secs(2)).await;
        // What the partition held up goes out now.
        quarrel.replicas[holder].proxy.set(Link::Up);
        leaders.push(next);
        holder = next;
    }
    quarrel.say_for(Duration::from_secs(2)).await;
    assert_eq!(leader(&quarrel.replicas), Some(holder));
    let expected: Vec<_> =
        leaders.iter().map(|leader| format!("says {}", quarrel.replicas[*leader].name)).collect();
    assert_eq!(quarrel.writers("x"), expected);
    assert_eq!(quarrel.writers("y"), expected);
}

/// All that may happen to an object under a writer's hands.
#[tokio::test]
async fn a_status_is_written_over_what_others_do() {
    let Some(cluster) = ApiServer::start() else { return };
    let client = cluster.client().await;
    cluster::install::<InferenceWorkerSet>(&client, &InferenceWorkerSet::crd()).await;
    let namespace = cluster::namespace(&client).await;
    let sets: Api<InferenceWorkerSet> = Api::namespaced(client.clone(), &namespace);
    let old = sets.create(&PostParams::default(), &worker_set("x")).await.unwrap();
    let metrics = Metrics::new();
    let (leadership, _run, _release) =
        elect(client.clone(), &LeaderElectionConfig::default(), "me".into(), &metrics);
    let (desk, write) = StatusDesk::new(client, leadership, &metrics);
    let mut tasks = JoinSet::new();
    tasks.spawn(write);
    let workers = async |n: u32| {
        eventually("it is written", async || {
            let set = sets.get("x").await.unwrap();
            set.status.clone().filter(|status| status.workers == n).map(|status| (set, status))
        })
        .await
    };
    desk.say(&old, wanted("me", 1));
    let (set, status) = workers(1).await;
    assert_eq!((status.observed_generation, status.conditions[0].status.as_str()), (Some(1), "True"));
    let since = status.conditions[0].last_transition_time.clone();
    assert!(set.managed_fields().iter().any(|field| field.manager.as_deref() == Some("kinference")));

    // The version that we know is no more: another has labelled it.
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    sets.patch("x", &PatchParams::default(), &label).await.unwrap();
    desk.say(&old, wanted("me", 2));
    let (set, status) = workers(2).await;
    assert!(metrics.render().contains("status_errors_total{kind=\"conflict\",verb=\"patch\"} 1\n"));
    assert_eq!((&status.conditions[0].last_transition_time, set.labels()["a"].as_str()), (&since, "b"));

    // What is said already is not written.
    desk.say(&set, wanted("me", 2));
    sleep(Duration::from_millis(1_200)).await;
    assert_eq!(sets.get("x").await.unwrap().resource_version(), set.resource_version());

    // Many words, the last of which counts.
    for n in 3..50 {
        desk.say(&set, wanted("me", n));
    }
    let began = Instant::now();
    let writes = |metrics: &Metrics| -> Value {
        let text = metrics.render();
        let line =
            text.lines().find(|line| line.starts_with("kinference_kubernetes_status_writes_total ")).unwrap();
        serde_json::from_str(line.rsplit(' ').next().unwrap()).unwrap()
    };
    let before = writes(&metrics).as_u64().unwrap();
    workers(49).await;
    let most = 1 + before + began.elapsed().as_secs() + 1;
    assert!(writes(&metrics).as_u64().unwrap() <= most);

    // Gone, it is not spoken of; nor is another by its name before it is seen.
    sets.delete("x", &DeleteParams::default()).await.unwrap();
    desk.say(&set, wanted("me", 99));
    eventually("it is dropped", async || {
        metrics.render().contains("kinference_kubernetes_statuses_pending 0\n").then_some(())
    })
    .await;
    let new = sets.create(&PostParams::default(), &worker_set("x")).await.unwrap();
    assert!(new.status.is_none());
    desk.say(&new, wanted("me", 5));
    workers(5).await;
}
