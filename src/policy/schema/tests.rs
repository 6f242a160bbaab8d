//! What is said of a resource without an API server.

use serde_json::json;

use super::*;

fn problems(kind: &str, spec: Value) -> Vec<String> {
    let mut value = json!({"metadata": {"name": "x"}, "spec": spec});
    check(kind, &mut value).iter().map(Problem::to_string).collect()
}

#[test]
fn every_rule_of_the_schemas_compiles() {
    for crd in crd::definitions() {
        let text = serde_json::to_string(crd).unwrap();
        assert!(text.contains("x-kubernetes-validations"), "{}", crd.spec.names.kind);
    }
    let mut rules = Vec::new();
    for crd in crd::definitions() {
        collect(&serde_json::to_value(crd).unwrap(), &mut rules);
    }
    for rule in rules {
        assert!(cel::Program::compile(&rule).is_ok(), "{rule}");
    }
}

fn collect(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            out.extend(fields.get("rule").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| collect(field, out));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, out)),
        _ => {}
    }
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let spec = json!({
        "api": "OpenAPI", "host": "https://api.openai.com", "port": 0, "pathprefix": "/x",
        "models": [{"name": "a b"}, {"name": "b", "cost": {"inputPerMillion": -1}}, {"name": "b"}],
        "credentials": {"mode": "Header"},
    });
    let said = problems("InferenceProvider", spec);
    let expected = [
        "`spec.pathprefix` is no field, did you mean `pathPrefix`?; accepted: `api`, `credentials`, `host`, `models`, \
         `pathPrefix`, `port`",
        "`spec.api` is \"OpenAPI\", but must be one of OpenAI, Anthropic, Bedrock; did you mean `OpenAI`?",
        "`spec.credentials.secretRef` is required by `mode: Header`, and taken by no other mode",
        "`spec.host` has to be a host name or IPv4 address without scheme, port or path, such as `api.openai.com`",
        "`spec.models[2]` is there twice: \"b\"",
        "`spec.models[0].name` has to be printable ASCII without spaces",
        "`spec.models[1].cost.inputPerMillion` is -1, but must be a number from 0 to 1000000000",
        "`spec.port` is 0, but must be a whole number from 1 to 65535",
    ];
    assert_eq!(said, expected);
}

#[test]
fn an_object_has_a_name_that_kubernetes_takes() {
    let mut value = json!({
        "metadata": {"name": "The Pool", "namespace": "default"}, "spec": {"poolRef": {"name": "chat"}}, "sepc": 1,
    });
    let said: Vec<_> = check("GatewayBackend", &mut value).iter().map(Problem::to_string).collect();
    assert!(said[0].starts_with("`metadata.name` has to be a name of DNS"), "{said:?}");
    assert!(said[1].starts_with("`sepc` is no field, did you mean `spec`?"), "{said:?}");
    assert_eq!(said.len(), 2, "{said:?}");
}

#[test]
fn defaults_are_filled_in_as_by_the_api_server() {
    let mut value = json!({"metadata": {"name": "x"}, "spec": {
        "api": "OpenAI", "host": "h", "models": [{"name": "m"}], "port": null, "credentials": {},
    }});
    assert_eq!(check("InferenceProvider", &mut value), []);
    let spec = &value["spec"];
    assert_eq!((&spec["port"], &spec["credentials"]), (&json!(443), &json!({"mode": "None"})));
    let model = json!({"name": "m", "expectedTtftMs": 1000, "cost": {"inputPerMillion": 0.0, "outputPerMillion": 0.0}});
    assert_eq!(spec["models"][0], model);
}

#[test]
fn what_is_missing_or_of_another_type_is_said_with_what_would_do() {
    let one = |spec| problems("InferenceWorkerSet", spec).join("\n");
    let said = one(json!({"profile": 3, "service": {"name": "s"}}));
    for words in [
        "`spec.profile` is 3, but must be a text",
        "`spec.modelName` is required: a text",
        "`spec.kvBlockSize` is required: a whole number from 1 to 65536",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert_eq!(problems("Nothing", json!({})).len(), 1);
    assert_eq!(check("GatewayBackend", &mut json!({})).len(), 1);
}
