//! The server as a process beside an API server, and what it shows.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use kinference::serve::proto::{PickRequest, PickResponse, picker_client::PickerClient};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Status, transport::Channel};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something is so.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The server; ends with the test.
pub struct Server {
    child: Child,
    pub admin: String,
    pub picker: PickerClient<Channel>,
    _dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Server {
    /// With one profile, `p`, and what `more` says.
    pub async fn start(kubeconfig: &Path, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n{}\n[[profile]]\nname = \"p\"\n{more}",
            if more.contains("[real]") { "" } else { "mock_mode = true" }
        )
        .replace("[real]", "");
        fs::write(dir.path().join("kinference.toml"), text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_kinference"))
            .args(["--log-format", "json", "--config"])
            .arg(dir.path().join("kinference.toml"))
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", dir.path())
            .env_remove("RUST_LOG")
            .env_remove("POD_NAMESPACE")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (grpc, admin) = loop {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "it ended");
            let fields = serde_json::from_str::<Value>(&line).unwrap()["fields"].clone();
            if fields["message"] == "listening" {
                let field = |name: &str| fields[name].as_str().unwrap().to_owned();
                break (field("grpc"), field("admin"));
            }
        };
        // Read on, so that the server never blocks on its log.
        thread::spawn(move || log.read_to_string(&mut String::new()));
        let channel = Channel::from_shared(format!("http://{grpc}")).unwrap().connect().await.unwrap();
        Self { child, admin, picker: PickerClient::new(channel), _dir: dir }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub async fn get(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.admin);
        let response = timeout(PATIENCE, reqwest::get(url)).await.unwrap().unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    pub async fn fleet(&self) -> Vec<Value> {
        let fleet: Value = serde_json::from_str(&self.get("/api/fleet").await.1).unwrap();
        fleet["workers"].as_array().unwrap().clone()
    }

    /// Waits until every worker is shown so, in alphabetical order; how long that took.
    pub async fn shows(&self, show: fn(&Value) -> String, expected: &[&str]) -> Duration {
        let begun = Instant::now();
        loop {
            let mut shown: Vec<String> = self.fleet().await.iter().map(show).collect();
            shown.sort();
            if shown == expected {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < PATIENCE, "{shown:?} is not {expected:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// A sample of `/metrics`.
    pub async fn metric(&self, series: &str) -> f64 {
        let text = self.get("/metrics").await.1;
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Waits until so many workers were added and removed: they are counted a moment after they are there.
    pub async fn counts(&self, added: f64, removed: f64) {
        let count = async |change| {
            self.metric(&format!("kinference_fleet_changes_total{{change=\"{change}\"}}")).await
        };
        eventually("the changes are counted", async || {
            ((count("added").await, count("removed").await) == (added, removed)).then_some(())
        })
        .await;
    }

    pub async fn pick(&self) -> Result<PickResponse, Status> {
        let answered = timeout(PATIENCE, self.picker.clone().pick(PickRequest::default())).await.unwrap();
        answered.map(tonic::Response::into_inner)
    }
}

/// A worker as `set/name endpoint availability`.
pub fn worker(worker: &Value) -> String {
    let field = |name: &str| worker[name].as_str().unwrap();
    format!("{}/{} {} {}", field("workerset"), field("name"), field("endpoint"), field("availability"))
}

/// That was quick enough.
pub fn in_a_second(what: &str, took: Duration) {
    eprintln!("{what}: {} ms", took.as_millis());
    assert!(took < Duration::from_secs(1), "{what} took {took:?}");
}
