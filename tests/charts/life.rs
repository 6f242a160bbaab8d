//! Helm installs, upgrades and removes the charts at a real API server.

use crate::{
    cluster::Kubectl,
    helm::{CHART, Helm, NAMESPACE},
    read,
};

const CRDS: &str = "charts/kinference-crds";

/// Names of what is there, of those kinds.
fn there(kubectl: &Kubectl, kinds: &str) -> Vec<String> {
    let found =
        kubectl.run(&["get", kinds, "--namespace", NAMESPACE, "--output=name", "--ignore-not-found"], "");
    found.unwrap().lines().map(str::to_owned).collect()
}

/// The checksum that decides about a rollout.
fn checksum(kubectl: &Kubectl) -> String {
    let path = r"--output=jsonpath={.spec.template.metadata.annotations.checksum/config}";
    kubectl.run(&["get", "deployment/kinference", "--namespace", NAMESPACE, path], "").unwrap()
}

#[test]
fn it_installs_upgrades_and_uninstalls() {
    let Some(helm) = Helm::find() else { return };
    let Some(kubectl) = Kubectl::start() else { return };
    let kubeconfig = kubectl.server().kubeconfig.to_str().unwrap();
    let run =
        |args: &[&str]| helm.run(&[args, &["--kubeconfig", kubeconfig, "--namespace", NAMESPACE]].concat());
    let everything = ["--values", "charts/kinference/ci/everything.yaml", "--set", "fullnameOverride="];
    kubectl.define_others();

    run(&["install", "kinference-crds", CRDS, "--create-namespace"]).unwrap();
    kubectl.until_established();
    kubectl.apply(&read("config/samples/worker-set-selector.yaml"));
    run(&["upgrade", "kinference-crds", CRDS]).unwrap();
    let notes = run(&["install", "kinference", CHART, "--create-namespace"]).unwrap();
    assert!(notes.contains("serves gRPC over TLS at kinference.inference:9002"), "{notes}");
    let kinds = "deployments,services,configmaps,serviceaccounts,poddisruptionbudgets,roles,rolebindings";
    assert_eq!(there(&kubectl, kinds).len(), 7);
    let installed = checksum(&kubectl);

    run(&["upgrade", "kinference", CHART, "--set", "replicas=3"]).unwrap();
    assert_eq!(checksum(&kubectl), installed, "the configuration is the same");
    run(&[&["upgrade", "kinference", CHART][..], &everything].concat()).unwrap();
    assert_ne!(checksum(&kubectl), installed);
    let optional = "networkpolicies,horizontalpodautoscalers,servicemonitors,prometheusrules";
    assert_eq!(there(&kubectl, optional).len(), 4);
    run(&["rollback", "kinference", "1"]).unwrap();
    assert_eq!((there(&kubectl, optional).len(), checksum(&kubectl)), (0, installed));

    run(&["uninstall", "kinference"]).unwrap();
    assert_eq!(there(&kubectl, kinds), Vec::<String>::new());
    assert_eq!(there(&kubectl, "clusterroles,clusterrolebindings"), Vec::<String>::new());

    // The kinds outlive their chart, or their resources would be lost with them; and it can be installed again.
    run(&["uninstall", "kinference-crds"]).unwrap();
    let kept = "inferenceworkerset.kinference.buoyant.io/qwen";
    assert_eq!(there(&kubectl, "inferenceworkersets"), [kept]);
    run(&["install", "kinference-crds", CRDS]).unwrap();
    assert_eq!(there(&kubectl, "inferenceworkersets"), [kept]);
}
