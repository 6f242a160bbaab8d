//! Many pods, and what the change of one of them costs the others.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    apiserver::ApiServer,
    objects::{Space, endpoint},
    site::{Server, eventually, in_a_second},
};

const SETS: usize = 10;
const PODS: usize = 30;

fn pods(set: usize, churned: Option<usize>) -> Vec<Value> {
    let pod = |n: usize| {
        let life = if churned == Some(n) { "b" } else { "a" };
        endpoint(
            (&format!("vllm-{set}-{n}"), &format!("{life}-{set}-{n}")),
            &format!("10.{set}.0.{}", n + 1),
            true,
        )
    };
    (0..PODS).map(pod).collect()
}

fn generations(fleet: &[Value]) -> BTreeMap<String, u64> {
    let of = |worker: &Value| {
        (worker["name"].as_str().unwrap().to_owned(), worker["generation"].as_u64().unwrap())
    };
    fleet.iter().map(of).collect()
}

#[tokio::test]
async fn the_churn_of_one_of_300_pods_touches_one_worker() {
    let Some(cluster) = ApiServer::find() else { return };
    let space = Space::new(cluster.client().await).await;
    space.worker_set_crd().await;
    let kubernetes = format!("[kubernetes]\nenabled = true\nnamespace = \"{}\"\n", space.name);
    let server = Server::start(&cluster.kubeconfig, &kubernetes).await;
    for set in 0..SETS {
        let service = format!("s{set}");
        space.slice((&service, &service), "IPv4", &pods(set, None)).await;
        space.worker_set(&service, &service, json!({})).await;
    }
    let begun = Instant::now();
    let all = eventually("300 workers", async || {
        Some(server.fleet().await).filter(|fleet| fleet.len() == SETS * PODS)
    })
    .await;
    eprintln!("300 pods over 10 sets: {} ms", begun.elapsed().as_millis());
    let before = generations(&all);
    assert_eq!(before.len(), SETS * PODS, "names are unique");
    server.counts(300.0, 0.0).await;

    space.slice(("s4", "s4"), "IPv4", &pods(4, Some(7))).await;
    let begun = Instant::now();
    let after = eventually("the pod is another", async || {
        Some(generations(&server.fleet().await)).filter(|now| now["vllm-4-7"] != before["vllm-4-7"])
    })
    .await;
    in_a_second("one pod of 300 is replaced", begun.elapsed());
    let touched: Vec<_> = after.iter().filter(|(name, generation)| before[*name] != **generation).collect();
    assert_eq!(touched.len(), 1, "{touched:?}");
    server.counts(301.0, 1.0).await;
}
