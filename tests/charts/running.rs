//! Kinference itself, with what the chart renders: its configuration, and the rights of its service account at a real API server.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    cluster::Kubectl,
    helm::{CHART, Helm, NAMESPACE},
    read,
};

/// For what takes a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program, until the end of the test.
struct Running {
    child: Child,
    dir: tempfile::TempDir,
}

impl Running {
    /// With the configuration that is installed, on free ports, and a token of its account.
    fn start(kubectl: &Kubectl) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let inside = ["--namespace", NAMESPACE];
        let key = r"--output=jsonpath={.data.kinference\.toml}";
        let config =
            kubectl.run(&[&["get", "configmap", "kinference", key][..], &inside].concat(), "").unwrap();
        let config = config.replace("0.0.0.0:9002", "127.0.0.1:0");
        let config: String =
            config.lines().filter(|line| !line.contains("admin_listen")).map(|l| format!("{l}\n")).collect();
        fs::write(dir.path().join("kinference.toml"), config).unwrap();
        let token = kubectl.run(&[&["create", "token", "kinference"][..], &inside].concat(), "").unwrap();
        kubectl.server().kubeconfig_with_token(token.trim(), &dir.path().join("kubeconfig"));
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_kinference"))
            .arg("--config")
            .arg(dir.path().join("kinference.toml"))
            .env("KUBECONFIG", dir.path().join("kubeconfig"))
            .envs([
                ("POD_NAMESPACE", NAMESPACE),
                ("POD_NAME", "kinference-0"),
                ("RUST_LOG", "info,kinference=debug"),
            ])
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdout(Stdio::null())
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        Self { child, dir }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Waits until it has said something.
    fn says(&self, what: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.log().contains(what) {
            assert!(Instant::now() < end, "it never says `{what}`: {}", self.log());
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The chart, installed with the values of the sample.
fn install(helm: &Helm, kubectl: &Kubectl, more: &[&str]) {
    let kubeconfig = kubectl.server().kubeconfig.to_str().unwrap();
    let values = ["--values", "config/samples/values/two-replicas.yaml", "--create-namespace"];
    let place = ["--kubeconfig", kubeconfig, "--namespace", NAMESPACE];
    helm.run(&[&["upgrade", "--install", "kinference", CHART][..], &values, &place, more].concat()).unwrap();
}

#[test]
fn the_rights_of_the_chart_are_enough_and_without_them_it_says_what_it_lacks() {
    let Some(helm) = Helm::find() else { return };
    let Some(kubectl) = Kubectl::start() else { return };
    kubectl.define(&helm);
    // A lease that was not there before counts only once it has run for its duration.
    let quick =
        ["--set", "config.leader_election.lease_duration_secs=2,config.leader_election.renew_grace_secs=1"];
    install(&helm, &kubectl, &[&quick[..], &["--set", "rbac.create=false"]].concat());
    kubectl.apply(&read(Path::new("config/samples/worker-set-service.yaml")));
    let running = Running::start(&kubectl);
    running.says(
        "Kinference needs `list` on inferenceworkersets.kinference.buoyant.io in namespace `inference`",
    );
    drop(running);

    install(&helm, &kubectl, &quick);
    let running = Running::start(&kubectl);
    let seconds = format!("--timeout={}s", PATIENCE.as_secs());
    let standing =
        ["wait", "--for=condition=Accepted", "inferenceworkerset/llama", "--namespace", NAMESPACE, &seconds];
    kubectl.run(&standing, "").unwrap_or_else(|error| panic!("{error}{}", running.log()));
    let holder = ["get", "lease/bllmp", "--namespace", NAMESPACE, "--output=jsonpath={.spec.holderIdentity}"];
    assert_ne!(kubectl.run(&holder, "").unwrap(), "");
    assert!(!running.log().contains("refuses"), "{}", running.log());
}
