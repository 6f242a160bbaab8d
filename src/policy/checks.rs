//! What has to hold within one resource and can't be said in a schema: the API server takes these, and the resource's
//! `Accepted` condition says why Kinference does not.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{
    crd::{InferencePolicySpec, InferencePoolSpec, InferenceProviderSpec, InferenceWorkerSetSpec},
    problem::{FieldPath, Problem},
    resource::Resource,
    when::When,
};

/// Headers that a credential can't be in: they are the connection's, or the request would not be the same.
const NOT_FOR_CREDENTIALS: [&str; 12] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-forwarded-for",
    "x-gateway-destination-endpoint",
];

/// So begin the headers that tell of a request, or send it somewhere.
const OURS: &str = "x-kinference-";

/// Everything that is wrong.
pub(super) fn of(resource: &Resource) -> Vec<Problem> {
    let spec = FieldPath::of("spec");
    match resource {
        Resource::GatewayBackend(_) => Vec::new(),
        Resource::InferencePolicy(policy) => policy_problems(&policy.spec, &spec),
        Resource::InferencePool(pool) => pool_problems(&pool.spec, &spec),
        Resource::InferenceProvider(provider) => provider_problems(&provider.spec, &spec),
        Resource::InferenceWorkerSet(set) => worker_set_problems(&set.spec, &spec),
    }
}

fn policy_problems(policy: &InferencePolicySpec, at: &FieldPath) -> Vec<Problem> {
    let expressions =
        policy.rules.iter().enumerate().filter_map(|(n, rule)| Some((n, rule.when.as_deref()?)));
    let wrong = expressions.filter_map(|(n, when)| {
        let path = at.field("rules").item(n).field("when");
        When::compile(when).err().map(|why| Problem::new(path, why))
    });
    wrong.collect()
}

/// A name means one model, and a model lists a backend once.
fn pool_problems(pool: &InferencePoolSpec, at: &FieldPath) -> Vec<Problem> {
    let mut out = Vec::new();
    let mut meant: BTreeMap<&str, &str> = BTreeMap::new();
    for (n, model) in pool.models.iter().enumerate() {
        let here = at.field("models").item(n);
        for (m, alias) in model.aliases.iter().enumerate() {
            if let Some(other) = meant.insert(alias, &model.name) {
                let message = format!("is {alias:?}, which is already an alias of `{other}`");
                out.push(Problem::new(here.field("aliases").item(m), message));
            }
        }
        let named = |backend: &super::crd::Backend| {
            let set = backend.worker_set.as_ref().map(|set| (true, set.name.clone(), set.model.clone()));
            let provider =
                || backend.provider.as_ref().map(|one| (false, one.name.clone(), one.model.clone()));
            set.or_else(provider)
        };
        for (m, backend) in model.backends.iter().enumerate() {
            if model.backends[..m].iter().any(|other| named(other) == named(backend)) {
                let path = here.field("backends").item(m);
                out.push(Problem::new(path, "is there twice: each model of a worker set or provider once"));
            }
        }
    }
    out
}

fn provider_problems(provider: &InferenceProviderSpec, at: &FieldPath) -> Vec<Problem> {
    let credentials = at.field("credentials");
    let mut out = Vec::new();
    if let Some(header) = provider
        .credentials
        .header
        .as_deref()
        .filter(|name| NOT_FOR_CREDENTIALS.contains(name) || name.starts_with(OURS))
    {
        let message = format!("is `{header}`, which can't carry a credential; accepted: any other header");
        out.push(Problem::new(credentials.field("header"), message));
    }
    let printable = |scheme: &str| scheme.bytes().all(|byte| byte.is_ascii_graphic());
    if let Some(scheme) = provider.credentials.scheme.as_deref().filter(|scheme| !printable(scheme)) {
        let message = format!("is {scheme:?}, but must be printable ASCII without spaces, such as `Bearer`");
        out.push(Problem::new(credentials.field("scheme"), message));
    }
    out
}

fn worker_set_problems(set: &InferenceWorkerSetSpec, at: &FieldPath) -> Vec<Problem> {
    let mut out = Vec::new();
    if let Some(url) = set.render_url.as_deref()
        && !is_url(url)
    {
        // It is not shown: it may hold a password.
        let message = "is no URL that can be asked; accepted: `http://host[:port][/path]` or `https://...`";
        out.push(Problem::new(at.field("renderUrl"), message));
    }
    if let Some(selector) = &set.selector {
        label_problems(selector, &at.field("selector"), &mut out);
    }
    out
}

fn is_url(url: &str) -> bool {
    url.parse::<http::Uri>().is_ok_and(|url| url.host().is_some_and(|host| !host.is_empty()))
}

fn label_problems(selector: &LabelSelector, at: &FieldPath, out: &mut Vec<Problem>) {
    let keys =
        selector.match_labels.iter().flatten().map(|(key, _)| (key, at.field("matchLabels").field(key)));
    let required = selector.match_expressions.iter().flatten().enumerate();
    let required = required.map(|(n, one)| (&one.key, at.field("matchExpressions").item(n).field("key")));
    for (key, path) in keys.chain(required).filter(|(key, _)| !is_label_key(key)) {
        let accepted = "a label's name, such as `app` or `example.com/app`: at most 63 letters, digits, `-`, `_` and `.`";
        out.push(Problem::new(path, format!("names the label {key:?}, but must name {accepted}")));
    }
}

fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let form = |text: &str, most: usize, inner: &str| {
        text.len() <= most
            && alphanumeric(text.chars().next())
            && alphanumeric(text.chars().last())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || inner.contains(c))
    };
    form(name, 63, "-_.") && prefix.is_none_or(|prefix| form(prefix, 253, "-."))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{
        crd::{self, InferenceWorkerSet, InferenceWorkerSetSpec, ServiceReference},
        read, validate,
    };

    fn problems(kind: &str, spec: &Value) -> Vec<String> {
        let resource = json!({
            "apiVersion": format!("{}/{}", crd::GROUP, crd::VERSION), "kind": kind,
            "metadata": {"name": "x"}, "spec": spec,
        });
        read(resource).err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_condition_that_is_no_expression_is_found_in_its_place() {
        let rule =
            |name: &str, when: &str| json!({"name": name, "when": when, "steps": [{"minimize": "Cost"}]});
        let rules = json!([rule("a", "true"), rule("b", "request.tags.exists(t, t == 'x'")]);
        let said = problems("InferencePolicy", &json!({"poolRef": {"name": "p"}, "rules": rules}));
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("`spec.rules[1].when` is no CEL expression: "), "{said:?}");
    }

    #[test]
    fn a_name_means_one_model_and_a_backend_is_listed_once() {
        let backend = json!({"workerSet": {"name": "s"}});
        let other = json!({"workerSet": {"name": "s", "model": "m"}});
        let spec = json!({"models": [
            {"name": "a", "aliases": ["x", "y"], "backends": [backend, other, backend]},
            {"name": "b", "aliases": ["y"], "backends": [{"provider": {"name": "s"}}, backend]},
        ]});
        let expected = [
            "`spec.models[0].backends[2]` is there twice: each model of a worker set or provider once",
            "`spec.models[1].aliases[0]` is \"y\", which is already an alias of `a`",
        ];
        assert_eq!(problems("InferencePool", &spec), expected);
    }

    #[test]
    fn a_credential_is_in_a_header_of_its_own() {
        let spec = json!({
            "api": "OpenAI", "host": "h", "models": [{"name": "m"}],
            "credentials": {
                "mode": "Header", "header": "host", "scheme": "Be\narer", "secretRef": {"name": "s", "key": "k"},
            },
        });
        let said = problems("InferenceProvider", &spec);
        assert_eq!(
            said,
            [
                "`spec.credentials.header` is `host`, which can't carry a credential; accepted: any other header",
                "`spec.credentials.scheme` is \"Be\\narer\", but must be printable ASCII without spaces, such as `Bearer`",
            ]
        );
    }

    #[test]
    fn no_credential_is_in_a_header_that_routes() {
        for header in ["x-kinference-backend", "x-gateway-destination-endpoint", "accept-encoding"] {
            let spec = json!({
                "api": "OpenAI", "host": "h", "models": [{"name": "m"}],
                "credentials": {"mode": "Header", "header": header, "secretRef": {"name": "s", "key": "k"}},
            });
            let said = problems("InferenceProvider", &spec);
            assert!(said.len() == 1 && said[0].contains("can't carry a credential"), "{header}: {said:?}");
        }
    }

    #[test]
    fn labels_and_urls_are_such() {
        let spec = json!({
            "profile": "p", "modelName": "m", "kvBlockSize": 16, "renderUrl": "http://[::1",
            "selector": {
                "matchLabels": {"a b": "c", "app": "", "example.com/tier": "x", "a/b/c": ""},
                "matchExpressions": [{"key": "-a", "operator": "Exists"}],
            },
        });
        let said = problems("InferenceWorkerSet", &spec);
        for (said, start) in said.iter().zip([
            "`spec.renderUrl` is no URL that can be asked",
            "`spec.selector.matchLabels.a b` names the label \"a b\", but must name a label's name, such as ",
            "`spec.selector.matchLabels.a/b/c` names",
            "`spec.selector.matchExpressions[0].key` names the label \"-a\"",
        ]) {
            assert!(said.starts_with(start), "{said}");
        }
        assert_eq!(said.len(), 4, "{said:?}");
    }

    #[test]
    fn what_a_watch_gives_is_validated_as_it_is() {
        let spec = InferenceWorkerSetSpec {
            profile: "p".into(),
            model_name: "m".into(),
            service: Some(ServiceReference { name: "s".into() }),
            ..InferenceWorkerSetSpec::default()
        };
        let mut set = InferenceWorkerSet::new("x", spec);
        let said: Vec<_> = validate(&set).iter().map(ToString::to_string).collect();
        assert_eq!(said, ["`spec.kvBlockSize` is 0, but must be a whole number from 1 to 65536"]);
        set.spec.kv_block_size = 16;
        assert_eq!(validate(&set), []);
    }

    #[test]
    fn what_is_none_of_ours_is_said_to_be() {
        let said = read(json!({"apiVersion": "v1", "kind": "Pod"})).unwrap_err();
        let said: Vec<_> = said.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(
            said[0].contains("`apiVersion` is \"v1\", but must be kinference.buoyant.io/v1alpha1"),
            "{said:?}"
        );
        assert!(
            said[1].contains("\"Pod\" is no kind of kinference.buoyant.io; accepted: GatewayBackend"),
            "{said:?}"
        );
    }
}
