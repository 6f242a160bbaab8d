//! Holds `docs/metrics.md` and the code together: every family of a server with everything on, and no other.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod table;

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use kinference::{
    app::{self, App},
    config::{LeaderElectionConfig, TokenReviewConfig},
    kubernetes::{StatusDesk, Watches, elect},
    observe::{Family, LogFilter, Metrics},
    serve::token_review::TokenReviews,
};
use kube::{Client, Config};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// All that can be on without an API server.
const EVERYTHING: &str = r#"
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
tls.self_signed = true
rate_limit.enabled = true
[policy]
enabled = true
files = ["policies.yaml"]
[decision_log]
output = "file"
file = "decisions.log"
[traces]
endpoint = "http://127.0.0.1:1"
[[profile]]
name = "p"
[[workerset]]
name = "s"
profile = "p"
kv_block_size = 16
[workerset.discovery]
workers_file = "workers.toml"
"#;

const POLICIES: &str = "
apiVersion: kinference.buoyant.io/v1alpha1
kind: InferencePool
metadata: {name: chat}
spec: {models: [{name: standard, backends: [{workerSet: {name: s, model: m}}]}]}
";

async fn server(dir: &Path) -> Metrics {
    fs::write(dir.join("kinference.toml"), EVERYTHING).unwrap();
    fs::write(dir.join("policies.yaml"), POLICIES).unwrap();
    fs::write(dir.join("workers.toml"), "workers = []").unwrap();
    let (_filter, log) = LogFilter::new(EnvFilter::new("info"));
    let app = App::build(app::load(&dir.join("kinference.toml")).await.unwrap(), log).await.unwrap();
    let (metrics, admin) = (app.metrics().clone(), app.admin_addr().unwrap());
    let shutdown = CancellationToken::new();
    let looked = async {
        // It answers once everything is built.
        while reqwest::get(format!("http://{admin}/livez")).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
        shutdown.cancel();
    };
    let (ran, ()) = tokio::join!(app.run(shutdown.clone()), looked);
    ran.unwrap();
    metrics
}

/// What is there only with an API server; nobody is asked anything.
fn kubernetes(metrics: &Metrics) {
    let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let (leadership, _, _) = elect(client.clone(), &LeaderElectionConfig::default(), "r".into(), metrics);
    let _ = StatusDesk::new(client.clone(), leadership, metrics);
    Watches::new(metrics);
    TokenReviews::new(client, TokenReviewConfig::default(), metrics);
}

#[tokio::test]
async fn every_family_is_documented_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let metrics = timeout(Duration::from_secs(60), server(dir.path())).await.unwrap();
    kubernetes(&metrics);
    let registered = metrics.families();
    let names: BTreeSet<_> = registered.iter().map(|family| &family.name).collect();
    assert_eq!(names.len(), registered.len(), "a name is registered twice");
    let documented = table::rows();
    let documented: BTreeSet<_> = documented
        .into_iter()
        .map(|row| {
            let kind = ["counter", "gauge", "histogram"].into_iter().find(|kind| *kind == row.kind);
            Family { name: row.name, kind: kind.unwrap(), labels: row.labels }
        })
        .collect();
    let registered: BTreeSet<_> = registered.into_iter().collect();
    let missing: Vec<_> = registered.difference(&documented).collect();
    let stale: Vec<_> = documented.difference(&registered).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "docs/metrics.md lacks, or has otherwise: {missing:#?}\nand lists what is not there: {stale:#?}"
    );
}

#[test]
fn what_is_not_moved_end_to_end_names_where_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for row in table::rows() {
        for path in row.excuse.split('`').filter(|part| part.contains('/')) {
            assert!(root.join(path).exists(), "{}: no {path}", row.name);
        }
    }
}
