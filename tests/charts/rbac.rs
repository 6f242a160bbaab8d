//! What the rendered roles allow, asked of a real API server as the pod's service account: what the enabled features need, and
//! nothing else.

use std::{collections::BTreeSet, path::Path};

use futures::{StreamExt, stream};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::{Pod, Secret},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{
    cluster::Kubectl,
    helm::{Helm, NAMESPACE, objects},
};

const VERBS: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
/// What could be asked for: group, resource with subresource, name.
const RESOURCES: &[(&str, &str, &str)] = &[
    ("kinference.buoyant.io", "inferenceworkersets", ""),
    ("kinference.buoyant.io", "inferenceworkersets/status", ""),
    ("kinference.buoyant.io", "inferencepools", ""),
    ("kinference.buoyant.io", "inferencepools/status", ""),
    ("kinference.buoyant.io", "inferencepolicies", ""),
    ("kinference.buoyant.io", "inferencepolicies/status", ""),
    ("kinference.buoyant.io", "inferenceproviders", ""),
    ("kinference.buoyant.io", "inferenceproviders/status", ""),
    ("kinference.buoyant.io", "gatewaybackends", ""),
    ("kinference.buoyant.io", "gatewaybackends/status", ""),
    ("inference.networking.k8s.io", "inferencepools", ""),
    ("inference.networking.k8s.io", "inferencepools/status", ""),
    ("discovery.k8s.io", "endpointslices", ""),
    ("", "pods", ""),
    ("", "pods/exec", ""),
    ("", "services", ""),
    ("", "secrets", ""),
    ("", "secrets", "cloud-credentials"),
    ("", "secrets", "kinference-tls"),
    ("", "configmaps", ""),
    ("", "nodes", ""),
    ("coordination.k8s.io", "leases", ""),
    ("coordination.k8s.io", "leases", "bllmp"),
    ("coordination.k8s.io", "leases", "kinference"),
    ("authentication.k8s.io", "tokenreviews", ""),
    ("rbac.authorization.k8s.io", "clusterroles", ""),
];
/// Where; empty: in all namespaces, or outside of any.
const NAMESPACES: &[&str] = &["", NAMESPACE, "engines", "elsewhere"];

/// Worker sets from the resources of all namespaces, or of one.
const WORKER_SETS: &[&str] = &[
    "get,list,watch kinference.buoyant.io/inferenceworkersets",
    "patch kinference.buoyant.io/inferenceworkersets/status",
    "list,watch discovery.k8s.io/endpointslices",
    "list,watch /pods",
];
const POLICIES: &[&str] = &[
    "get,list,watch kinference.buoyant.io/inferencepools",
    "get,list,watch kinference.buoyant.io/inferencepolicies",
    "get,list,watch kinference.buoyant.io/inferenceproviders",
    "get,list,watch kinference.buoyant.io/gatewaybackends",
    "patch kinference.buoyant.io/inferencepools/status",
    "patch kinference.buoyant.io/inferencepolicies/status",
    "patch kinference.buoyant.io/inferenceproviders/status",
    "patch kinference.buoyant.io/gatewaybackends/status",
];

/// What is rendered, and what it has to allow where: `*` for everywhere.
struct Case {
    args: &'static [&'static str],
    account: &'static str,
    allowed: &'static [(&'static str, &'static [&'static str])],
}

const CASES: &[Case] = &[
    Case { args: &["--values=charts/kinference/ci/static.yaml"], account: "kinference", allowed: &[] },
    Case {
        args: &["--values=charts/kinference/ci/default.yaml"],
        account: "kinference",
        allowed: &[
            ("*", WORKER_SETS),
            ("*", &["list,watch /nodes"]),
            (
                NAMESPACE,
                &["create coordination.k8s.io/leases", "get,update coordination.k8s.io/leases=bllmp"],
            ),
        ],
    },
    Case {
        args: &["--values=charts/kinference/ci/namespaced.yaml"],
        account: "kinference",
        allowed: &[
            ("engines", WORKER_SETS),
            (NAMESPACE, &["list,watch discovery.k8s.io/endpointslices"]),
            (
                NAMESPACE,
                &["create coordination.k8s.io/leases", "get,update coordination.k8s.io/leases=kinference"],
            ),
        ],
    },
    Case {
        args: &["--values=charts/kinference/ci/inference-pool.yaml"],
        account: "kinference",
        allowed: &[
            (NAMESPACE, &["list,watch inference.networking.k8s.io/inferencepools", "list,watch /pods"]),
            ("engines", &["list,watch discovery.k8s.io/endpointslices"]),
        ],
    },
    Case {
        args: &["--values=charts/kinference/ci/everything.yaml"],
        account: "router",
        allowed: &[
            ("*", WORKER_SETS),
            ("*", POLICIES),
            ("*", &["list,watch /nodes", "create authentication.k8s.io/tokenreviews"]),
            (
                NAMESPACE,
                &["create coordination.k8s.io/leases", "get,update coordination.k8s.io/leases=bllmp"],
            ),
            (NAMESPACE, &["list,watch /secrets=cloud-credentials"]),
        ],
    },
];

/// `verb group/resource=name in namespace`.
fn question(verb: &str, (group, resource, name): (&str, &str, &str), namespace: &str) -> String {
    let name = if name.is_empty() { String::new() } else { format!("={name}") };
    format!("{verb} {group}/{resource}{name} in `{namespace}`")
}

/// All that a case allows. Who may do something to any object may do it to one of a name.
fn wanted(case: &Case) -> BTreeSet<String> {
    let mut wanted = BTreeSet::new();
    for (place, rules) in case.allowed {
        for (verbs, what) in rules.iter().map(|rule| rule.split_once(' ').unwrap()) {
            for (group, resource, name) in RESOURCES {
                let (any, one) = (format!("{group}/{resource}"), format!("{group}/{resource}={name}"));
                let verbs = verbs.split(',').filter(|_| what == any || what == one);
                for (verb, namespace) in verbs.flat_map(|verb| NAMESPACES.iter().map(move |n| (verb, *n))) {
                    if *place == "*" || *place == namespace {
                        wanted.insert(question(verb, (group, resource, name), namespace));
                    }
                }
            }
        }
    }
    wanted
}

/// Whether whoever the client is may do that.
async fn may(client: Client, verb: &str, what: (&str, &str, &str), namespace: &str) -> Option<String> {
    let (group, resource, name) = what;
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let asked = ResourceAttributes {
        group: some(group),
        name: some(name),
        namespace: some(namespace),
        resource: some(resource),
        subresource: some(subresource),
        verb: some(verb),
        ..Default::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(asked), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let answer = Api::all(client).create(&PostParams::default(), &review).await.unwrap();
    answer.status.unwrap().allowed.then(|| question(verb, what, namespace))
}

/// All that whoever the client is may do.
async fn allowed(client: &Client) -> BTreeSet<String> {
    let questions = RESOURCES.iter().flat_map(|what| {
        VERBS.iter().flat_map(move |verb| NAMESPACES.iter().map(move |namespace| (*what, *verb, *namespace)))
    });
    let asked = stream::iter(questions)
        .map(|(what, verb, namespace)| may(client.clone(), verb, what, namespace))
        .buffer_unordered(16);
    asked.filter_map(|allowed| async { allowed }).collect().await
}

/// What every cluster comes with and the test API server does not: everybody may ask about themselves.
fn basic_rights() -> String {
    let name = "system:basic-user";
    let rule = json!({"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews"], "verbs": ["create"]});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]});
    let group =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}, "subjects": [group],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [role, binding]}).to_string()
}

/// The account and its rights out of what was rendered, as a list.
fn rights(rendered: &str) -> String {
    let mut objects = objects(rendered);
    let kinds = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
    objects.retain(|object: &Value| kinds.iter().any(|kind| object["kind"] == *kind));
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

/// A client with a token of that account.
async fn client_of(kubectl: &Kubectl, account: &str) -> Client {
    let token = kubectl.run(&["create", "token", account, "--namespace", NAMESPACE], "").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    kubectl.server().kubeconfig_with_token(token.trim(), &path);
    let kubeconfig = Kubeconfig::read_from(Path::new(&path)).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn a_pod_may_do_what_its_features_need_and_nothing_else() {
    let Some(helm) = Helm::find() else { return };
    let Some(kubectl) = Kubectl::start() else { return };
    for namespace in NAMESPACES.iter().filter(|namespace| !namespace.is_empty()) {
        kubectl.run(&["create", "namespace", namespace], "").unwrap();
    }
    kubectl.apply(&basic_rights());
    for case in CASES {
        let rights = rights(&helm.template(case.args).unwrap());
        kubectl.apply(&rights);
        let client = client_of(&kubectl, case.account).await;
        assert_eq!(allowed(&client).await, wanted(case), "{:?}", case.args);
        reads_for_real(&client, case).await;
        kubectl.run(&["delete", "--filename=-"], &rights).unwrap();
    }
}

/// The reviews are no theory: the same account reads pods, or is told which right it lacks.
async fn reads_for_real(client: &Client, case: &Case) {
    let lists = ListParams::default();
    let pods = case.allowed.iter().find(|(_, rules)| rules.contains(&"list,watch /pods"));
    let place = pods.map_or(NAMESPACE, |(place, _)| if *place == "*" { "elsewhere" } else { place });
    let read = Api::<Pod>::namespaced(client.clone(), place).list(&lists).await;
    assert_eq!(read.is_ok(), pods.is_some(), "{:?}", case.args);
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE).list(&lists).await;
    let refused =
        secrets.map(|secrets| secrets.iter().map(ResourceExt::name_any).collect::<Vec<_>>()).unwrap_err();
    assert!(refused.to_string().contains("forbidden"), "{refused}");
}
