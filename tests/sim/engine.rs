//! Starts the stand-in as a child process, and talks to it.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use reqwest::{Client, Response};
use serde_json::Value;
use tokio::time::{Instant, sleep};

const DEADLINE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// A running engine; killed on drop.
pub struct Sim {
    pub child: Child,
    pub kv_events: Option<String>,
    pub replay: Option<String>,
    http: String,
    client: Client,
}

impl Sim {
    /// Starts `vllm-sim` with the fixtures' tokenizer, model length and name.
    pub async fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_vllm-sim"))
            .args(["--model", "tiny", "--max-model-len", "4096", "--model-dir"])
            .arg(root().join("tokenizer"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let bound: Value = serde_json::from_str(&line).unwrap();
        let text = |key: &str| bound[key].as_str().map(str::to_owned);
        let (kv_events, replay) = (text("kv_events"), text("replay"));
        Self { child, kv_events, replay, http: text("http").unwrap(), client: Client::new() }
    }

    pub async fn get(&self, path: &str) -> Response {
        self.client.get(format!("http://{}{path}", self.http)).send().await.unwrap()
    }

    pub async fn send(&self, path: &str, body: &Value) -> Response {
        self.client.post(format!("http://{}{path}", self.http)).json(body).send().await.unwrap()
    }

    /// Sends a request to the data-parallel rank of this name.
    pub async fn send_to(&self, rank: &str, path: &str, body: &Value) -> Response {
        let request = self.client.post(format!("http://{}{path}", self.http));
        request.header("X-data-parallel-rank", rank).json(body).send().await.unwrap()
    }

    pub async fn post_text(&self, path: &str, body: &Value) -> (u16, String) {
        let response = self.send(path, body).await;
        (response.status().as_u16(), response.text().await.unwrap())
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.post_text(path, body).await;
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// Waits until a series of `/metrics`, given by the start of its line after `vllm:`, has this value.
    pub async fn wait_for(&self, series: &str, value: f64) {
        let deadline = Instant::now() + DEADLINE;
        let prefix = format!("vllm:{series}");
        loop {
            let text = self.get("/metrics").await.text().await.unwrap();
            let line = text.lines().find(|line| line.starts_with(&prefix)).unwrap();
            if line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() == value {
                return;
            }
            assert!(Instant::now() < deadline, "{line}, not {value}");
            sleep(PAUSE).await;
        }
    }

    /// Waits for the process to end.
    pub async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            sleep(PAUSE).await;
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures"))
}

pub fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

pub fn fixture(path: &str) -> Value {
    serde_json::from_str(&text(path)).unwrap()
}

/// All JSON files of a directory, by name.
pub fn fixtures(directory: &str) -> Vec<(String, Value)> {
    let entries = std::fs::read_dir(root().join(directory)).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let names = entries.map(name).filter(|name| name.ends_with(".json"));
    names.map(|name| (name.clone(), fixture(&format!("{directory}/{name}")))).collect()
}
