//! Streams recorded from a real Envoy, fed to the machine: every message is read as the text beside the
//! recording says, headers are answered once, bodies come back byte for byte.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod decisions;

use std::{fs, path::PathBuf};

use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingRequest, processing_request::Request};
use kinference::{
    config::ExtProcConfig,
    serve::ext_proc::{Effect, Event, Machine, Message, Modes, Placed, Reply, Sight},
    types::{Outcome, Usage},
};
use prost::Message as _;
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/envoy-1.40").join(name)
}

/// (u32be length, message) repeated.
fn recorded(stream: usize) -> Vec<ProcessingRequest> {
    let bytes = fs::read(fixture(&format!("stream{stream}.bin"))).unwrap();
    let mut rest = bytes.as_slice();
    let mut out = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (message, next) = after.split_at(u32::from_be_bytes(*length) as usize);
        out.push(ProcessingRequest::decode(message).unwrap());
        rest = next;
    }
    out
}

/// The lines that tell of messages.
fn told(stream: usize) -> Vec<Value> {
    let text = fs::read_to_string(fixture(&format!("stream{stream}.jsonl"))).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["len"].is_u64()).collect()
}

#[derive(Default)]
struct Run {
    request_in: Vec<u8>,
    request_out: Vec<u8>,
    response_in: Vec<u8>,
    response_out: Vec<u8>,
    ends: (usize, usize),
    headers: usize,
    response_headers: usize,
    destination: Option<String>,
    first_tokens: usize,
    finished: Vec<(Outcome, Option<Usage>)>,
}

impl Run {
    fn of(messages: Vec<ProcessingRequest>) -> Self {
        let mut run = Self::default();
        let mut machine = Machine::new(Modes::of(messages[0].protocol_config.as_ref()), false);
        for message in messages {
            match &message.request {
                Some(Request::RequestBody(body)) => run.request_in.extend_from_slice(&body.body),
                Some(Request::ResponseBody(body)) => run.response_in.extend_from_slice(&body.body),
                _ => {}
            }
            let message = Message::parse(message, &ExtProcConfig::default(), || "own".into()).unwrap();
            machine = run.feed(machine, Event::Message(message));
        }
        run
    }

    fn feed(&mut self, machine: Machine, event: Event) -> Machine {
        let (mut machine, effects) = machine.step(event);
        for effect in effects {
            match effect {
                Effect::Decide(_, sight) => {
                    assert_ne!(sight, Sight::Unseen, "these streams show their bodies");
                    let placed = Placed {
                        decision: decisions::decision(),
                        body: self.request_in.clone().into(),
                        rewrite: None,
                        client_model: None,
                    };
                    machine = self.feed(machine, Event::Placed(placed));
                }
                Effect::Reply(reply) => self.reply(reply),
                Effect::FirstToken => self.first_tokens += 1,
                Effect::Finish(outcome, usage) => self.finished.push((outcome, usage)),
                _ => {}
            }
        }
        machine
    }

    fn reply(&mut self, reply: Reply) {
        match reply {
            Reply::RequestHeaders(edit) => {
                self.headers += 1;
                self.destination = edit.pick.and_then(|pick| pick.destination);
            }
            Reply::RequestChunk(chunk) => {
                self.request_out.extend_from_slice(&chunk.bytes);
                self.ends.0 += usize::from(chunk.last);
            }
            Reply::ResponseHeaders { .. } => self.response_headers += 1,
            Reply::ResponseChunk(chunk) => {
                self.response_out.extend_from_slice(&chunk.bytes);
                self.ends.1 += usize::from(chunk.last);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn messages_read_as_they_are_told() {
    for stream in 0..8 {
        let (messages, lines) = (recorded(stream), told(stream));
        assert_eq!(messages.len(), lines.len(), "stream {stream}");
        for (message, line) in messages.into_iter().zip(lines) {
            let eos = line["eos"].as_bool().unwrap();
            let header = |name: &str| line["headers"][name].as_str().unwrap_or_default().to_owned();
            let length = line["body_len"].as_u64().unwrap_or_default() as usize;
            match Message::parse(message, &ExtProcConfig::default(), || "own".into()).unwrap() {
                Message::RequestHeaders { head, last } => {
                    assert_eq!(line["kind"], "request_headers");
                    assert_eq!(last, eos);
                    assert_eq!(head.request_id.as_ref(), header("x-request-id"));
                    assert_eq!(head.content_type.as_deref().unwrap_or_default(), header("content-type"));
                    assert_eq!(head.content_length, header("content-length").parse().ok());
                }
                Message::ResponseHeaders(head) => {
                    assert_eq!(line["kind"], "response_headers");
                    assert_eq!((head.status.to_string(), head.last), (header(":status"), eos));
                    assert_eq!(head.content_type, header("content-type"));
                }
                Message::RequestBody(chunk) => {
                    assert_eq!(line["kind"], "request_body");
                    assert_eq!((chunk.bytes.len(), chunk.last), (length, eos));
                }
                Message::ResponseBody(chunk) => {
                    assert_eq!(line["kind"], "response_body");
                    assert_eq!((chunk.bytes.len(), chunk.last), (length, eos));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn answers_are_whole_and_bytes_untouched() {
    for stream in 0..8 {
        let run = Run::of(recorded(stream));
        assert!(run.request_in.starts_with(&run.request_out), "stream {stream}");
        assert_eq!(run.response_in, run.response_out, "stream {stream}");
        if stream == 3 {
            // The processor answered this one at once, before the end of its body.
            assert_eq!((run.headers, run.request_out.len()), (0, 0));
            continue;
        }
        assert_eq!(run.request_in, run.request_out, "stream {stream}");
        assert_eq!(run.headers, 1, "stream {stream}");
        assert_eq!(run.destination.as_deref(), Some(decisions::DESTINATIONS), "stream {stream}");
        assert_eq!(run.response_headers, 1, "stream {stream}");
        let get = stream == 4;
        assert_eq!(run.ends, (usize::from(!get), 1), "stream {stream}");
        assert_eq!(run.finished.len(), 1, "stream {stream}");
        assert_eq!(run.first_tokens, usize::from(stream == 1), "stream {stream}");
    }
}

#[test]
fn outcomes_follow_the_status_and_usage_the_body() {
    let outcome = |stream| Run::of(recorded(stream)).finished[0];
    let used = |stream| {
        let (how, usage) = outcome(stream);
        (how, usage.map(|usage| usage.completion_tokens))
    };
    assert_eq!(used(0), (Outcome::Completed, Some(4)));
    assert_eq!(used(1), (Outcome::Completed, None));
    assert_eq!(used(2), (Outcome::ClientError, None));
    assert_eq!(used(4), (Outcome::Completed, None));
    assert_eq!(used(5), (Outcome::Failed, None));
    assert_eq!(used(6), (Outcome::Failed, None));
    assert_eq!(used(7), (Outcome::Completed, Some(4)));
}
