//! The metrics parser against recordings of a real engine, hand-made text, and noise.

use proptest::prelude::*;

use super::*;

fn recorded(name: &str) -> String {
    let path = format!("{}/tests/fixtures/vllm-0.32/metrics/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

fn load(running: f64, waiting: f64, kv_usage: f64) -> LoadSample {
    LoadSample { running, waiting, kv_usage }
}

#[test]
fn recordings_of_an_engine_are_read() {
    let idle = parse(&recorded("idle"), Some("tiny")).unwrap();
    assert_eq!((idle.load, idle.asleep), (load(0.0, 0.0, 0.0), Some(false)));
    let busy = parse(&recorded("load_1"), Some("tiny")).unwrap();
    assert_eq!((busy.load, busy.asleep), (load(10.0, 270.0, 0.952_380_952_380_952_3), Some(false)));
    // Prompts and answers less what the cache had; 49 finished, 10 running, 270 waiting.
    assert_eq!((busy.computed, busy.requests), (72_340.0 + 1_692.0 - 14_368.0, 49.0 + 280.0));
    assert!(idle.computed < busy.computed);
    assert!(parse(&recorded("lora_load"), Some("tiny")).is_some());
    assert_eq!(parse(&recorded("load_1"), Some("another")), None);
    assert_eq!(parse(&recorded("load_1"), None), Some(busy));
}

#[test]
fn ranks_are_summed_and_other_models_left_out() {
    let text = r#"
vllm:num_requests_running{engine="0",model_name="m"} 2
vllm:num_requests_running{engine="1",model_name="m"} 3.0 1796049149779
vllm:num_requests_running{engine="0",model_name="other"} 50
vllm:num_requests_waiting{engine="1", model_name = "m",} +4
vllm:num_requests_waiting_by_reason{engine="1",model_name="m",reason="capacity"} 9
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 1
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 1
vllm:engine_sleep_state{engine="1",model_name="m",sleep_state="awake"} 0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1e3
vllm:generation_tokens_total{engine="1",model_name="m"} 24
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 600
vllm:request_success_total{engine="0",model_name="m",finished_reason="stop"} 2
"#;
    let want = Scraped { load: load(5.0, 4.0, 0.75), asleep: Some(true), computed: 424.0, requests: 11.0 };
    assert_eq!(parse(text, Some("m")), Some(want));
}

#[test]
fn series_without_labels_count() {
    let want = Scraped { load: load(0.0, 7.0, 0.0), asleep: None, computed: 0.0, requests: 7.0 };
    assert_eq!(parse("vllm:num_requests_waiting 7\r\n", Some("m")), Some(want));
}

#[test]
fn label_values_are_unescaped() {
    let text = "vllm:num_requests_running{model_name=\"a\\\"}\\\\b\\n,é\"} 1";
    assert_eq!(parse(text, Some("a\"}\\b\n,é")).unwrap().load.running, 1.0);
}

#[test]
fn senseless_lines_cost_only_themselves() {
    let text = r#"
vllm:num_requests_running{
vllm:num_requests_running{model_name
vllm:num_requests_running{model_name="m
vllm:num_requests_running{model_name="m\
vllm:num_requests_running{model_name="m"}
vllm:num_requests_running{model_name="m"} many
vllm:num_requests_running{model_name="m"} NaN
vllm:num_requests_running{model_name="m"} -1e18
vllm:kv_cache_usage_perc{model_name="m"} +Inf
vllm:kv_cache_usage_perc{model_name="m"} NaN
# vllm:num_requests_running{model_name="m"} 5
vllm:num_requests_running{model_name="m"} 3
"#;
    assert_eq!(parse(text, Some("m")).unwrap().load, load(3.0, 0.0, 1.0));
    assert_eq!(parse("", Some("m")), None);
    assert_eq!(parse("<html>503</html>", Some("m")), None);
}

proptest! {
    #[test]
    fn noise_never_panics(text in "\\PC*", line in "[vllm:num_requests_running{}=\",\\\\ 0-9.eNa\n+-]*") {
        parse(&text, Some("m"));
        parse(&format!("vllm:num_requests_running{{{line}"), Some("m"));
    }

    #[test]
    fn what_is_written_is_read(model in "[^\r\n]*", running in 0..1_000_000u32) {
        let escaped = model.replace('\\', "\\\\").replace('"', "\\\"");
        let text = format!("vllm:num_requests_running{{engine=\"0\",model_name=\"{escaped}\"}} {running}.0");
        prop_assert_eq!(parse(&text, Some(&model)).map(|s| s.load.running), Some(f64::from(running)));
    }
}
