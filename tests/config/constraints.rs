//! What every key refuses, and what holds between keys.

use crate::{defaults::DEFAULTS, errors, file, parse};

/// Sections (of [`file`]) and keys by the kind of value that they take, with what is said of another.
const BAD_KINDS: &[(&str, &[&str], &[&str], &str)] = &[
    (
        "true or false",
        &["1", "\"true\"", "0.0"],
        &[
            " mock_mode",
            "[tls] self_signed",
            "[ext_proc] trust_headers",
            "[ext_proc] explain_headers",
            "[tokenize.local] warmup",
            "[profile.picker] inflight_tracking",
            "[policy] enabled",
            "[kubernetes] enabled",
            "[token_review] enabled",
            "[rate_limit] enabled",
            "[leader_election] enabled",
        ],
        "",
    ),
    (
        "from 1 to 4294967295",
        &["0", "-1", "1.0", "\"5\"", "4294967296", "true"],
        &[
            " metrics_poll_ms",
            " models_refresh_secs",
            " replay_timeout_ms",
            " observation_ttl_secs",
            " body_max_total_kb",
            " body_max_request_kb",
            " body_ttl_secs",
            " body_idle_timeout_secs",
            "[ext_proc] deadline_ms",
            "[profile.predictor] q_running_penalty_peak_qr",
            "[profile.predictor] q_running_penalty_falloff_qr",
            "[profile.picker] top_k_min",
            "[[workerset]] kv_block_size",
            "[decision_log] max_files",
            "[traces] timeout_ms",
            "[token_review] default_deadline_ms",
            "[leader_election] renew_grace_secs",
            "[leader_election] retry_secs",
        ],
        "",
    ),
    (
        "from 1 to 1048576",
        &["0", "-1", "1.0", "\"5\"", "1048577"],
        &["[decision_log] max_size_mb"],
        "1048576",
    ),
    ("from 1 to 3600", &["0", "-1", "1.5", "3601"], &["[leader_election] lease_duration_secs"], ""),
    (
        "from 0 to 4294967295",
        &["-1", "1.0", "\"5\"", "4294967296"],
        &[
            " dashboard_max_workers",
            "[tokenize] pool_max_idle_per_host",
            "[profile.predictor] inflight_concurrent_capacity",
            "[profile.picker] replication_warm_target",
            "[profile.picker] warmup_in_flight_max",
            "[token_review] positive_ttl_secs",
            "[token_review] negative_ttl_secs",
            "[token_review] max_cache_entries",
        ],
        "0",
    ),
    (
        "from 0 to 9223372036854775807",
        &["-1", "1.0", "\"5\""],
        &["[profile.picker] seed"],
        "9223372036854775807",
    ),
    (
        "from 1 to 65535",
        &["0", "-1", "65536", "\"80\""],
        &[
            "[workerset.discovery.defaults] http_port",
            "[workerset.discovery.defaults] zmq_port",
            "[workerset.discovery.defaults] replay_port",
            "[kubernetes.discovery_defaults] http_port",
            "[kubernetes.discovery_defaults] zmq_port",
            "[kubernetes.discovery_defaults] replay_port",
        ],
        "65535",
    ),
    (
        "a number from 0 to 1e15",
        &["-0.1", "-1", "nan", "inf", "\"1\"", "1e16"],
        &[
            "[profile.predictor] base_ms",
            "[profile.predictor] forward_pass_ms",
            "[profile.predictor] queue_ms_per_entry",
            "[profile.predictor] attention_uncached_block_ms",
            "[profile.predictor] attention_uncached_per_every_block_ms",
            "[profile.predictor] cache_pressure_penalty_ms",
            "[profile.predictor] saturated_cold_ms_per_entry",
            "[profile.predictor] q_running_penalty_peak_ms",
            "[profile.predictor] backlog_weight",
            "[profile.picker] tie_tolerance_ms",
        ],
        "3",
    ),
    (
        "a number from 0 to 1",
        &["-0.1", "1.01", "2", "nan", "-inf", "\"1\""],
        &[
            "[profile.predictor] cache_pressure_saturated_threshold",
            "[profile.predictor] expected_overlap_alpha",
            "[profile.predictor] lower_tier_credit",
            "[profile.picker] top_k_fraction",
            "[profile.picker] replication_warm_threshold_fraction",
            "[decision_log] sample",
            "[ext_proc] observe_sample",
            "[traces] sample",
        ],
        "1",
    ),
    (
        "a number from 0 to 100",
        &["-0.1", "100.5", "nan", "true"],
        &["[profile.picker] replication_threshold_pct"],
        "100",
    ),
    (
        "a list of `\"tags\"`, `\"tenant\"` and `\"pool\"`",
        &["1", "\"tags\"", "[\"tag\"]", "[1]"],
        &["[policy] body_metadata"],
        "",
    ),
    ("a list of paths", &["1", "\"x\"", "[1]", "[\"\"]"], &["[policy] files"], ""),
    (
        "a non-empty string",
        &["\"\"", "\"  \"", "1", "[]"],
        &[
            "[[profile]] name",
            "[[workerset]] name",
            "[[workerset]] profile",
            "[policy] namespace",
            "[traces] service_name",
        ],
        "",
    ),
    (
        "the name of a Kubernetes object",
        &["\"\"", "\"  \"", "1", "[]", "\"A\"", "\"a b\"", "\"a,b=c\""],
        &[
            "[workerset.discovery] service_name",
            "[workerset.discovery] pool_name",
            "[workerset.discovery] namespace",
            "[kubernetes] namespace",
            "[leader_election] lease_name",
            "[leader_election] namespace",
        ],
        "\"a-0\"",
    ),
    (
        "a label selector, such as `team=a,tier in (gpu, cpu),!old`",
        &["\"\"", "\"  \"", "1", "[]", "\"a=b=c\"", "\"a in b\""],
        &["[kubernetes] selector"],
        "\"a=b,c notin (d)\"",
    ),
    (
        "a path",
        &["\"\"", "3"],
        &["[workerset.discovery] workers_file", "[tokenize.local] mount_dir", "[decision_log] file"],
        "\"a b\"",
    ),
    (
        "a path",
        &["\"\"", "3"],
        // One without the others does not do.
        &["[tls] cert_file", "[tls] key_file", "[tls] client_ca_file", "[policy] secrets_dir"],
        "",
    ),
    (
        "an IP address and a port",
        &["\"\"", "\"9002\"", "\":9002\"", "\"host:9002\"", "9002"],
        &[" listen", " admin_listen"],
        "\"[::]:9003\"",
    ),
    (
        "the name of an HTTP header",
        &["\"\"", "\"a b\"", "\":path\"", "1"],
        &["[ext_proc] tenant_header", "[ext_proc] tags_header", "[ext_proc] pool_header"],
        "\"X-A\"",
    ),
    (
        "an http:// or https:// URL",
        &["\"\"", "\"engine:8000\"", "\"ftp://a\"", "1"],
        &["[[workerset]] render_url"],
        "\"https://a/render\"",
    ),
    (
        "an http:// or https:// URL without query and fragment",
        &["\"\"", "\"collector:4317\"", "\"http://a/?x\"", "1"],
        &["[traces] endpoint"],
        "\"https://collector:4317/\"",
    ),
    ("one of \"grpc\", \"http\"", &["\"\"", "\"http/json\"", "1"], &["[traces] protocol"], "\"http\""),
    (
        "one of \"render\", \"local\", \"compare\", \"http\"",
        &["\"\"", "\"Local\"", "1"],
        &["[profile.tokenize] mode"],
        "\"compare\"",
    ),
    (
        "one of \"full\", \"sampled\", \"headers\"",
        &["\"\"", "\"none\"", "1"],
        &["[ext_proc] observe"],
        "\"headers\"",
    ),
    (
        "one of \"off\", \"shadow\", \"on\"",
        &["\"\"", "\"On\"", "true"],
        &["[profile.predictor] calibration"],
        "\"on\"",
    ),
    (
        "one of \"static\", \"kubernetes\", \"inference_pool\"",
        &["\"\"", "\"k8s\"", "1"],
        &["[workerset.discovery] mode"],
        "\"static\"",
    ),
    (
        "one of \"off\", \"stdout\", \"file\"",
        &["\"\"", "\"stderr\"", "true"],
        &["[decision_log] output"],
        "\"stdout\"",
    ),
    (
        "\"none\", \"all\" or a list of tenant names",
        &["\"some\"", "true", "[1]", "[\"\"]"],
        &["[metrics] tenant_labels"],
        "[\"a\", \"b\"]",
    ),
];

/// `[profile.predictor]` -> `profile[0].predictor.`
fn path_of(section: &str, key: &str) -> String {
    let bare = section
        .trim_matches(['[', ']'])
        .replace("profile", "profile[0]")
        .replace("workerset", "workerset[0]");
    if bare.is_empty() { key.into() } else { format!("{bare}.{key}") }
}

#[test]
fn every_key_refuses_what_it_does_not_take() {
    let mut keys = 0;
    for (accepted, bad, of, good) in BAD_KINDS {
        for (section, key) in of.iter().map(|of| of.split_once(' ').unwrap()) {
            keys += 1;
            for value in *bad {
                let text = file(&[(section, &format!("{key} = {value}"))]);
                let found = errors(&text);
                assert_eq!(found.len(), 1, "{section} {key} = {value}: {found:?}");
                assert_eq!(found[0].0, path_of(section, key), "{value}");
                assert!(found[0].1.contains(accepted), "{section} {key} = {value}: {}", found[0].1);
            }
            if !good.is_empty() {
                let text = file(&[(section, &format!("{key} = {good}"))]);
                assert_eq!(errors(&text), [], "{section} {key} = {good}");
            }
        }
    }
    assert_eq!(keys, DEFAULTS.len(), "every key is in the table once");
}

/// Patches, then the path and words of the one error that they make.
type Constraint = (&'static [(&'static str, &'static str)], &'static str, &'static [&'static str]);

const CONSTRAINTS: &[Constraint] = &[
    (&[("", "-listen")], "listen", &["required"]),
    (&[("", "admin_listen = \"0.0.0.0:9002\"")], "admin_listen", &["0.0.0.0:9002", "other than `listen`"]),
    (&[("[tls]", "cert_file = \"c\"")], "tls.key_file", &["required", "private key"]),
    (&[("[tls]", "key_file = \"k\"")], "tls.cert_file", &["required", "certificate"]),
    (&[("[tls]", "client_ca_file = \"a\"")], "tls.cert_file", &["required", "`self_signed = true`"]),
    (&[("[tls]", "self_signed = true\nkey_file = \"k\"")], "tls.self_signed", &["true", "`cert_file`"]),
    (&[("", "body_max_total_kb = 4096")], "body_max_request_kb", &["8192", "at most", "4096"]),
    (&[("[[profile]]", "-name")], "profile[0].name", &["required"]),
    (&[("[[workerset]]", "-name")], "workerset[0].name", &["required"]),
    (&[("[[workerset]]", "-profile")], "workerset[0].profile", &["required"]),
    (&[("[[workerset]]", "-kv_block_size")], "workerset[0].kv_block_size", &["required", "from 1"]),
    (&[("[[workerset]]", "profile = \"q\"")], "workerset[0].profile", &["\"q\"", "defined: p"]),
    (&[("[[profile]] # second", "name = \"p\"")], "profile[1].name", &["\"p\"", "unique", "profile[0]"]),
    (
        &[(
            "[[workerset]] # second",
            "name = \"s\"\nprofile = \"p\"\nkv_block_size = 1\ndiscovery.workers_file = \"w\"",
        )],
        "workerset[1].name",
        &["\"s\"", "unique", "workerset[0]"],
    ),
    (&[("[workerset.discovery]", "-workers_file")], "workerset[0].discovery.workers_file", &["required"]),
    (
        &[("[workerset.discovery]", "mode = \"kubernetes\"")],
        "workerset[0].discovery.service_name",
        &["required"],
    ),
    (
        &[("[workerset.discovery]", "mode = \"inference_pool\"")],
        "workerset[0].discovery.pool_name",
        &["required"],
    ),
    (
        &[("[profile.predictor]", "q_running_penalty_peak_qr = 6")],
        "profile[0].predictor.q_running_penalty_falloff_qr",
        &["5", "at least", "6"],
    ),
    (&[("[decision_log]", "output = \"file\"")], "decision_log.file", &["required", "a path"]),
    (
        &[("[leader_election]", "lease_duration_secs = 10")],
        "leader_election.renew_grace_secs",
        &["10", "less than `lease_duration_secs`"],
    ),
    (
        &[("", "lisen = 1")],
        "lisen",
        &["did you mean `listen`", "`workerset`", "`admin_listen`", "`ext_proc`"],
    ),
    (&[("[workersets]", "")], "workersets", &["did you mean `workerset`"]),
    (&[("", "policy = true")], "policy", &["true", "a table", "[policy]"]),
    (&[("[[metrics]]", "")], "metrics", &["a table", "[metrics]"]),
];

#[test]
fn every_constraint_holds() {
    for (patches, path, words) in CONSTRAINTS {
        let found = errors(&file(patches));
        assert_eq!(found.len(), 1, "{patches:?}: {found:?}");
        assert_eq!(found[0].0, *path, "{patches:?}");
        for word in *words {
            assert!(found[0].1.contains(word), "{word:?} is not in {:?}", found[0].1);
        }
    }
}

#[test]
fn a_router_needs_something_to_route_to() {
    let listens = "listen = \"127.0.0.1:1\"\n";
    let policy = format!("{listens}[policy]\nenabled = true\n");
    for nothing in [listens.to_owned(), format!("{listens}[policy]\nenabled = false\nfiles = [\"a\"]\n")] {
        let report = parse(&nothing).unwrap_err().in_file(std::path::Path::new("k.toml")).to_string();
        assert!(report.contains("at least one `[[workerset]]`"), "{report}");
    }
    // Pools of providers alone.
    assert!(parse(&format!("{policy}files = [\"a.yaml\"]\n")).is_ok());
}
