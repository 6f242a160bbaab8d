//! Every prompt that a real engine rendered, tokenized locally: the ids must be the engine's.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use bytes::Bytes;
use kinference::{
    prompt::{LocalModel, ParsedRequest},
    types::Api,
};
use serde_json::Value;

fn fixtures() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures"))
}

fn api_of(pair: &Value) -> Option<Api> {
    let path = pair["path"].as_str().unwrap();
    if path == "/tokenize" {
        let chat = pair["request"].get("messages").is_some();
        return Some(if chat { Api::ChatCompletions } else { Api::Completions });
    }
    let path = path.strip_suffix("/render").or_else(|| path.strip_suffix("/count_tokens")).unwrap_or(path);
    Api::ALL.into_iter().find(|api| api.path() == path)
}

/// What the engine said of the prompt: its ids, else how many they are.
fn said(response: &Value) -> (Option<Vec<u64>>, Option<u64>) {
    let ids = |value: &Value| value.as_array().map(|ids| ids.iter().map(|id| id.as_u64().unwrap()).collect());
    let one = |value: &Value| {
        ["token_ids", "tokens", "prompt_token_ids"].into_iter().find_map(|key| ids(value.get(key)?))
    };
    let lists: Vec<Vec<u64>> = response.as_array().into_iter().flatten().filter_map(one).collect();
    let longest = lists.into_iter().rev().max_by_key(Vec::len).or_else(|| one(response));
    let usage =
        ["prompt_tokens", "input_tokens"].into_iter().find_map(|key| response["usage"].get(key)?.as_u64());
    (longest, usage.or_else(|| response["input_tokens"].as_u64()))
}

#[test]
fn every_recorded_prompt_has_the_engines_ids() {
    let model = LocalModel::open(&fixtures().join("tokenizer")).unwrap();
    let (mut by_ids, mut by_count) = (0, 0);
    for file in fs::read_dir(fixtures().join("vllm-0.32/render")).unwrap() {
        let pair: Value = serde_json::from_slice(&fs::read(file.unwrap().path()).unwrap()).unwrap();
        let name = pair["name"].as_str().unwrap();
        let Some(api) = api_of(&pair).filter(|_| pair["status"] == 200) else { continue };
        let body = Bytes::from(pair["request"].to_string());
        let tokens = model.tokenize(&ParsedRequest::read(api, &body).unwrap()).unwrap();
        let ids: Vec<u64> = tokens.ids.iter().map(|id| u64::from(*id)).collect();
        match said(&pair["response"]) {
            (Some(engine), _) => {
                assert_eq!(ids, engine, "{name}");
                by_ids += 1;
            }
            (None, Some(count)) => {
                assert_eq!(ids.len() as u64, count, "{name}");
                by_count += 1;
            }
            // A recorded stream.
            (None, None) => assert!(pair["request"]["stream"] == true, "{name} says nothing of its prompt"),
        }
    }
    assert_eq!((by_ids, by_count), (18, 5), "recordings compared by ids, and by count alone");
}

/// Runs `kinfctl tokenize` with that standard input: what it prints, or its error.
fn kinfctl(args: &[&str], input: &str) -> Result<Value, String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kinfctl"))
        .args(["tokenize", "--model-dir", fixtures().join("tokenizer").to_str().unwrap()])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout).parse().unwrap()) } else { Err(text(output.stderr)) }
}

#[test]
fn kinfctl_prints_the_ids_and_their_count() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, r#"{"model": "tiny", "prompt": "The quick"}"#).unwrap();
    let path = file.path().to_str().unwrap();
    let want = serde_json::json!({"tokens": [865, 2581, 369], "count": 3});
    assert_eq!(kinfctl(&[path], "").unwrap(), want);
    assert_eq!(kinfctl(&["--path", "/v1/completions", path], "").unwrap(), want);
    let message = r#"{"messages": [{"role": "user", "content": "Hello there"}]}"#;
    for path in ["/v1/messages", "/v1/chat/completions/render"] {
        assert_eq!(kinfctl(&["--path", path, "-"], message).unwrap()["count"], 28);
    }
    assert!(kinfctl(&["-"], "{").unwrap_err().contains("not valid JSON"));
    assert!(kinfctl(&["--path", "/v1/models", "-"], "{}").unwrap_err().contains("/v1/models"));
}
