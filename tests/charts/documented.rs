//! The table of rights in `docs/kubernetes.md` is what the chart grants, feature by feature.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    helm::{Helm, objects},
    read,
};

const KUBERNETES: &str = "`kubernetes.enabled`";
const NODES_OFF: &str = "rbac.nodes=false";
/// The rows of the table that hold, and the configuration that makes them.
const FEATURES: &[(&[&str], &str)] = &[
    (&[], "{}"),
    (&[KUBERNETES], r#"{"kubernetes": {"enabled": true}}"#),
    (
        &["`discovery.mode = \"kubernetes\"`"],
        r#"{"workerset": [{"name": "a", "profile": "p", "kv_block_size": 16, "discovery": {"mode": "kubernetes", "service_name": "s"}}]}"#,
    ),
    (
        &["`discovery.mode = \"inference_pool\"`"],
        r#"{"workerset": [{"name": "a", "profile": "p", "kv_block_size": 16, "discovery": {"mode": "inference_pool"}}]}"#,
    ),
    (&["`policy.enabled`"], r#"{"policy": {"enabled": true}}"#),
    (&["`leader_election.enabled`"], r#"{"leader_election": {"enabled": true}}"#),
    (&["`token_review.enabled`"], r#"{"token_review": {"enabled": true}}"#),
];

/// A right: feature or nothing, verbs, group, resources and their names, each sorted.
type Right = (BTreeSet<String>, String, BTreeSet<String>);

/// The rows of the table, each with its feature.
fn documented() -> Vec<(String, Right)> {
    let doc = read("docs/kubernetes.md");
    let table = doc.split("| Feature | Verbs |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let verbs = cells[1].split(", ").map(str::to_owned).collect();
        let group = cells[2].trim_matches('`').replace("core", "");
        // In backticks: the resources, then the default of a name. A key of the configuration is none.
        let words = cells[3].split('`').skip(1).step_by(2).filter(|word| *word != "lease_name");
        (cells[0].to_owned(), (verbs, group, words.map(str::to_owned).collect()))
    })
    .collect()
}

/// What is granted with that configuration alone.
fn granted(helm: &Helm, config: &str, value: &str) -> BTreeSet<Right> {
    let mut set: Value = serde_json::from_str(config).unwrap();
    for feature in ["kubernetes", "leader_election"] {
        set.as_object_mut().unwrap().entry(feature).or_insert(json!({"enabled": false}));
    }
    // One that grants nothing, since there has to be one.
    let listed =
        json!([{"name": "listed", "profile": "p", "kv_block_size": 16, "discovery": {"workers_file": "/w"}}]);
    set.as_object_mut().unwrap().entry("workerset").or_insert(listed);
    let config = format!("config={set}");
    let args = ["--set-json", &config, "--set-json", NODES_OFF, "--set-json", value];
    let rendered = helm.template(&args).unwrap();
    let all = objects(&rendered);
    let roles = all.iter().filter(|object| object["rules"].is_array());
    roles.flat_map(|role| role["rules"].as_array().unwrap()).map(right).collect()
}

fn right(rule: &Value) -> Right {
    let words =
        |key: &str| rule[key].as_array().into_iter().flatten().map(|word| word.as_str().unwrap().to_owned());
    let group: Vec<_> = words("apiGroups").collect();
    (words("verbs").collect(), group.join(","), words("resources").chain(words("resourceNames")).collect())
}

#[test]
fn every_right_is_in_the_documentation() {
    let Some(helm) = Helm::find() else { return };
    let rows = documented();
    let of = |features: &[&str]| -> BTreeSet<Right> {
        rows.iter()
            .filter(|(of, _)| features.contains(&of.as_str()))
            .map(|(_, right)| right.clone())
            .collect()
    };
    for (features, config) in FEATURES {
        assert_eq!(granted(&helm, config, NODES_OFF), of(features), "{features:?}");
    }
    let nodes = "any of these, with `rbac.nodes`";
    assert_eq!(granted(&helm, FEATURES[1].1, "rbac.nodes=true"), of(&[KUBERNETES, nodes]));
    assert_eq!(granted(&helm, "{}", "rbac.nodes=true"), BTreeSet::new());
    let (policy, config) = FEATURES[4];
    let secrets = "`policy.enabled`, with `providers.secrets`";
    let named = r#"providers.secrets=["cloud-credentials"]"#;
    let with_secrets = of(&[policy, &[secrets]].concat());
    assert_eq!(granted(&helm, config, named), with_secrets);
    let in_files = r#"{"policy": {"enabled": true, "secrets_dir": "/credentials"}}"#;
    assert_eq!(granted(&helm, in_files, named), of(policy));
    assert_eq!(granted(&helm, "{}", named), BTreeSet::new());
    let known: BTreeSet<_> =
        FEATURES.iter().flat_map(|(features, _)| features.iter().copied()).chain([nodes, secrets]).collect();
    assert_eq!(rows.iter().map(|(feature, _)| feature.as_str()).collect::<BTreeSet<_>>(), known);
}
