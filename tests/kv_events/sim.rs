//! Two ranks end to end: the stand-in engine says where they publish, and is followed there, also after a restart.

use std::process::Stdio;

use kinference::{cache::block_keys, fleet::KvState, ingest::scrape, types::PromptTokens};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::router::{ID, Router};

const BLOCK: u32 = 16;

struct Sim {
    http: String,
    child: Child,
}

impl Sim {
    async fn start(listen: &str) -> Self {
        let tokenizer = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tokenizer");
        let any = "tcp://127.0.0.1:0";
        let mut child = Command::new(env!("CARGO_BIN_EXE_vllm-sim"))
            .args([
                "--model",
                "tiny",
                "--model-dir",
                tokenizer,
                "--max-model-len",
                "4096",
                "--speedup",
                "100",
            ])
            .args(["--data-parallel-size", "2", "--kv-events", any, "--replay", any, "--listen", listen])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
        let bound: Value = serde_json::from_str(&line).unwrap();
        Self { http: bound["http"].as_str().unwrap().to_owned(), child }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    /// Has a rank compute a prompt of so many blocks and a bit; all prompts begin alike.
    async fn compute(&self, rank: u32, blocks: u32) {
        let body = json!({"model": "tiny", "prompt": ids(blocks), "max_tokens": 1});
        let request = Client::new().post(self.url("/v1/completions")).header("x-data-parallel-rank", rank);
        request.json(&body).send().await.unwrap().error_for_status().unwrap();
    }
}

fn ids(blocks: u32) -> Vec<u32> {
    (0..=blocks * BLOCK).collect()
}

#[tokio::test]
async fn ranks_that_an_engine_tells_of_are_followed_also_after_its_restart() {
    let mut sim = Sim::start("127.0.0.1:0").await;
    let router = Router::asking(sim.url(""), BLOCK);
    router.reaches(KvState::Synced, 0).await;
    sim.compute(0, 2).await;
    sim.compute(1, 4).await;
    router.reaches(KvState::Synced, 6).await;
    router.index.settled().await;
    let prompt = PromptTokens { ids: ids(9).into(), ..PromptTokens::default() };
    assert_eq!(router.index.overlap(&block_keys(&prompt, BLOCK))[&ID].confirmed, 4);
    let text = reqwest::get(sim.url("/metrics")).await.unwrap().text().await.unwrap();
    assert_eq!(scrape::parse(&text, Some("tiny")).unwrap().requests, 2.0, "those of both ranks");

    sim.child.kill().await.unwrap();
    router.reaches(KvState::Disconnected, 0).await;
    let sim = Sim::start(&sim.http).await;
    router.reaches(KvState::Synced, 0).await;
    sim.compute(1, 3).await;
    router.reaches(KvState::Synced, 3).await;
}
