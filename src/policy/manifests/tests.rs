//! What is said of files.

use super::*;

const SOUND: &str = "\
apiVersion: kinference.buoyant.io/v1alpha1
kind: InferencePool
metadata: {name: chat}
spec:
  models:
  - name: standard
    backends:
    - workerSet: {name: qwen}
    - provider: {name: cloud, model: large}
---
apiVersion: kinference.buoyant.io/v1alpha1
kind: InferenceProvider
metadata: {name: cloud}
spec: {api: OpenAI, host: api.example.com, models: [{name: large}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: others}
";

fn remarks(files: &[(&str, &str)]) -> Vec<String> {
    read(files.iter().copied(), None).remarks.iter().map(ToString::to_string).collect()
}

fn policy(rules: &str) -> String {
    format!(
        "apiVersion: kinference.buoyant.io/v1alpha1\nkind: InferencePolicy\nmetadata: {{name: rules}}\n\
         spec:\n  poolRef: {{name: chat}}\n  rules:\n{rules}"
    )
}

#[test]
fn sound_files_make_policies_and_no_remark() {
    let rules = policy("  - {name: a, steps: [{minimize: Cost}]}\n");
    let made = read([("pool.yaml", SOUND), ("rules.yaml", &rules)], None);
    assert_eq!(made.remarks, []);
    assert_eq!(made.resources.len(), 3, "what is not ours is passed over");
    let pool = made.policies.pool("chat").unwrap();
    assert_eq!((pool.models.len(), pool.rules.len()), (1, 1));
}

#[test]
fn everything_is_said_with_file_and_line() {
    let rules = policy(
        "  - name: a\n    match:\n      models: [usual]\n    steps:\n    - keep: {providers: [clout], queueLength: {}}\n\
         \x20 - name: a\n    stepps: []\n    steps:\n    - minimise: Cost\n",
    );
    let said = remarks(&[("pool.yaml", SOUND), ("rules.yaml", &rules)]);
    let expected = [
        "rules.yaml:11:34: error: InferencePolicy rules: `spec.rules[0].steps[0].keep.queueLength` has 0 fields, but must \
         have at least 1",
        "rules.yaml:12:5: error: InferencePolicy rules: `spec.rules[1]` is there twice: \"a\"",
        "rules.yaml:13:5: error: InferencePolicy rules: `spec.rules[1].stepps` is no field, did you mean `steps`?; accepted: \
         `match`, `name`, `onEmpty`, `reject`, `steps`, `when`",
        "rules.yaml:15:7: error: InferencePolicy rules: `spec.rules[1].steps[0].minimise` is no field, did you mean \
         `minimize`?; accepted: `exclude`, `keep`, `minimize`, `prefer`, `tolerance`, `unlessFasterByMs`",
    ];
    assert_eq!(said, expected);
}

#[test]
fn references_are_followed_across_files() {
    let rules = policy(
        "  - name: a\n    match:\n      models: [usual]\n    steps:\n    - keep: {providers: [clout]}\n    onEmpty: NextRule\n\
         \x20 - {name: b, steps: [{exclude: {kind: Worker}}, {keep: {workerSets: [qwen]}}]}\n\
         \x20 - {name: c, steps: [{minimize: Cost}]}\n",
    );
    let said = remarks(&[("rules.yaml", &rules), ("pool.yaml", SOUND)]);
    let expected = [
        "rules.yaml:9:16: error: InferencePolicy rules: `spec.rules[0].match.models[0]` is \"usual\", which the pool does \
         not publish by that name; it publishes: `standard`",
        "rules.yaml:11:26: error: InferencePolicy rules: `spec.rules[0].steps[0].keep.providers[0]` is \"clout\", which is not \
         behind the pool; there are: `cloud`",
        "rules.yaml:13:50: warning: InferencePolicy rules: `spec.rules[1].steps[1]` leaves no candidate, whatever they are, \
         and then does Reject",
        "rules.yaml:14:5: warning: InferencePolicy rules: `spec.rules[2]` is never reached: `b` of rules decides over all \
         that it matches",
    ];
    assert_eq!(said, expected);
}

#[test]
fn slips_and_broken_files_do_not_hide_the_rest() {
    let slip = SOUND.replacen("kinference.buoyant.io", "kinference.bouyant.io", 1);
    let said = remarks(&[("a.yaml", "a: [1"), ("b.yaml", &slip), ("c.yaml", SOUND)]);
    assert_eq!(said.len(), 3, "{said:#?}");
    assert!(said[0].starts_with("a.yaml:1:") && said[0].contains("error: is no YAML: "), "{}", said[0]);
    assert!(said[1].starts_with("b.yaml:1:1: error: InferencePool chat: `apiVersion` is "), "{}", said[1]);
    assert!(
        said[2].starts_with("c.yaml:13:12: error: InferenceProvider cloud: `metadata.name` is "),
        "{}",
        said[2]
    );
}
