//! Every shipped Envoy configuration is one that the real Envoy accepts, and says of itself what we rely on.
//!
//! Envoy: `KINFERENCE_TEST_ENVOY`, else the one that `.ci/tools.py envoy` put into `.cache/`, else those tests
//! are skipped with one line.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod tools;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use tools::envoy;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The configurations that users copy, and the demo's own.
fn configurations() -> Vec<PathBuf> {
    let yaml = |dir: &str| {
        let files = fs::read_dir(root().join(dir)).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect::<Vec<_>>()
    };
    [yaml("envoy"), yaml("examples/demo")].concat()
}

#[test]
fn envoy_accepts_every_configuration() {
    let Some(envoy) = envoy() else { return };
    let configurations = configurations();
    assert!(configurations.len() >= 3, "{configurations:?}");
    for path in configurations {
        let run = Command::new(&envoy).args(["--mode", "validate", "-c"]).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{}:\n{said}", path.display());
        let complaints: Vec<_> =
            said.lines().filter(|line| line.contains("[warning]") || line.contains("[error]")).collect();
        assert!(complaints.is_empty(), "{}:\n{}", path.display(), complaints.join("\n"));
    }
}

/// Those with Kinference in them.
fn with_kinference() -> Vec<(String, String)> {
    let read = |path: PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap())
    };
    configurations()
        .into_iter()
        .map(read)
        .filter(|(_, text)| text.contains("filters.http.ext_proc"))
        .collect()
}

#[test]
fn clients_cannot_choose_their_engine_or_tenant() {
    for (name, text) in with_kinference() {
        let strip = text.find("- remove: x-gateway-destination-endpoint").unwrap_or_else(|| panic!("{name}"));
        let tenant = text.find("remove_on_match: { key_matcher: { prefix: x-kinference- } }").unwrap();
        let ext_proc = text.find("- name: envoy.filters.http.ext_proc").unwrap();
        assert!(strip < ext_proc && tenant < ext_proc, "{name}: stripped too late");
        assert!(!text.contains("allow_mode_override: true"), "{name}");
    }
}

/// A duration such as `5s` behind a key, in milliseconds.
fn millis(text: &str, key: &str) -> u128 {
    let value = text.split(&format!("{key}: ")).nth(1).unwrap().split_whitespace().next().unwrap();
    u128::from(value.strip_suffix('s').unwrap().parse::<u64>().unwrap()) * 1000
}

#[test]
fn envoy_is_more_patient_than_our_deadline() {
    let deadline = kinference::config::ExtProcConfig::default().deadline.as_millis();
    for (name, text) in with_kinference() {
        assert!(millis(&text, "message_timeout") >= 2 * deadline, "{name}");
    }
}

#[test]
fn envoy_holds_what_we_accept() {
    let accepted = kinference::config::BodyLimits::default().request_bytes;
    let limit = |text: &str, key: &str| {
        let value = text.split(&format!("{key}: ")).nth(1)?;
        value.split_whitespace().next()?.parse::<usize>().ok()
    };
    for (name, key) in [
        ("duplex.yaml", "request_body_buffer_limit"),
        ("duplex-static.yaml", "request_body_buffer_limit"),
        ("providers.yaml", "request_body_buffer_limit"),
        ("bedrock.yaml", "request_body_buffer_limit"),
        ("buffered-fail-open.yaml", "per_connection_buffer_limit_bytes"),
    ] {
        let text = fs::read_to_string(root().join("envoy").join(name)).unwrap();
        assert!(limit(&text, key).is_some_and(|bytes| bytes > accepted), "{name}: {key}");
    }
}

/// What tests and the demo replace to run a shipped configuration on ports of their own.
#[test]
fn ports_are_replaceable_by_text() {
    for (name, text) in with_kinference() {
        for port in ["port_value: 10000 ", "port_value: 9901 ", "port_value: 9002 "] {
            assert_eq!(text.matches(port).count(), 1, "{name}: {port}");
        }
        let engines: Vec<_> =
            [8000, 8001, 8002].map(|p| text.matches(&format!("port_value: {p} ")).count()).into();
        let listed = text.contains("cluster_name: engines");
        assert_eq!(engines, if listed { vec![1; 3] } else { vec![0; 3] }, "{name}");
    }
}

/// The cluster that a pick's header leads to follows the worker set that the sample configurations have.
#[test]
fn the_discovered_cluster_is_that_of_the_samples() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let text = read("envoy/duplex.yaml");
    assert!(text.contains("cluster_header: x-kinference-backend\n"));
    let value =
        |key: &str| text.split(&format!("{key}: ")).nth(1).unwrap().lines().next().unwrap().to_owned();
    let set = value("service_name").strip_prefix("kinference/").unwrap().to_owned();
    assert!(text.contains(&format!("    - name: workerset/{set}\n")), "{set}");
    for sample in ["config/kinference.toml", "examples/demo/kinference.toml"] {
        assert!(read(sample).contains(&format!("[[workerset]]\nname = \"{set}\"")), "{sample}");
    }
}

/// The two duplex samples differ in where the engines come from, and in nothing else.
#[test]
fn the_static_variant_is_kept_in_step() {
    let read = |name: &str| fs::read_to_string(root().join("envoy").join(name)).unwrap();
    let filters = |text: &str| {
        let from = text.split("                http_filters:").nth(1).unwrap();
        from.split("  clusters:").next().unwrap().to_owned()
    };
    let kinference = |text: &str| text.split("    - name: kinference\n").nth(1).unwrap().to_owned();
    let (main, fixed) = (read("duplex.yaml"), read("duplex-static.yaml"));
    assert_eq!(filters(&main), filters(&fixed));
    assert_eq!(kinference(&main), kinference(&fixed));
}

/// The samples with a provider are the main one and what a provider needs: `text` without the lines from one that has `first`
/// up to one that has `after`.
fn without(text: &str, first: &str, after: &str) -> String {
    let line = |from: usize, what: &str| {
        let at = from + text[from..].find(what).unwrap_or_else(|| panic!("{what}"));
        text[..at].rfind('\n').unwrap() + 1
    };
    let from = line(0, first);
    let to = line(from, after);
    format!("{}{}", &text[..from], &text[to..])
}

#[test]
fn the_variants_with_a_provider_are_kept_in_step() {
    let read = |name: &str| fs::read_to_string(root().join("envoy").join(name)).unwrap();
    let body = |text: &str| text[text.find("# Endpoint discovery wants").unwrap()..].to_owned();
    let main = body(&read("duplex.yaml"));
    for (name, cluster) in
        [("providers.yaml", "One of these for each InferenceProvider"), ("bedrock.yaml", "Amazon Bedrock's")]
    {
        let text = body(&read(name));
        assert!(text.contains("mutation_rules: { allow_all_routing: true }"), "{name}");
        let text = without(&text, "Kinference names the provider of its pick", "With policies a route says");
        let text =
            without(&text, "A request that leaves for a provider gets", "Without Kinference a request");
        let text = without(&text, cluster, "One of these for each worker set");
        assert_eq!(text, main, "{name}");
    }
}

/// Whoever answers for a provider has to prove that it is the one.
#[test]
fn providers_are_reached_over_tls_and_validated() {
    for name in ["providers.yaml", "bedrock.yaml"] {
        let text = fs::read_to_string(root().join("envoy").join(name)).unwrap();
        let from = text.find("    - name: provider/").unwrap();
        let cluster = &text[from..from + text[from..].find("    - name: workerset/").unwrap()];
        for need in ["UpstreamTlsContext", "trusted_ca:", "auto_sni: true", "auto_san_validation: true"] {
            assert!(cluster.contains(need), "{name}: {need}");
        }
    }
}
