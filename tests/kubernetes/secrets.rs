//! Secrets of a real API server as providers' credentials: they come, change and go, and nothing else may be read.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use k8s_openapi::{
    ByteString,
    api::{
        core::v1::Secret as Object,
        rbac::v1::{Role, RoleBinding},
    },
};
use kinference::{
    kubernetes::{MOST_SECRETS, Watches, follow_secrets},
    observe::Metrics,
    policy::{SecretKey, Secrets},
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::{task::JoinSet, time::timeout};

use crate::{PATIENCE, apiserver::ApiServer, cluster, eventually, watches::PACE};

/// Who may read nothing until told otherwise.
const NOBODY: &str = "nobody-in-particular";

/// A namespace with Secrets, and somebody who follows them.
struct Site {
    namespace: String,
    api: Api<Object>,
    secrets: Secrets,
    watches: Watches,
    _task: JoinSet<Infallible>,
}

impl Site {
    async fn new(admin: &Client, reader: Client) -> Self {
        let namespace = cluster::namespace(admin).await;
        let watches = Watches::with_pace(PACE, &Metrics::new());
        let secrets = Secrets::default();
        let mut task = JoinSet::new();
        task.spawn(follow_secrets(reader, watches.clone(), secrets.clone()));
        let api = Api::namespaced(admin.clone(), &namespace);
        Self { namespace, api, secrets, watches, _task: task }
    }

    fn key(&self, name: &str, key: &str) -> SecretKey {
        SecretKey { namespace: self.namespace.as_str().into(), name: name.into(), key: key.into() }
    }

    fn want(&self, keys: &[&SecretKey]) {
        self.secrets.want(keys.iter().map(|key| (*key).clone()).collect());
    }

    async fn put(&self, name: &str, data: &[(&str, &str)]) {
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        let data: BTreeMap<_, _> = data.iter().map(|(key, value)| (*key, bytes(value))).collect();
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data});
        self.api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.unwrap();
    }

    /// Waits until that is known of a key, or why it is not.
    async fn until(&self, key: &SecretKey, want: &str) {
        let said = || match self.secrets.get(key) {
            Ok(secret) => secret.expose().to_owned(),
            Err(why) => why.to_string(),
        };
        let mut changes = self.secrets.changes();
        let wait = async {
            while !said().contains(want) {
                changes.changed().await.unwrap();
            }
        };
        assert!(timeout(PATIENCE, wait).await.is_ok(), "{key} {}, not {want}", said());
    }
}

#[tokio::test]
async fn credentials_come_change_and_go() {
    let Some(cluster) = ApiServer::find() else { return };
    let client = cluster.client().await;
    let site = Site::new(&client, client.clone()).await;
    let (token, other, absent) =
        (site.key("cloud", "token"), site.key("cloud", "other"), site.key("gone", "token"));
    site.put("cloud", &[("token", "sk-1\n")]).await;
    site.put("unnamed", &[("token", "sk-x")]).await;
    site.want(&[&token, &other, &absent]);
    site.until(&token, "sk-1").await;
    site.until(&other, "does not exist").await;
    site.until(&absent, "does not exist").await;
    site.put("cloud", &[("token", "sk-2"), ("other", "sk-3")]).await;
    site.until(&token, "sk-2").await;
    site.until(&other, "sk-3").await;
    site.put("gone", &[("token", "sk-4")]).await;
    site.until(&absent, "sk-4").await;
    site.api.delete("cloud", &DeleteParams::default()).await.unwrap();
    site.until(&token, "does not exist").await;
    assert_eq!(site.watches.report().len(), 2, "one for each Secret that is named");
    site.want(&[&absent]);
    eventually("the other is let go of", async || (site.watches.report().len() == 1).then_some(())).await;
    site.until(&token, "was not read yet").await;
    site.until(&absent, "sk-4").await;
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_and_one_secret_is_enough() {
    let Some(cluster) = ApiServer::find() else { return };
    let admin = cluster.client().await;
    let site = Site::new(&admin, acting_as(&cluster, NOBODY).await).await;
    let (token, other) = (site.key("cloud", "token"), site.key("other", "token"));
    for name in ["cloud", "other"] {
        site.put(name, &[("token", &format!("sk-{name}"))]).await;
    }
    site.want(&[&token, &other]);
    let needed = format!("Kinference needs `list` on secrets in namespace `{}`", site.namespace);
    site.until(&token, &needed).await;
    allow(&admin, &site.namespace, "cloud").await;
    site.until(&token, "sk-cloud").await;
    site.put("cloud", &[("token", "sk-rotated")]).await;
    site.until(&token, "sk-rotated").await;
    site.until(&other, &needed).await;
}

#[tokio::test]
async fn the_number_of_watches_is_bounded() {
    let Some(cluster) = ApiServer::find() else { return };
    let client = cluster.client().await;
    let site = Site::new(&client, client.clone()).await;
    let keys: BTreeSet<_> =
        (0..=MOST_SECRETS).map(|number| site.key(&format!("s{number:03}"), "token")).collect();
    let last = keys.last().unwrap().clone();
    site.secrets.want(keys);
    site.until(&last, "more than 64 Secrets").await;
    assert_eq!(site.watches.report().len(), MOST_SECRETS);
}

/// A client of an administrator who acts as somebody else.
async fn acting_as(cluster: &ApiServer, somebody: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(&cluster.kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.auth_info.impersonate = Some(somebody.to_owned());
    Client::try_from(config).unwrap()
}

/// As the chart allows it.
async fn allow(admin: &Client, namespace: &str, secret: &str) {
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["list", "watch"]});
    let role: Role =
        serde_json::from_value(json!({"metadata": {"name": "reader"}, "rules": [rule]})).unwrap();
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": NOBODY}],
    }))
    .unwrap();
    let how = PostParams::default();
    Api::namespaced(admin.clone(), namespace).create(&how, &role).await.unwrap();
    Api::namespaced(admin.clone(), namespace).create(&how, &binding).await.unwrap();
}
