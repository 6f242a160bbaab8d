//! The kinds of `kinference.buoyant.io` at a real API server, and the same manifests without one: both take and reject the same.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[expect(dead_code, reason = "shared with tests that use more of it")]
#[path = "../apiserver/mod.rs"]
mod apiserver;
mod bad;
mod cluster;
mod copies;
mod good;
mod manifests;
mod reference;

use kinference::policy;

use apiserver::ApiServer;
use cluster::Cluster;

#[tokio::test]
async fn all_kinds_are_established_without_a_warning() {
    let Some(server) = ApiServer::find() else { return };
    let cluster = Cluster::with_kinds(&server).await;
    for (kind, short) in [
        ("InferenceWorkerSet", "iws"),
        ("InferenceProvider", "iprov"),
        ("InferencePool", "ipool"),
        ("InferencePolicy", "ipol"),
        ("GatewayBackend", "gwb"),
    ] {
        let served = cluster.resource(kind).await;
        assert_eq!(served["shortNames"][0], short);
        assert_eq!(served["categories"][0], "kinference");
    }
}

#[tokio::test]
async fn bad_manifests_are_rejected_by_both() {
    let Some(server) = ApiServer::find() else { return };
    let cluster = Cluster::with_kinds(&server).await;
    let cases = bad::cases();
    assert!(cases.len() >= 40, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let manifest = case.manifest();
        let by_server = cluster.create(&manifest).await.map(|_| "nothing".to_owned());
        let problems = policy::read(manifest).err().unwrap_or_default();
        let said: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let [server, offline] = case.words();
        for (who, said, words) in [
            ("the API server", by_server.unwrap_or_else(|message| message), server),
            ("kinference", said.join("; "), offline),
        ] {
            if !words.iter().all(|word| said.contains(word)) {
                wrong.push(format!("{} {}={}: {who} says {said:?}", case.kind, case.at, case.put));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn good_manifests_come_back_with_the_same_defaults() {
    let Some(server) = ApiServer::find() else { return };
    let cluster = Cluster::with_kinds(&server).await;
    for manifest in good::manifests() {
        let stored = cluster.create(&manifest).await.unwrap_or_else(|why| panic!("{manifest}: {why}"));
        good::fits_its_type(&stored);
        let read = policy::read(manifest.clone()).unwrap_or_else(|why| panic!("{manifest}: {why:?}"));
        assert_eq!(good::spec(&read), good::plain(&stored["spec"]), "{manifest}");
    }
}

#[tokio::test]
async fn a_status_is_written_apart_from_the_spec() {
    let Some(server) = ApiServer::find() else { return };
    let cluster = Cluster::with_kinds(&server).await;
    for manifest in manifests::one_of_each() {
        cluster.status_is_apart(manifest).await;
    }
}
