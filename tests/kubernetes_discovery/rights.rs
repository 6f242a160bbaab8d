//! A server that may not read everything: what it may read is the fleet, and what it may not is said.

use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::ServiceAccount,
    rbac::v1::{Role, RoleBinding},
};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::{
    apiserver::ApiServer,
    objects::{Space, endpoint},
    site::{Server, eventually, worker},
};

#[tokio::test]
async fn without_the_right_to_read_nodes_workers_have_less_topology() {
    let Some(cluster) = ApiServer::find() else { return };
    let space = Space::new(cluster.client().await).await;
    space.node("node-1").await;
    space.put::<ServiceAccount>("kinference", json!({})).await;
    let slices = json!({"rules": [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]});
    space.put::<Role>("kinference", slices).await;
    let binding = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "kinference"},
        "subjects": [{"kind": "ServiceAccount", "name": "kinference", "namespace": space.name}]
    });
    space.put::<RoleBinding>("kinference", binding).await;
    let accounts: Api<ServiceAccount> = space.api();
    let token = accounts
        .create_token_request("kinference", &PostParams::default(), &TokenRequest::default())
        .await
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    cluster.kubeconfig_with_token(&token.status.unwrap().token, &kubeconfig);

    space.slice(("vllm", "x"), "IPv4", &[endpoint(("a", "uid-a"), "10.0.0.1", true)]).await;
    let server = Server::start(&kubeconfig, &crate::slices::service(&space.name)).await;
    server.shows(worker, &["s/a 10.0.0.1:8000 ready"]).await;
    let place = &server.fleet().await[0]["topology"];
    assert_eq!(
        (&place["node_name"], &place["availability_zone"], &place["node_ip"]),
        (&json!("node-1"), &json!("zone-a"), &Value::Null)
    );
    eventually("it is known that nodes may not be read", async || {
        let forbidden = server.metric("kinference_kubernetes_watches{state=\"forbidden\"}").await;
        (forbidden == 1.0).then_some(())
    })
    .await;
    // As it was wanted: nothing is behind.
    let (status, text) = server.get("/readyz").await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &answer["behind"]), (200, &json!([])));
    assert_eq!(server.metric("kinference_kubernetes_watch_behind_seconds").await, 0.0);
}
