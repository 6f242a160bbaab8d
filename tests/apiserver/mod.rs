//! A real Kubernetes API server: the cluster of `KINFERENCE_TEST_KUBECONFIG`, else one that is started with the `start` of
//! the folder `KINFERENCE_TEST_APISERVER` and ended with its `stop`.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

/// One that runs.
pub struct ApiServer {
    /// Of an administrator.
    pub kubeconfig: PathBuf,
    own: Option<Own>,
}

struct Own {
    stop: PathBuf,
    dir: tempfile::TempDir,
}

impl ApiServer {
    /// One to test with, or `None` after saying that there is none.
    pub fn find() -> Option<Self> {
        if let Some(path) = env::var_os("KINFERENCE_TEST_KUBECONFIG") {
            return Some(Self { kubeconfig: path.into(), own: None });
        }
        Self::start()
    }

    /// One of our own, that may be stopped, or `None` after saying that there is none.
    pub fn start() -> Option<Self> {
        let Some(tool) = env::var_os("KINFERENCE_TEST_APISERVER").map(PathBuf::from) else {
            // Past the test harness, which swallows what `eprintln!` says.
            let why = b"SKIPPED: no Kubernetes API server; KINFERENCE_TEST_APISERVER names none to start\n";
            std::io::stderr().write_all(why).unwrap();
            return None;
        };
        // A port that the tool found free may be another's before it is bound.
        let server = (0..3).find_map(|_| Self::try_start(&tool));
        Some(server.unwrap_or_else(|| panic!("the API server does not start")))
    }

    fn try_start(tool: &Path) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let started =
            Command::new(tool.join("start")).arg(dir.path()).stderr(Stdio::inherit()).output().unwrap();
        let kubeconfig = String::from_utf8(started.stdout).unwrap().trim().into();
        // Dropped, it ends what did start.
        let server = Self { kubeconfig, own: Some(Own { stop: tool.join("stop"), dir }) };
        started.status.success().then_some(server)
    }

    /// A client with an administrator's rights.
    pub async fn client(&self) -> kube::Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        kube::Client::try_from(config).unwrap()
    }

    /// A kubeconfig at `path` for whoever has that bearer token.
    pub fn kubeconfig_with_token(&self, token: &str, path: &Path) {
        let mut value = serde_json::to_value(Kubeconfig::read_from(&self.kubeconfig).unwrap()).unwrap();
        for user in value["users"].as_array_mut().unwrap() {
            user["user"] = json!({"token": token});
        }
        fs::write(path, value.to_string()).unwrap();
    }

    /// Ends it, if it is our own.
    pub fn stop(&mut self) {
        if let Some(own) = self.own.take() {
            Command::new(own.stop).arg(own.dir.path()).status().ok();
        }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.stop();
    }
}
