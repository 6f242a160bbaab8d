//! The reader of `/kv_event_sources` on the recorded answer, and on what a hostile engine may answer.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn host() -> Host {
    Host::of_url("http://10.0.0.7:8000/base").unwrap()
}

fn entry(endpoint: &str, replay: Option<&str>) -> Value {
    json!({"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": endpoint, "replay_endpoint": replay})
}

fn read(answer: &Value, host: &Host) -> Result<Vec<KvSockets>, BadSources> {
    parse(answer.to_string().as_bytes(), host)
}

fn sockets(rank: u32, events: &str, replay: Option<&str>) -> KvSockets {
    KvSockets { rank: Rank(rank), events: events.into(), replay: replay.map(Into::into) }
}

#[test]
fn the_recorded_answer_is_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/vllm-0.32/http/kv_event_sources.json");
    let body = std::fs::read(path).unwrap();
    let wanted = [sockets(0, "tcp://10.0.0.7:5557", Some("tcp://10.0.0.7:5558"))];
    assert_eq!(parse(&body, &host()).unwrap(), wanted);
}

#[test]
fn every_name_of_the_engine_itself_is_accepted() {
    for (url, names) in [
        ("http://10.0.0.7:8000", vec!["*", "0.0.0.0", "::", "[::]", "10.0.0.7", "[::ffff:10.0.0.7]"]),
        ("http://[fd00::1]:8000", vec!["*", "[fd00::1]", "fd00::1", "[fd00:0::1]"]),
        ("http://Engine-0.svc:8000", vec!["engine-0.svc", "ENGINE-0.svc", "*"]),
        ("http://127.0.0.1:8000", vec!["localhost", "127.0.0.1", "127.0.0.2", "[::1]"]),
        ("http://localhost:8000", vec!["localhost", "127.0.0.1", "[::1]"]),
    ] {
        let host = Host::of_url(url).unwrap();
        for name in names {
            let answer = json!({"0": entry(&format!("tcp://{name}:5557"), None)});
            let wanted = [sockets(0, &host.endpoint(5557), None)];
            assert_eq!(read(&answer, &host).as_deref(), Ok(&wanted[..]), "{name} at {url}");
            assert!(wanted[0].events.parse::<zeromq::Endpoint>().is_ok(), "it can be dialled: {wanted:?}");
        }
    }
    assert_eq!(Host::of_url("http://[fd00::1]:8000").unwrap().endpoint(1), "tcp://[fd00::1]:1");
}

#[test]
fn other_endpoints_are_refused() {
    let refused = [
        ("tcp://10.0.0.8:5557", "own host"),
        ("tcp://169.254.169.254:80", "own host"),
        ("tcp://localhost:5557", "own host"),
        ("tcp://127.0.0.1:5557", "own host"),
        ("tcp://10.0.0.7.evil.org:5557", "own host"),
        ("tcp://10.0.0.7@evil.org:5557", "own host"),
        ("tcp://:5557", "own host"),
        ("tcp://*:1;tcp://evil.org:2", "own host"),
        ("tcp://*:0", "1-65535"),
        ("tcp://*:65536", "1-65535"),
        ("tcp://*:+80", "1-65535"),
        ("tcp://*:", "1-65535"),
        ("tcp://*", "no port"),
        ("ipc:///tmp/events", "tcp://HOST:PORT"),
        ("inproc://events", "tcp://HOST:PORT"),
        ("", "tcp://HOST:PORT"),
    ];
    for (endpoint, reason) in refused {
        for answer in [entry(endpoint, None), entry("tcp://*:5557", Some(endpoint))] {
            if endpoint.is_empty() && answer["replay_endpoint"] == "" {
                continue; // No replay.
            }
            let error = read(&json!({"0": answer}), &host()).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("rank `0`"), "{endpoint}: {error}");
        }
    }
}

#[test]
fn a_rank_that_publishes_nothing_has_no_sockets() {
    let off = |key: &str, value: Value| {
        let mut entry = entry("tcp://*:5557", None);
        entry[key] = value;
        entry
    };
    for silent in [
        off("enable_kv_cache_events", json!(false)),
        off("publisher", json!(null)),
        off("publisher", json!("null")),
    ] {
        assert_eq!(read(&json!({"0": silent}), &host()), Ok(vec![]));
    }
    assert_eq!(read(&json!({}), &host()), Ok(vec![]));
    let error = read(&json!({"0": off("publisher", json!("kafka"))}), &host()).unwrap_err().to_string();
    assert!(error.contains("`kafka`") && error.contains("`zmq`"), "{error}");
}

#[test]
fn ranks_have_sockets_of_their_own() {
    let replay = Some("tcp://*:6000");
    let same = json!({"0": entry("tcp://*:5557", replay), "2": entry("tcp://*:5557", replay)});
    let wanted = [
        sockets(0, "tcp://10.0.0.7:5557", Some("tcp://10.0.0.7:6000")),
        sockets(2, "tcp://10.0.0.7:5559", Some("tcp://10.0.0.7:6002")),
    ];
    assert_eq!(read(&same, &host()).unwrap(), wanted, "the port as configured: each rank adds its number");
    let own = json!({"0": entry("tcp://*:5557", None), "1": entry("tcp://*:41000", replay)});
    let wanted = [
        sockets(0, "tcp://10.0.0.7:5557", None),
        sockets(1, "tcp://10.0.0.7:41000", Some("tcp://10.0.0.7:6000")),
    ];
    assert_eq!(read(&own, &host()).unwrap(), wanted);
    let clash = json!({"0": entry("tcp://*:5557", Some("tcp://*:5558")), "1": entry("tcp://*:5558", None)});
    assert!(read(&clash, &host()).unwrap_err().to_string().contains("5558 is named twice"));
    let beyond = json!({"0": entry("tcp://*:65535", None), "1": entry("tcp://*:65535", None)});
    assert!(read(&beyond, &host()).unwrap_err().to_string().contains("beyond 65535"));
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let answer = json!({"0": entry("tcp://evil.org:1", Some("ipc://x")), "01": entry("tcp://*:5557", None)});
    let BadSources(wrong) = read(&answer, &host()).unwrap_err();
    assert_eq!(wrong.len(), 3, "{wrong:?}");
    let terminal = json!({"0": entry(&format!("\u{1b}[31m{}", "x".repeat(5000)), None)});
    let error = read(&terminal, &host()).unwrap_err().to_string();
    assert!(error.len() < 300 && !error.contains('\u{1b}'), "{error}");
}

#[test]
fn the_number_of_ranks_is_bounded() {
    let ranks = |count: usize| -> Value {
        let entry = |rank: usize| (rank.to_string(), entry(&format!("tcp://*:{}", 6000 + rank), None));
        Value::Object((0..count).map(entry).collect())
    };
    assert_eq!(read(&ranks(MAX_RANKS), &host()).unwrap().len(), MAX_RANKS);
    assert!(read(&ranks(MAX_RANKS + 1), &host()).is_err());
    for rank in ["4096", "4294967296", "-1", "+1", "01", "", "0x1"] {
        assert!(read(&json!({rank: entry("tcp://*:5557", None)}), &host()).is_err(), "{rank}");
    }
}

fn endpoint() -> impl Strategy<Value = String> {
    let host = prop_oneof![
        Just("*".to_owned()),
        Just("10.0.0.7".to_owned()),
        Just("[::]".to_owned()),
        "[a-z0-9.:@\\[\\]*/ -]{0,12}",
    ];
    let scheme = prop_oneof![4 => Just("tcp://"), 1 => Just("ipc://"), 1 => Just("")];
    (scheme, host, 0u32..70_000).prop_map(|(scheme, host, port)| format!("{scheme}{host}:{port}"))
}

proptest! {
    #[test]
    fn no_answer_leaves_the_host(
        ranks in prop::collection::btree_map(0u32..70, (endpoint(), prop::option::of(endpoint())), 0..4),
    ) {
        let entries = ranks.iter().map(|(rank, (events, replay))| (rank.to_string(), entry(events, replay.as_deref())));
        if let Ok(read) = read(&Value::Object(entries.collect()), &host()) {
            prop_assert!(read.len() == ranks.len());
            for own in read {
                for endpoint in [Some(own.events), own.replay].into_iter().flatten() {
                    let port: u16 = endpoint.strip_prefix("tcp://10.0.0.7:").unwrap().parse().unwrap();
                    prop_assert!(port > 0);
                }
            }
        }
    }

    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..200), text in "[\\[{}\\]\"0-9a-z:,]{0,60}") {
        prop_assert!(parse(&body, &host()).is_ok_and(|read| read.is_empty()) || parse(&body, &host()).is_err());
        let _ = parse(text.as_bytes(), &host());
    }
}
