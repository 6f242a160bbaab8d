//! Replicas of the real server in one cluster: one of them writes statuses, all of them route.

use std::time::Duration;

use kinference::policy::crd::InferenceWorkerSet;
use tokio::time::Instant;

use crate::{
    apiserver::ApiServer,
    cluster::{SET, Space, kubernetes},
    stack::{Router, until},
};

/// Seconds: `lease_duration_secs`, `renew_grace_secs`, `retry_secs`.
const LEASE: [u64; 3] = [4, 3, 1];

fn configured(space: &Space) -> String {
    let [duration, grace, retry] = LEASE;
    let election = format!(
        "[leader_election]\nenabled = true\nlease_name = \"test\"\nnamespace = \"{}\"\nlease_duration_secs = {duration}\n\
         renew_grace_secs = {grace}\nretry_secs = {retry}\n",
        space.name
    );
    kubernetes(space) + &election
}

async fn leads(router: &Router) -> bool {
    router.metric("kinference_kubernetes_leader").await > 0.0
}

/// The one that leads, once it does.
async fn leader(routers: &[Router]) -> usize {
    until("one of them leads", async || {
        let mut leaders = Vec::new();
        for (i, router) in routers.iter().enumerate() {
            leaders.extend(leads(router).await.then_some(i));
        }
        assert!(leaders.len() <= 1, "two lead");
        leaders.pop()
    })
    .await
}

/// The reason of a worker set's `Accepted`, once it is of the resource as it is now.
async fn reason(space: &Space) -> String {
    let sets = space.api::<InferenceWorkerSet>();
    until("the status is of this generation", async || {
        let set = sets.get(SET).await.unwrap();
        let status = set.status?;
        (status.observed_generation == set.metadata.generation).then_some(())?;
        status.conditions.into_iter().find(|c| c.type_ == "Accepted").map(|c| c.reason)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_go_on_whatever_becomes_of_the_leader() {
    let Some(cluster) = ApiServer::start() else { return };
    let space = Space::new(cluster.client().await).await;
    space.worker_set("p").await;
    let mut routers: Vec<_> =
        (0..3).map(|_| Router::in_cluster(&cluster.kubeconfig, &configured(&space))).collect();
    assert_eq!(leader(&routers).await, leader(&routers).await);
    assert_eq!(reason(&space).await, "Accepted");
    for router in &routers {
        router.until("every replica has the fleet, leader or not", |fleet| fleet["workers"].is_array()).await;
    }
    let [duration, _, retry] = LEASE.map(Duration::from_secs);

    // One that hangs: another takes over, and the one that comes back finds itself deposed.
    let hung = routers.swap_remove(leader(&routers).await);
    hung.hang();
    let begun = Instant::now();
    leader(&routers).await;
    let took = begun.elapsed();
    eprintln!("took over from one that hung after {took:?}");
    space.worker_set("unknown").await;
    assert_eq!(reason(&space).await, "UnknownProfile");
    hung.wake();
    until("the one that hung leads no more", async || (!leads(&hung).await).then_some(())).await;
    routers.push(hung);

    // One that leaves in order hands over at once.
    let mut leaving = routers.swap_remove(leader(&routers).await);
    leaving.terminate();
    let begun = Instant::now();
    leader(&routers).await;
    eprintln!("took over from one that left after {:?}", begun.elapsed());
    assert!(begun.elapsed() < retry + duration, "the lease was given up");
    space.worker_set("p").await;
    assert_eq!(reason(&space).await, "Accepted");

    // One that is killed is waited for until its lease runs out.
    let mut killed = routers.swap_remove(leader(&routers).await);
    killed.kill();
    let begun = Instant::now();
    leader(&routers).await;
    eprintln!("took over from one that was killed after {:?}", begun.elapsed());
    space.worker_set("unknown").await;
    assert_eq!(reason(&space).await, "UnknownProfile");
}
