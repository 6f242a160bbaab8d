//! `vllm-sim` as a process: its HTTP, metrics and KV events against what real engines were recorded to say.

#![cfg(feature = "sim")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "sim/engine.rs"]
mod engine;

use std::{collections::BTreeSet, time::Duration};

use engine::{Sim, fixture, fixtures};
use serde_json::{Value, json};
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

const PATIENCE: Duration = Duration::from_secs(10);
const EVENTS: [&str; 4] = ["--kv-events", "tcp://127.0.0.1:0", "--replay", "tcp://127.0.0.1:0"];

fn prompt(tokens: std::ops::Range<u32>, max_tokens: u32) -> Value {
    json!({"model": "tiny", "prompt": tokens.collect::<Vec<_>>(), "max_tokens": max_tokens})
}

/// Every path into an object, so that shapes can be compared.
fn paths(value: &Value) -> BTreeSet<String> {
    fn walk(value: &Value, at: &str, out: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(key, value)| walk(value, &format!("{at}.{key}"), out))
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, &format!("{at}[]"), out)),
            _ => {
                out.insert(at.to_owned());
            }
        }
    }
    let mut out = BTreeSet::new();
    walk(value, "", &mut out);
    out
}

fn sse(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn render_and_tokenize_answer_as_recorded() {
    let sim = Sim::start(&["--enable-scale-out"]).await;
    let closed = Sim::start(&[]).await;
    let mut compared = 0;
    for (name, recorded) in fixtures("vllm-0.32/render") {
        let path = recorded["path"].as_str().unwrap();
        if !(path.ends_with("/render") || path.ends_with("tokenize")) {
            continue;
        }
        let sim = if recorded["status"] == 403 { &closed } else { &sim };
        let (status, answer) = sim.post(path, &recorded["request"]).await;
        assert_eq!(recorded["status"], status, "{name}: {answer}");
        let recorded = &recorded["response"];
        let ids = |answer: &Value| match answer {
            Value::Array(prompts) => prompts.iter().map(|prompt| prompt["token_ids"].clone()).collect(),
            one => one["token_ids"].clone(),
        };
        assert_eq!(ids(&answer), ids(recorded), "{name}");
        for key in
            ["error", "tokens", "count", "max_model_len", "token_strs", "prompt", "cache_salt", "model"]
        {
            assert_eq!(answer.get(key), recorded.get(key), "{name}: {key}");
        }
        compared += 1;
    }
    assert!(compared > 20, "{compared}");
}

#[tokio::test]
async fn answers_have_the_recorded_shapes() {
    let sim = Sim::start(&["--block-size", "32"]).await;
    let told_by_few = |path: &String| {
        let engines_only = [
            "logprobs",
            "annotations",
            "audio",
            "function_call",
            "reasoning",
            "tool_calls",
            "routed_experts",
        ];
        engines_only.iter().any(|name| path.ends_with(name) || path.contains(&format!(".{name}")))
    };
    for name in ["chat_real", "chat_real_404model", "comp_real", "msg_real"] {
        let recorded = fixture(&format!("vllm-0.32/render/{name}.json"));
        let (status, answer) = sim.post(recorded["path"].as_str().unwrap(), &recorded["request"]).await;
        assert_eq!(recorded["status"], status, "{name}");
        let missing: Vec<_> = paths(&answer).difference(&paths(&recorded["response"])).cloned().collect();
        let missing: Vec<_> = missing.iter().filter(|path| !told_by_few(path)).collect();
        assert!(missing.is_empty(), "{name}: {missing:?} in no recording");
        for usage in ["prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens"] {
            assert_eq!(answer["usage"].get(usage), recorded["response"]["usage"].get(usage), "{name}");
        }
    }
    let recorded = fixture("vllm-0.32/render/chat_real_stream.json");
    let (_, text) = sim.post_text("/v1/chat/completions", &recorded["request"]).await;
    assert!(text.ends_with("data: [DONE]\n\n"));
    let (ours, theirs) = (sse(&text), sse(recorded["response"]["_raw"].as_str().unwrap()));
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(paths(ours), paths(theirs));
    }
    // The same prompt as `chat_real` above: its full block is a hit.
    assert_eq!(ours.last().unwrap()["usage"], theirs.last().unwrap()["usage"]);
}

#[tokio::test]
async fn responses_and_messages_stream_too() {
    let sim = Sim::start(&[]).await;
    let body = json!({"model": "tiny", "input": "Hello there", "max_output_tokens": 3, "stream": true});
    let (_, text) = sim.post_text("/v1/responses", &body).await;
    let events = sse(&text);
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let delta = "response.output_text.delta";
    let announcement = ["response.created", "response.in_progress"];
    assert_eq!(types, [&announcement[..], &[delta; 3], &["response.completed"]].concat());
    assert_eq!(events[5]["response"]["usage"]["input_tokens"], 28);
    let messages = json!([{"role": "user", "content": "Hello there"}]);
    let body = json!({"model": "tiny", "messages": messages, "max_tokens": 2, "stream": true});
    let (_, text) = sim.post_text("/v1/messages", &body).await;
    let types: Vec<_> = sse(&text).iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    let delta = "content_block_delta";
    let expected = [
        "message_start",
        "content_block_start",
        delta,
        delta,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(types, expected);
}

#[tokio::test]
async fn a_conversation_hits_the_blocks_of_its_own_answers() {
    let sim = Sim::start(&["--speedup", "100"]).await;
    let mut messages = vec![json!({"role": "user", "content": "Tell me about caches."})];
    let mut last = 0;
    for turn in 0..3 {
        let body = json!({"model": "tiny", "messages": messages, "max_tokens": 64});
        let (_, answer) = sim.post("/v1/chat/completions", &body).await;
        let usage = &answer["usage"];
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        // All that the last turn computed, but for the blocks that were not full.
        assert!(turn == 0 || cached + 16 >= last - 1, "turn {turn}: {cached} of {last}");
        last = usage["total_tokens"].as_u64().unwrap();
        messages.push(answer["choices"][0]["message"].clone());
        messages.push(json!({"role": "user", "content": "Go on."}));
    }
}

#[tokio::test]
async fn models_and_metrics_look_like_the_recorded_ones() {
    let sim = Sim::start(&["--lora", "adapter-a", "--lora", "adapter-b"]).await;
    let models: Value = sim.get("/v1/models").await.json().await.unwrap();
    let recorded = fixture("vllm-0.32/http/v1_models_lora.json");
    for (ours, theirs) in models["data"].as_array().unwrap().iter().zip(recorded["data"].as_array().unwrap())
    {
        for key in ["id", "object", "owned_by", "parent", "max_model_len"] {
            assert_eq!(ours[key], theirs[key]);
        }
    }
    assert_eq!(models["data"].as_array().unwrap().len(), 3);

    let body = json!({"model": "adapter-b", "prompt": "The quick brown fox", "max_tokens": 2});
    assert_eq!(sim.post("/v1/completions", &body).await.0, 200);
    let ours = sim.get("/metrics").await.text().await.unwrap();
    let theirs = engine::text("vllm-0.32/metrics/lora_load.txt");
    for line in ours.lines().filter(|line| line.starts_with("vllm:")) {
        let (name, labels) = line.split_once('{').unwrap();
        // The first label is enough to find a line of the same series, bucket bounds included.
        let like = theirs
            .lines()
            .find(|line| line.starts_with(&format!("{name}{{")))
            .unwrap_or_else(|| panic!("{name}"));
        for label in
            labels.split_once('}').unwrap().0.split("\",").map(|label| label.split_once('=').unwrap().0)
        {
            assert!(like.contains(&format!("{label}=\"")), "{name}: {label}");
        }
    }
    for line in [
        r#"vllm:time_to_first_token_seconds_count{engine="0",model_name="tiny"} 1"#,
        r#"vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 9"#,
        r#"vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="awake"} 1"#,
        r#"running_lora_adapters="adapter-b""#,
    ] {
        assert!(ours.contains(line), "{line}");
    }
}

async fn batch(socket: &mut SubSocket) -> (u64, Value) {
    let frames = timeout(PATIENCE, socket.recv()).await.unwrap().unwrap().into_vec();
    let [topic, seq, payload] = frames.as_slice() else { panic!("{} frames", frames.len()) };
    assert_eq!(topic.as_ref(), b"kv");
    let batch = rmpv::decode::read_value(&mut payload.as_ref()).unwrap();
    (u64::from_be_bytes(seq.as_ref().try_into().unwrap()), serde_json::to_value(batch).unwrap())
}

async fn replay(endpoint: &str, start: u64) -> Vec<Vec<Vec<u8>>> {
    let mut dealer = DealerSocket::new();
    dealer.connect(endpoint).await.unwrap();
    let mut ask = ZmqMessage::from(Vec::new());
    ask.push_back(start.to_be_bytes().to_vec().into());
    dealer.send(ask).await.unwrap();
    let mut answers = Vec::new();
    loop {
        let frames = timeout(PATIENCE, dealer.recv()).await.unwrap().unwrap().into_vec();
        let frames: Vec<Vec<u8>> = frames.into_iter().map(Into::into).collect();
        if frames[2] == [0xff; 8] {
            assert_eq!(frames, [vec![], vec![], vec![0xff; 8], vec![]]);
            return answers;
        }
        answers.push(frames);
    }
}

/// Subscribes, and makes batches until one comes through: a subscription takes effect some time after it was sent.
async fn subscribe(sim: &Sim) -> SubSocket {
    let mut socket = SubSocket::new();
    socket.connect(sim.kv_events.as_deref().unwrap()).await.unwrap();
    socket.subscribe("").await.unwrap();
    for attempt in 0..100 {
        sim.post("/v1/completions", &prompt(3000 + attempt * 5..3016 + attempt * 5, 1)).await;
        if timeout(Duration::from_millis(100), batch(&mut socket)).await.is_ok() {
            return socket;
        }
    }
    panic!("no event comes");
}

#[tokio::test]
async fn events_are_published_and_replayed() {
    let sim =
        Sim::start(&[&EVENTS[..], &["--topic", "kv", "--num-blocks", "257", "--speedup", "1000"]].concat())
            .await;
    let mut socket = subscribe(&sim).await;
    sim.post("/v1/completions", &prompt(100..132, 1)).await;
    let (first, stored) = batch(&mut socket).await;
    let event = &stored[1][0];
    assert_eq!((&stored[2], stored[1].as_array().unwrap().len()), (&json!(0), 1));
    assert_eq!(event["type"], "BlockStored");
    assert_eq!(event["token_ids"], json!((100..132).collect::<Vec<_>>()));
    assert_eq!(event["extra_keys"], json!([null, null]));
    assert_eq!((&event["block_size"], &event["parent_block_hash"]), (&json!(16), &Value::Null));

    // The same again computes its last block again; the whole cache then pushes all of it out, tail first.
    sim.post("/v1/completions", &prompt(100..132, 1)).await;
    let (_, again) = batch(&mut socket).await;
    assert_eq!(again[1][0]["block_hashes"], json!([event["block_hashes"][1]]));
    assert_eq!(again[1][0]["parent_block_hash"], event["block_hashes"][0]);
    sim.post("/v1/completions", &prompt(0..4095, 1)).await;
    let mut removed = Vec::new();
    while removed.len() < 3 {
        let (_, batch) = batch(&mut socket).await;
        let events = batch[1].as_array().unwrap();
        let count = events.iter().take_while(|event| event["type"] == "BlockRemoved").count();
        assert_eq!(events[count]["type"], "BlockStored");
        removed.extend(
            events[..count]
                .iter()
                .map(|event| event["block_hashes"][0].clone())
                .filter(|hash| event["block_hashes"].as_array().unwrap().contains(hash)),
        );
    }
    let hashes = event["block_hashes"].as_array().unwrap();
    assert_eq!(removed, [hashes[1].clone(), hashes[1].clone(), hashes[0].clone()]);

    sim.post("/reset_prefix_cache", &json!({})).await;
    sim.post("/v1/completions", &prompt(200..216, 1)).await;
    let last = loop {
        let (seq, batch) = batch(&mut socket).await;
        if batch[1][0]["type"] == "AllBlocksCleared" {
            assert_eq!(batch[1][1]["type"], "BlockStored");
            break seq;
        }
    };
    let endpoint = sim.replay.as_deref().unwrap();
    let replayed = replay(endpoint, first).await;
    let seqs: Vec<_> =
        replayed.iter().map(|f| u64::from_be_bytes(f[2].as_slice().try_into().unwrap())).collect();
    assert_eq!(seqs, (first..=last).collect::<Vec<_>>());
    assert_eq!(replayed[0][1], b"kv");
    let payload: Value = rmp_serde::from_slice(&replayed[0][3]).unwrap();
    assert_eq!(payload, stored);
    assert!(replay(endpoint, last + 1).await.is_empty());
}

#[tokio::test]
async fn ranks_have_caches_streams_and_series_of_their_own() {
    let ranks = ["--data-parallel-size", "3", "--topic", "kv", "--speedup", "1000"];
    let sim = Sim::start(&[&EVENTS[..], &ranks].concat()).await;
    let sources: Value = sim.get("/kv_event_sources").await.json().await.unwrap();
    let recorded = fixture("vllm-0.32/http/kv_event_sources.json");
    let mut endpoints = BTreeSet::new();
    for rank in ["0", "1", "2"] {
        assert_eq!(paths(&sources[rank]), paths(&recorded["0"]));
        endpoints
            .extend([&sources[rank]["endpoint"], &sources[rank]["replay_endpoint"]].map(Value::to_string));
    }
    assert_eq!((sources.as_object().unwrap().len(), endpoints.len()), (3, 6));
    assert_eq!(sources["0"]["endpoint"].as_str(), sim.kv_events.as_deref(), "what is announced is rank 0's");

    for tokens in [100..164, 100..180] {
        let asked = sim.send_to("1", "/v1/completions", &prompt(tokens, 1)).await;
        assert_eq!(asked.status(), 200);
    }
    let answers = replay(sources["1"]["replay_endpoint"].as_str().unwrap(), 0).await;
    let batches = answers.iter().map(|frames| rmpv::decode::read_value(&mut frames[3].as_slice()).unwrap());
    assert_eq!(batches.map(|batch| batch[2].as_u64()).collect::<Vec<_>>(), [Some(1), Some(1)]);
    assert!(replay(sources["0"]["replay_endpoint"].as_str().unwrap(), 0).await.is_empty());
    sim.wait_for(r#"prefix_cache_hits_total{engine="1""#, 64.0).await;
    sim.wait_for(r#"prefix_cache_hits_total{engine="0""#, 0.0).await;
    let beyond = sim.send_to("3", "/v1/completions", &prompt(0..16, 1)).await;
    let error: Value = beyond.json().await.unwrap();
    assert_eq!(error["error"]["code"], 400);
    assert!(error["error"]["message"].as_str().unwrap().contains("out of range [0, 3)"), "{error}");
}

#[tokio::test]
async fn a_published_block_size_may_differ_from_the_configured_one() {
    let sim =
        Sim::start(&[&EVENTS[..], &["--topic", "kv", "--kv-block-size-published", "32"]].concat()).await;
    let metrics = sim.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains(r#"block_size="16""#));
    sim.post("/v1/completions", &prompt(0..40, 1)).await;
    let batches = replay(sim.replay.as_deref().unwrap(), 0).await;
    let batch: Value = rmp_serde::from_slice(&batches[0][3]).unwrap();
    assert_eq!((&batch[1][0]["block_size"], &batch[1][0]["token_ids"][31]), (&json!(32), &json!(31)));
}

#[tokio::test]
async fn a_client_that_leaves_aborts_its_request() {
    let sim = Sim::start(&[]).await;
    let body = json!({"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 4000, "stream": true});
    let mut streaming = sim.send("/v1/completions", &body).await;
    assert!(streaming.chunk().await.unwrap().is_some());
    sim.wait_for("num_requests_running{", 1.0).await;
    drop(streaming);
    sim.wait_for("request_success_total{engine=\"0\",finished_reason=\"abort\"", 1.0).await;
    sim.wait_for("num_requests_running{", 0.0).await;
    let whole = json!({"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 4000});
    timeout(Duration::from_millis(300), sim.send("/v1/completions", &whole)).await.unwrap_err();
    sim.wait_for("request_success_total{engine=\"0\",finished_reason=\"abort\"", 2.0).await;
    let load: Value = sim.get("/load").await.json().await.unwrap();
    assert_eq!(load["server_load"], 0);
}

#[tokio::test]
async fn it_ends_with_its_stdin_and_on_sigterm() {
    let mut sim = Sim::start(&["--exit-with-stdin"]).await;
    drop(sim.child.stdin.take());
    assert!(sim.ended().await.success());
    let mut sim = Sim::start(&[]).await;
    let pid = sim.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(sim.ended().await.success());
}
