//! Whole files: many mistakes at once, odd shapes and encodings, what is ignored, what prints back.

use std::path::Path;

use kinference::config::{Config, TenantLabels};

use crate::{errors, file, parse};

const LISTEN: &str = "listen = \"0.0.0.0:9002\"\n";

#[test]
fn a_single_table_is_told_to_be_an_array() {
    let of = |text: &str| errors(&format!("{LISTEN}{text}"));
    for name in ["profile", "workerset"] {
        let found = of(&format!("[{name}]\nname = \"a\"\n[kubernetes]\nenabled = {}", name == "workerset"));
        let own: Vec<_> = found.iter().filter(|(path, _)| path == name).collect();
        assert!(own[0].1.contains(&format!("`[[{name}]]`")), "{found:?}");
    }
    assert_eq!(of("profile = [1]\n[kubernetes]\nenabled = true")[0].0, "profile[0]");
}

#[test]
fn worker_sets_come_from_the_file_or_from_kubernetes() {
    assert_eq!(errors(LISTEN)[0].0, "workerset");
    let kubernetes = format!("{LISTEN}[kubernetes]\nenabled = true\n");
    assert_eq!(errors(&kubernetes)[0].0, "profile");
    let (config, _) = parse(&format!("{kubernetes}[[profile]]\nname = \"p\"")).unwrap();
    assert!(config.workersets.is_empty() && config.kubernetes.enabled);
}

#[test]
fn tenant_labels_are_a_word_or_a_list() {
    let read = |value: &str| {
        let (config, _) = parse(&file(&[("[metrics]", &format!("tenant_labels = {value}"))])).unwrap();
        assert_eq!(parse(&config.effective()).unwrap().0, config, "{value} prints back");
        config.metrics.tenant_labels
    };
    assert_eq!(parse(&file(&[])).unwrap().0.metrics.tenant_labels, TenantLabels::None);
    assert_eq!([read("\"none\""), read("[]")], [TenantLabels::None, TenantLabels::None]);
    assert_eq!(read("\"all\""), TenantLabels::All);
    assert_eq!(read("[\"a\", \"none\"]"), TenantLabels::Only(vec!["a".into(), "none".into()]));
    for wrong in ["\"some\"", "true", "7", "[1]", "[\"\"]", "{}"] {
        let found = errors(&file(&[("[metrics]", &format!("tenant_labels = {wrong}"))]));
        assert_eq!(found[0].0, "metrics.tenant_labels", "{wrong}");
        assert!(found[0].1.contains("\"none\", \"all\" or a list of tenant names"), "{found:?}");
    }
}

#[test]
fn nine_mistakes_are_nine_errors() {
    let text = "
        listen = 'nowhere'\nbogus = 1\nmetrics_poll_ms = 0\n
        [[profile]]\nname = 'a'\npredictor.base_ms = 'fast'\n[[profile]]\nname = 'a'\npicker.top_k_fraction = 1.5
        [[workerset]]\nname = 's'\nprofile = 'b'\nkv_block_size = 0\n[workerset.discovery]\nmode = 'kubernetes'\n";
    let (found, paths) =
        (parse(text).unwrap_err(), errors(text).into_iter().map(|e| e.0).collect::<Vec<_>>());
    assert_eq!(paths.len(), 9, "{found}");
    for path in [
        "listen",
        "bogus",
        "metrics_poll_ms",
        "profile[0].predictor.base_ms",
        "profile[1].name",
        "profile[1].picker.top_k_fraction",
        "workerset[0].profile",
        "workerset[0].kv_block_size",
        "workerset[0].discovery.service_name",
    ] {
        assert!(paths.contains(&path.to_owned()), "{path} in {found}");
    }
    let report = found.in_file(Path::new("/etc/k.toml")).to_string();
    assert_eq!(report.lines().count(), 10);
    assert!(report.starts_with("/etc/k.toml: 9 errors\n"), "{report}");
}

#[test]
fn unknown_keys_inside_sections_are_warned_of_once() {
    let (_, warnings) = parse(&file(&[
        ("[profile.predictor]", "base = 1\n\"über\\n\" = 2"),
        ("[workerset.discovery]", "workers_files = 1"),
        ("[tokenize.local]", "mount_dri = \"x\""),
        ("[policy]", "x.y.z = 1"),
    ]))
    .unwrap();
    let warned = |path: &str, words: &str| {
        warnings.iter().filter(|w| w.contains(&format!("`{path}`")) && w.contains(words)).count() == 1
    };
    assert_eq!(warnings.len(), 5, "{warnings:?}");
    assert!(warned("profile[0].predictor.base", "ignored"));
    assert!(warned("profile[0].predictor.\"über\\n\"", "ignored"), "{warnings:?}");
    assert!(warned("workerset[0].discovery.workers_files", "did you mean `workers_file`"));
    assert!(warned("tokenize.local.mount_dri", "did you mean `mount_dir`"));
    assert!(warned("policy.x", "ignored"));
}

#[test]
fn keys_of_the_other_discovery_mode_are_warned_of() {
    let warned = |patches: &[(&str, &str)]| parse(&file(patches)).unwrap().1;
    let discovery = "[workerset.discovery]";
    let static_mode =
        warned(&[(discovery, "service_name = \"x\""), ("[workerset.discovery.defaults]", "http_port = 1")]);
    assert_eq!(static_mode.len(), 2, "{static_mode:?}");
    assert!(static_mode[0].contains("`workerset[0].discovery.service_name` has no effect"));
    assert!(static_mode[1].contains("`workerset[0].discovery.defaults` has no effect"));
    let kubernetes_mode = warned(&[(discovery, "mode = \"kubernetes\"\nservice_name = \"x\"")]);
    assert!(kubernetes_mode[0].contains("`workerset[0].discovery.workers_file` has no effect"));
    let pool = "mode = \"inference_pool\"\npool_name = \"x\"\nservice_name = \"y\"";
    let (config, pool_mode) = parse(&file(&[(discovery, pool)])).unwrap();
    assert_eq!(pool_mode.len(), 2, "{pool_mode:?}");
    assert!(pool_mode[1].contains("`workerset[0].discovery.service_name` has no effect"));
    assert_eq!(parse(&config.effective()).unwrap().0, config);
}

#[test]
fn keys_of_a_decision_log_in_a_file_are_warned_of_without_one() {
    let set = "file = \"d.jsonl\"\nmax_size_mb = 7\nmax_files = 1\nsample = 0.5";
    for (output, warned) in [("off", 3), ("stdout", 3), ("file", 0)] {
        let text = file(&[("[decision_log]", &format!("output = \"{output}\"\n{set}"))]);
        let (config, warnings) = parse(&text).unwrap();
        assert_eq!(warnings.len(), warned, "{warnings:?}");
        assert_eq!(config.decision_log.file.as_deref(), Some(Path::new("/etc/kinference/d.jsonl")));
        assert_eq!(parse(&config.effective()).unwrap().0, config);
    }
}

#[test]
fn keys_of_traces_are_warned_of_without_an_endpoint() {
    let set = "protocol = \"http\"\nsample = 0.5\nservice_name = \"n\"\ntimeout_ms = 7";
    for (endpoint, warned) in [("", 4), ("endpoint = \"http://collector:4318/base/\"", 0)] {
        let (config, warnings) = parse(&file(&[("[traces]", &format!("{endpoint}\n{set}"))])).unwrap();
        assert_eq!(warnings.len(), warned, "{warnings:?}");
        assert_eq!(parse(&config.effective()).unwrap().0, config);
    }
}

#[test]
fn aliases_units_and_paths() {
    let (config, _) = parse(&file(&[
        ("", "listen = \"localhost:0\"\nbody_max_request_kb = 1\nmetrics_poll_ms = 1500\nmodels_refresh_secs = 2"),
        ("[profile.tokenize]", "mode = \"http\""),
        ("[profile.predictor]", "base_ms = 7"),
        ("[tokenize]", "local.mount_dir = \"models\""),
    ])).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:0");
    assert_eq!(config.body.request_bytes, 1024);
    assert_eq!((config.metrics_poll.as_millis(), config.models_refresh.as_secs()), (1500, 2));
    assert_eq!(config.profiles[0].tokenize_mode, kinference::config::TokenizeMode::Render);
    assert_eq!(config.profiles[0].predictor.base_ms.to_bits(), 7f64.to_bits());
    assert_eq!(config.tokenize.mount_dir.as_deref(), Some(Path::new("/etc/kinference/models")));
    let (absolute, _) = parse(&file(&[("[workerset.discovery]", "workers_file = \"/w.toml\"")])).unwrap();
    assert!(absolute.effective().contains("workers_file = \"/w.toml\""));
}

#[test]
fn odd_files() {
    assert_eq!(errors("").len(), 2, "an empty file lacks `listen` and a worker set");
    let crlf = file(&[]).replace('\n', "\r\n");
    for good in [format!("\u{feff}{}", file(&[])), crlf, file(&[("[[profile]]", "name = \"p\" # π")])] {
        assert_eq!(errors(&good), [], "{good:?}");
    }
    assert_eq!(
        errors(&file(&[("[[profile]]", "name = \"日本\""), ("[[workerset]]", "profile = \"日本\"")])),
        []
    );
    for (text, place) in [
        ("a = \n", "line 1, column 5"),
        ("x = 1\r\nπ = 2", "line 2, column 1"),
        ("a = 1\na = 2", "line 2, column 1"),
    ] {
        let found = errors(text);
        assert!(found.len() == 1 && found[0].1.starts_with(place), "{text:?}: {found:?}");
    }
    let huge = "x".repeat(10 << 20);
    for text in [
        file(&[("[[profile]]", &format!("name = \"p\"\ntokenize.mode = \"{huge}\""))])
            .replace("[profile.tokenize]", ""),
        file(&[("", &format!("{huge} = 1"))]),
        format!("a = {huge}"),
        format!("[{huge}"),
    ] {
        let report = parse(&text).unwrap_err().to_string();
        assert!(report.len() < 2000 && report.contains("1 error"), "{} bytes", report.len());
    }
}

#[test]
fn everything_set_prints_back() {
    let text = file(&[
        ("", "admin_listen = \"[::1]:1\"\nmock_mode = true\nbody_max_total_kb = 4294967295"),
        ("[tls]", "cert_file = \"c d\"\nkey_file = \"/k\"\nclient_ca_file = \"../a\""),
        ("[ext_proc]", "tenant_header = \"X-T\"\ndeadline_ms = 4294967295"),
        ("[tokenize]", "pool_max_idle_per_host = 0\nlocal.mount_dir = \"a \\\" \\\\ b\""),
        ("[[profile]]", "name = \"q\\n'\\\"日本\""),
        ("[profile.predictor]", "base_ms = 0.1\nqueue_ms_per_entry = 1e15\nforward_pass_ms = 5e-324"),
        ("[profile.picker]", "seed = 9223372036854775807"),
        ("[[workerset]]", "profile = \"q\\n'\\\"日本\"\nrender_url = \"http://a/render?x\""),
        ("[metrics]", "tenant_labels = [\"a\", \"all\"]"),
        ("[decision_log]", "output = \"file\"\nfile = \"d\"\nmax_size_mb = 1\nmax_files = 9\nsample = 0.25"),
        ("[traces]", "endpoint = \"https://a/b/\"\nprotocol = \"http\"\nsample = 0\ntimeout_ms = 1"),
        (
            "[kubernetes]",
            "namespace = \"n\"\nselector = \"a=b,c in (d)\"\ndiscovery_defaults.replay_port = 1",
        ),
        ("[leader_election]", "namespace = \"m\"\nlease_name = \"l\""),
    ]);
    let (config, _) = parse(&text).unwrap();
    let again = Config::parse(&config.effective(), Path::new("elsewhere")).unwrap();
    assert_eq!(again, (config, vec![]));
}

#[test]
fn a_misspelt_key_is_told_beside_the_one_that_is_missing() {
    let text = "listen = \"127.0.0.1:1\"\n[[profile]]\nname = \"p\"\n[[workerset]]\nname = \"w\"\nprofile = \"p\"\n\
                kv_block_size = 16\ndiscovery.workersfile = \"w.toml\"\n";
    let report = Config::parse(text, Path::new("")).unwrap_err().in_file(Path::new("k.toml")).to_string();
    assert!(report.contains("`workerset[0].discovery.workers_file` is required"), "{report}");
    assert!(report.contains("k.toml: `workerset[0].discovery.workersfile` is no known key"), "{report}");
}
