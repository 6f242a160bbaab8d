//! Three replicas, each with a link of its own to a real API server, contend for a Lease. At no look do two lead.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kinference::{config::LeaderElectionConfig, kubernetes::elect, observe::Metrics};
use kube::{Api, ResourceExt, api::DeleteParams};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    PATIENCE,
    apiserver::ApiServer,
    cluster, eventually,
    proxy::Link,
    replica::{DURATION, RETRY, free_lease, leader, next_leader, three},
};

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
