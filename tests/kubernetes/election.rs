//! Three replicas, each with a link of its own to a real API server, contend for a Lease and write statuses.
//!
//! The timeline is kept from inside: when each replica may write, and from outside: the versions that the API server made.

use std::{convert::Infallible, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kinference::{
    config::LeaderElectionConfig,
    kubernetes::{
        Leadership, Release, StatusDesk, elect,
        status::{Verdict, Wanted},
    },
    observe::Metrics,
    policy::crd::InferenceWorkerSet,
};
use kube::{
    Api, Client, CustomResourceExt, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    PATIENCE,
    apiserver::ApiServer,
    cluster, eventually,
    proxy::{Link, Proxy},
};

const DURATION: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(300);

fn config(namespace: &str) -> LeaderElectionConfig {
    LeaderElectionConfig {
        enabled: true,
        namespace: Some(namespace.into()),
        lease_duration: DURATION,
        renew_grace: Duration::from_secs(2),
        retry: RETRY,
        ..LeaderElectionConfig::default()
    }
}

struct Replica {
    name: String,
    proxy: Proxy,
    leadership: Leadership,
    release: Release,
    desk: StatusDesk,
    metrics: Metrics,
    tasks: JoinSet<Infallible>,
}

impl Replica {
    async fn start(cluster: &ApiServer, namespace: &str, name: &str) -> Self {
        let (client, proxy) = cluster::proxied(cluster).await;
        let metrics = Metrics::new();
        let (leadership, contend, release) = elect(client.clone(), &config(namespace), name.into(), &metrics);
        let (desk, write) = StatusDesk::new(client, leadership.clone(), &metrics);
        let mut tasks = JoinSet::new();
        tasks.spawn(contend);
        tasks.spawn(write);
        Self { name: name.into(), proxy, leadership, release, desk, metrics, tasks }
    }

    /// As a process that is killed.
    async fn crash(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Who leads; that there are not two is asserted at every look.
fn leader(replicas: &[Replica]) -> Option<usize> {
    let leaders: Vec<_> = (0..replicas.len()).filter(|at| replicas[*at].leadership.leads()).collect();
    assert!(leaders.len() <= 1, "{leaders:?} lead at once");
    leaders.first().copied()
}

async fn next_leader(replicas: &[Replica]) -> usize {
    eventually("one leads", async || leader(replicas)).await
}

/// A Lease that is free: made beforehand, so that nobody need wait for a holder that may be.
async fn free_lease(client: &Client, namespace: &str) -> Api<Lease> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease =
        serde_json::from_value(json!({"metadata": {"name": "bllmp", "labels": {"kept": "yes"}}})).unwrap();
    leases.create(&PostParams::default(), &lease).await.unwrap();
    leases
}

async fn three(cluster: &ApiServer, namespace: &str) -> Vec<Replica> {
    let mut replicas = Vec::new();
    for name in ["a", "b", "c"] {
        replicas.push(Replica::start(cluster, namespace, name).await);
    }
    replicas
}

async fn held_by(leases: &Api<Lease>) -> (Option<String>, i32) {
    let lease = leases.get("bllmp").await.unwrap();
    assert_eq!(lease.labels()["kept"], "yes");
    let spec = lease.spec.unwrap_or_default();
    (spec.holder_identity, spec.lease_transitions.unwrap_or_default())
}

#[tokio::test]
async fn one_of_three_leads_and_hands_over() {
    let Some(cluster) = ApiServer::find() else { return };
    let client = cluster.client().await;
    let namespace = cluster::namespace(&client).await;
    let leases = free_lease(&client, &namespace).await;
    let mut replicas = three(&cluster, &namespace).await;
    let first = next_leader(&replicas).await;
    assert_eq!(held_by(&leases).await, (Some(replicas[first].name.clone()), 1));
    // It renews, for longer than a lease is valid.
    let end = Instant::now() + DURATION * 2;
    while Instant::now() < end {
        assert_eq!(leader(&replicas), Some(first));
        sleep(Duration::from_millis(20)).await;
    }
    assert!(replicas[first].metrics.render().contains("kinference_kubernetes_leader 1\n"));

    // A clean exit.
    let gone = replicas.remove(first);
    let left = Instant::now();
    gone.release.give_up().await;
    assert!(!gone.leadership.leads());
    let second = next_leader(&replicas).await;
    let took = left.elapsed();
    assert!(took < RETRY + Duration::from_secs(1), "{took:?}");
    assert_eq!(held_by(&leases).await, (Some(replicas[second].name.clone()), 2));

    // A crash.
    replicas.remove(second).crash().await;
    let left = Instant::now();
    let last = next_leader(&replicas).await;
    let took = left.elapsed();
    assert!(took > DURATION / 2, "it waits for the lease to run out: {took:?}");
    assert!(took < DURATION + RETRY + Duration::from_secs(2), "{took:?}");
    assert_eq!(held_by(&leases).await, (Some(replicas[last].name.clone()), 3));
    drop(gone.tasks);
}

#[tokio::test]
async fn a_partitioned_holder_stops_before_another_starts() {
    let Some(cluster) = ApiServer::find() else { return };
    let client = cluster.client().await;
    let namespace = cluster::namespace(&client).await;
    let leases = free_lease(&client, &namespace).await;
    let replicas = three(&cluster, &namespace).await;
    let mut holder = next_leader(&replicas).await;
    for link in [Link::Stalled, Link::Cut] {
        replicas[holder].proxy.set(link);
        eventually("it stops", async || (leader(&replicas) != Some(holder)).then_some(())).await;
        assert_eq!(leader(&replicas), None, "there is time between the two");
        let next = next_leader(&replicas).await;
        assert!(
            next != holder && replicas[holder].metrics.render().contains("kinference_kubernetes_leader 0\n")
        );
        replicas[holder].proxy.set(Link::Up);
        // Back again, it takes nothing from anybody.
        let end = Instant::now() + RETRY * 5;
        while Instant::now() < end {
            assert_eq!(leader(&replicas), Some(next));
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(held_by(&leases).await.0.as_ref(), Some(&replicas[next].name));
        holder = next;
    }
}

#[tokio::test]
async fn a_lease_may_be_deleted() {
    let Some(cluster) = ApiServer::find() else { return };
    let client = cluster.client().await;
    let namespace = cluster::namespace(&client).await;
    let leases: Api<Lease> = Api::namespaced(client, &namespace);
    // None is there: who makes it waits, as it may have been deleted under a holder.
    let began = Instant::now();
    let replicas = three(&cluster, &namespace).await;
    next_leader(&replicas).await;
    assert!(began.elapsed() >= DURATION);
    leases.delete("bllmp", &DeleteParams::default()).await.unwrap();
    eventually("its holder leads", async || {
        let holder = leases.get_opt("bllmp").await.unwrap()?.spec?.holder_identity?;
        (holder == replicas[leader(&replicas)?].name).then_some(())
    })
    .await;
}

#[tokio::test]
async fn without_election_everybody_leads() {
    let Some(cluster) = ApiServer::find() else { return };
    let off = LeaderElectionConfig::default();
    let metrics = Metrics::new();
    let (leadership, run, release) = elect(cluster.client().await, &off, "me".into(), &metrics);
    let mut tasks = JoinSet::new();
    tasks.spawn(run);
    assert!(leadership.leads() && leadership.permit().unwrap().deadline.is_none());
    timeout(PATIENCE, release.give_up()).await.unwrap();
}

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

/// Every replica wants to say something else all the time. For each object the API server must see the writes of one
/// leader, then those of the next, never one of the former after one of the latter, even if a partition held it up.
#[tokio::test]
async fn writes_of_two_leaders_never_interleave() {
    let Some(cluster) = ApiServer::start() else { return };
    let client = cluster.client().await;
    cluster::install::<InferenceWorkerSet>(&client, &InferenceWorkerSet::crd()).await;
    let namespace = cluster::namespace(&client).await;
    free_lease(&client, &namespace).await;
    let sets: Api<InferenceWorkerSet> = Api::namespaced(client.clone(), &namespace);
    for name in ["x", "y"] {
        sets.create(&PostParams::default(), &worker_set(name)).await.unwrap();
    }
    let replicas = three(&cluster, &namespace).await;
    let mut timeline: Vec<(String, String)> = Vec::new();
    let mut said = 0;
    let mut say = async |replicas: &[Replica]| {
        said += 1;
        for set in sets.list(&ListParams::default()).await.unwrap() {
            let writer = set.status.as_ref().and_then(|status| status.conditions.first());
            if let Some(writer) = writer {
                let seen = (set.name_any(), writer.message.clone());
                if timeline.iter().rev().find(|(name, _)| *name == seen.0) != Some(&seen) {
                    timeline.push(seen);
                }
            }
            for replica in replicas {
                replica.desk.say(&set, wanted(&replica.name, said));
            }
        }
        sleep(Duration::from_millis(20)).await;
        leader(replicas)
    };
    let mut leaders = Vec::new();
    for link in [Link::Stalled, Link::Cut] {
        let holder = loop {
            if let Some(holder) = say(&replicas).await {
                break holder;
            }
        };
        leaders.push(format!("says {}", replicas[holder].name));
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            say(&replicas).await;
        }
        replicas[holder].proxy.set(link);
        let next = loop {
            if let Some(next) = say(&replicas).await
                && next != holder
            {
                break next;
            }
        };
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            say(&replicas).await;
        }
        // What the partition held up goes out now.
        replicas[holder].proxy.set(Link::Up);
        assert_eq!(leader(&replicas), Some(next));
    }
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        say(&replicas).await;
    }
    leaders.push(format!("says {}", replicas[leader(&replicas).unwrap()].name));
    for object in ["x", "y"] {
        let writers: Vec<_> =
            timeline.iter().filter(|(name, _)| name == object).map(|(_, writer)| writer.clone()).collect();
        assert_eq!(writers, leaders, "{object}");
    }
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
