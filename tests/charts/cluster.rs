//! A real API server takes what the charts render, and the samples: strictly, so that a field that does not exist is an error.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    apiserver::ApiServer,
    helm::{Helm, NAMESPACE, objects, of_kind, values_files},
    read, root, tools, yaml_files,
};

/// kubectl with an administrator's rights.
pub struct Kubectl {
    program: PathBuf,
    server: ApiServer,
}

impl Kubectl {
    /// On a new API server, or `None` after saying what there is not. Never on a cluster of the caller's: the kinds of
    /// other projects would be replaced there by our minimal ones.
    pub fn start() -> Option<Self> {
        let program = tools::tool("kubectl", "KINFERENCE_TEST_KUBECTL")?;
        Some(Self { program, server: ApiServer::start()? })
    }

    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// What it prints; whatever it complains of is an error.
    pub fn run(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.current_dir(root()).args(args).env("KUBECONFIG", &self.server.kubeconfig);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        let [out, complaints] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap());
        if done.status.success() && complaints.is_empty() { Ok(out) } else { Err(complaints) }
    }

    /// Applies manifests for good.
    pub fn apply(&self, manifests: &str) {
        self.run(&["apply", "--validate=strict", "--filename=-"], manifests).unwrap();
    }

    /// Has the API server judge manifests.
    fn judge(&self, manifests: &str) -> Result<String, String> {
        self.run(&["apply", "--dry-run=server", "--validate=strict", "--filename=-"], manifests)
    }

    /// Defines the kinds of other projects, and our own.
    pub fn define(&self, helm: &Helm) {
        self.define_others();
        self.apply(&helm.run(&["template", "charts/kinference-crds"]).unwrap());
        self.until_established();
    }

    /// Defines the kinds of other projects.
    pub fn define_others(&self) {
        let others: Vec<_> = yaml_files("tests/charts/kinds").into_iter().map(read).collect();
        self.apply(&others.join("\n---\n"));
    }

    /// Waits until every kind can be used.
    pub fn until_established(&self) {
        self.run(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"], "").unwrap();
    }
}

/// What users install: each file of values, rendered, and the samples.
fn manifests(helm: &Helm) -> Vec<(PathBuf, String)> {
    let values = [values_files(), yaml_files("config/samples/values")].concat();
    let rendered = values.into_iter().map(|path| {
        let text = helm.render(&path);
        (path, text)
    });
    rendered.chain(yaml_files("config/samples").into_iter().map(|path| (path.clone(), read(path)))).collect()
}

#[test]
fn an_api_server_takes_every_chart_and_every_sample() {
    let Some(helm) = Helm::find() else { return };
    let Some(kubectl) = Kubectl::start() else { return };
    kubectl.define(&helm);
    for namespace in [NAMESPACE, "engines"] {
        kubectl.run(&["create", "namespace", namespace], "").unwrap();
    }
    let (mut wrong, mut texts) = (Vec::new(), Vec::new());
    for (path, text) in manifests(&helm) {
        if let Err(complaints) = kubectl.judge(&text) {
            wrong.push(format!("{}: {complaints}", path.display()));
        }
        texts.push(text);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    misspelt_fields_are_refused(&kubectl, &texts);
}

/// What is accepted is accepted for being right: the API server does say so of a field that does not exist.
fn misspelt_fields_are_refused(kubectl: &Kubectl, manifests: &[String]) {
    let misspelt = manifests.join("\n---\n").replace("\nspec:", "\nspecs:");
    let complaints = kubectl.judge(&misspelt).unwrap_err();
    let told = complaints.matches("unknown field \"specs\"").count();
    assert_eq!(told, misspelt.matches("\nspecs:").count(), "{complaints}");
}

#[test]
fn samples_name_the_service_that_the_chart_makes() {
    let Some(helm) = Helm::find() else { return };
    let rendered = helm.render(Path::new("config/samples/values/two-replicas.yaml"));
    let installed = objects(&rendered);
    let service = of_kind(&installed, "Service")[0];
    let port = service["spec"]["ports"][0]["port"].as_u64().unwrap();
    for file in yaml_files("config/samples") {
        for pool in of_kind(&objects(&read(&file)), "InferencePool") {
            let picker = &pool["spec"]["endpointPickerRef"];
            assert_eq!(picker["name"], service["metadata"]["name"], "{}", file.display());
            assert_eq!(picker["port"]["number"], port, "{}", file.display());
            assert_eq!(pool["metadata"]["namespace"], service["metadata"]["namespace"], "{}", file.display());
        }
    }
}
