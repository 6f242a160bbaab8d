//! Every key with its default: in the code and in the documentation.

use std::collections::BTreeMap;

use crate::{file, parse};

/// The reference: section, key, default as TOML; `-` stands for unset.
pub const DEFAULTS: &[(&str, &str, &str)] = &[
    ("", "listen", "\"0.0.0.0:9002\""),
    ("", "admin_listen", "-"),
    ("", "mock_mode", "false"),
    ("", "dashboard_max_workers", "16"),
    ("", "metrics_poll_ms", "1000"),
    ("", "models_refresh_secs", "30"),
    ("", "replay_timeout_ms", "60000"),
    ("", "observation_ttl_secs", "600"),
    ("", "body_max_total_kb", "262144"),
    ("", "body_max_request_kb", "8192"),
    ("", "body_ttl_secs", "60"),
    ("", "body_idle_timeout_secs", "30"),
    ("tls", "cert_file", "-"),
    ("tls", "key_file", "-"),
    ("tls", "client_ca_file", "-"),
    ("tls", "self_signed", "false"),
    ("ext_proc", "trust_headers", "false"),
    ("ext_proc", "tenant_header", "\"x-kinference-tenant\""),
    ("ext_proc", "tags_header", "\"x-kinference-tags\""),
    ("ext_proc", "pool_header", "\"x-kinference-pool\""),
    ("ext_proc", "deadline_ms", "1000"),
    ("ext_proc", "explain_headers", "false"),
    ("ext_proc", "observe", "\"full\""),
    ("ext_proc", "observe_sample", "0.1"),
    ("tokenize", "pool_max_idle_per_host", "-"),
    ("tokenize.local", "mount_dir", "-"),
    ("tokenize.local", "warmup", "true"),
    ("profile", "name", "\"p\""),
    ("profile.tokenize", "mode", "\"render\""),
    ("profile.predictor", "base_ms", "400.0"),
    ("profile.predictor", "forward_pass_ms", "0.0"),
    ("profile.predictor", "queue_ms_per_entry", "1000.0"),
    ("profile.predictor", "attention_uncached_block_ms", "2.3"),
    ("profile.predictor", "attention_uncached_per_every_block_ms", "0.009"),
    ("profile.predictor", "cache_pressure_penalty_ms", "0.0"),
    ("profile.predictor", "cache_pressure_saturated_threshold", "0.9"),
    ("profile.predictor", "saturated_cold_ms_per_entry", "10000.0"),
    ("profile.predictor", "q_running_penalty_peak_ms", "700.0"),
    ("profile.predictor", "q_running_penalty_peak_qr", "2"),
    ("profile.predictor", "q_running_penalty_falloff_qr", "5"),
    ("profile.predictor", "inflight_concurrent_capacity", "5"),
    ("profile.predictor", "expected_overlap_alpha", "1.0"),
    ("profile.predictor", "backlog_weight", "1.0"),
    ("profile.predictor", "lower_tier_credit", "0.5"),
    ("profile.predictor", "calibration", "\"shadow\""),
    ("profile.picker", "top_k_min", "2"),
    ("profile.picker", "top_k_fraction", "0.2"),
    ("profile.picker", "tie_tolerance_ms", "50.0"),
    ("profile.picker", "inflight_tracking", "true"),
    ("profile.picker", "replication_threshold_pct", "0.0"),
    ("profile.picker", "replication_warm_target", "2"),
    ("profile.picker", "replication_warm_threshold_fraction", "0.5"),
    ("profile.picker", "warmup_in_flight_max", "4"),
    ("profile.picker", "seed", "-"),
    ("workerset", "name", "\"s\""),
    ("workerset", "profile", "\"p\""),
    ("workerset", "kv_block_size", "16"),
    ("workerset", "render_url", "-"),
    ("workerset.discovery", "mode", "\"static\""),
    ("workerset.discovery", "workers_file", "\"/etc/kinference/workers.toml\""),
    ("workerset.discovery", "service_name", "-"),
    ("workerset.discovery", "pool_name", "-"),
    ("workerset.discovery", "namespace", "-"),
    ("workerset.discovery.defaults", "http_port", "8000"),
    ("workerset.discovery.defaults", "zmq_port", "5557"),
    ("workerset.discovery.defaults", "replay_port", "-"),
    ("metrics", "tenant_labels", "\"none\""),
    ("decision_log", "output", "\"off\""),
    ("decision_log", "file", "-"),
    ("decision_log", "max_size_mb", "100"),
    ("decision_log", "max_files", "5"),
    ("decision_log", "sample", "1.0"),
    ("traces", "endpoint", "-"),
    ("traces", "protocol", "\"grpc\""),
    ("traces", "sample", "1.0"),
    ("traces", "service_name", "\"kinference\""),
    ("traces", "timeout_ms", "10000"),
    ("policy", "enabled", "false"),
    ("policy", "namespace", "-"),
    ("policy", "files", "[]"),
    ("policy", "body_metadata", "[]"),
    ("policy", "secrets_dir", "-"),
    ("kubernetes", "enabled", "false"),
    ("kubernetes", "namespace", "-"),
    ("kubernetes", "selector", "-"),
    ("kubernetes.discovery_defaults", "http_port", "8000"),
    ("kubernetes.discovery_defaults", "zmq_port", "5557"),
    ("kubernetes.discovery_defaults", "replay_port", "-"),
    ("token_review", "enabled", "false"),
    ("token_review", "default_deadline_ms", "2000"),
    ("token_review", "positive_ttl_secs", "60"),
    ("token_review", "negative_ttl_secs", "10"),
    ("token_review", "max_cache_entries", "4096"),
    ("rate_limit", "enabled", "false"),
    ("leader_election", "enabled", "false"),
    ("leader_election", "lease_name", "\"bllmp\""),
    ("leader_election", "namespace", "-"),
    ("leader_election", "lease_duration_secs", "15"),
    ("leader_election", "renew_grace_secs", "10"),
    ("leader_election", "retry_secs", "2"),
];

/// Sections that are own additions as a whole.
const OWN_SECTIONS: &[&str] = &["tls", "ext_proc", "decision_log", "traces"];

/// The printed configuration as (section, key) -> value; comments say what is unset.
fn printed(text: &str) -> BTreeMap<(String, String), String> {
    let (mut section, mut out) = (String::new(), BTreeMap::new());
    for line in text.lines() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
        } else if let Some(key) = line.strip_prefix("# ").and_then(|line| line.strip_suffix(" is unset")) {
            out.insert((section.clone(), key.to_owned()), "-".to_owned());
        } else if let Some((key, value)) = line.split_once(" = ") {
            out.insert((section.clone(), key.to_owned()), value.to_owned());
        }
    }
    out
}

#[test]
fn every_default_is_the_reference_s() {
    let (config, warnings) = parse(&file(&[])).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    let want: BTreeMap<_, _> =
        DEFAULTS.iter().map(|(s, k, v)| ((s.to_string(), k.to_string()), v.to_string())).collect();
    assert_eq!(want.len(), DEFAULTS.len(), "a key is in the table twice");
    assert_eq!(printed(&config.effective()), want);
}

#[test]
fn the_documentation_has_every_key_with_its_default() {
    let doc = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md")).unwrap();
    let (mut section, mut rows) = (String::new(), BTreeMap::new());
    for line in doc.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.trim_matches(['`', '[', ']']).to_owned();
        } else if let Some(row) = line.strip_prefix("| `") {
            let cells: Vec<_> = row.split(" | ").collect();
            rows.insert((section.clone(), cells[0].trim_end_matches('`').to_owned()), (cells[2], cells[3]));
        }
    }
    rows.retain(|(section, _), _| section != "Workers file");
    let own = |section: &str, key: &str| {
        OWN_SECTIONS.contains(&section)
            || [
                "backlog_weight",
                "lower_tier_credit",
                "calibration",
                "warmup_in_flight_max",
                "seed",
                "pool_name",
                "files",
                "body_metadata",
                "secrets_dir",
            ]
            .contains(&key)
    };
    assert_eq!(rows.len(), DEFAULTS.len(), "as many documented keys as there are");
    for (section, key, default) in DEFAULTS {
        let name = if section.is_empty() { "Top level" } else { section };
        let (documented, effect) =
            rows.get(&(name.into(), key.to_string())).unwrap_or_else(|| panic!("{name} {key}"));
        let required = ["listen", "name", "profile", "kv_block_size"].contains(key);
        let want = match *default {
            _ if required => "required".to_owned(),
            // Required in one mode, without a default in any.
            "-" => "unset".to_owned(),
            _ if *key == "workers_file" => "unset".to_owned(),
            value => format!("`{value}`"),
        };
        assert_eq!(*documented, want, "{section} {key}");
        assert_eq!(
            effect.contains("**Own.**") || OWN_SECTIONS.contains(section),
            own(section, key),
            "{section} {key}"
        );
    }
}
