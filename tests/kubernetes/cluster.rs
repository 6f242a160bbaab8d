//! A real API server as these tests use it: namespaces of their own, and clients through proxies.

use std::fmt::Debug;

use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, Resource,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::de::DeserializeOwned;

use crate::{apiserver::ApiServer, eventually, proxy::Proxy};

/// A namespace that only one test knows.
pub async fn namespace(client: &Client) -> String {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(format!("kinference-test-{:016x}", rand::random::<u64>()));
    let made = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await;
    made.unwrap().metadata.name.unwrap()
}

/// Makes the API server serve a kind, and waits until it does.
pub async fn install<K>(client: &Client, definition: &CustomResourceDefinition)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    Api::all(client.clone()).create(&PostParams::default(), definition).await.unwrap();
    let kind: Api<K> = Api::all(client.clone());
    eventually("the kind is served", async || kind.list(&ListParams::default()).await.ok()).await;
}

/// A client of its own behind a proxy of its own.
pub async fn proxied(cluster: &ApiServer) -> (Client, Proxy) {
    let kubeconfig = Kubeconfig::read_from(&cluster.kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let to = (config.cluster_url.host().unwrap(), config.cluster_url.port_u16().unwrap_or(443));
    let to = tokio::net::lookup_host(to).await.unwrap().next().unwrap();
    let proxy = Proxy::start(to).await;
    config.cluster_url = format!("https://{}", proxy.addr).parse().unwrap();
    (Client::try_from(config).unwrap(), proxy)
}
