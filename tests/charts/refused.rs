//! Values that do not do are refused, with a message that says which one and what is accepted.

use crate::helm::Helm;

/// What is set, as JSON, and what the message has to say.
const REFUSED: &[(&str, &[&str])] = &[
    ("replica=3", &["additional properties 'replica' not allowed"]),
    ("replicas=-1", &["/replicas", "minimum: got -1, want 0"]),
    (r#"replicas="two""#, &["/replicas", "got string, want integer"]),
    (r#"image.digest="latest""#, &["/image/digest", "'latest' does not match pattern", "sha256:"]),
    (r#"image.pullPolicy="Sometimes""#, &["/image/pullPolicy", "'Always', 'IfNotPresent', 'Never'"]),
    ("ports.grpc=70000", &["/ports/grpc", "maximum: got 70,000, want 65,535"]),
    (r#"listenAddress="localhost""#, &["/listenAddress", "'localhost' does not match pattern"]),
    (r#"tls.mode="Mutual""#, &["/tls/mode", "'SelfSigned', 'Secret', 'None'"]),
    (r#"tls.mode="Secret""#, &["/tls/secretName", "minLength: got 0, want 1"]),
    (r#"tls.secretName="x""#, &["/tls/secretName", "maxLength: got 1, want 0"]),
    (
        r#"tls={"mode": "None", "clientCASecretName": "ca"}"#,
        &["/tls/clientCASecretName", "maxLength: got 2, want 0"],
    ),
    (r#"log.format="xml""#, &["/log/format", "'json', 'text'"]),
    (r#"service.type="ExternalName""#, &["/service/type", "'ClusterIP', 'NodePort', 'LoadBalancer'"]),
    ("podAnnotations.a=1", &["/podAnnotations/a", "got number, want string"]),
    (
        r#"podDisruptionBudget.maxUnavailable="half""#,
        &["/podDisruptionBudget/maxUnavailable", "does not match pattern"],
    ),
    (r#"serviceMonitor.interval="15""#, &["/serviceMonitor/interval", "'15' does not match pattern"]),
    (
        r#"dashboards.labels={"grafana_dashboard": 1}"#,
        &["/dashboards/labels/grafana_dashboard", "got number, want string"],
    ),
    (r#"prometheusRule.enabled="yes""#, &["/prometheusRule/enabled", "got string, want boolean"]),
    (
        r#"networkPolicy.gateways=[{"namespace": "x"}]"#,
        &["/networkPolicy/gateways/0", "'namespace' not allowed"],
    ),
    (r#"networkPolicy.gateways=[{}]"#, &["/networkPolicy/gateways/0", "minProperties: got 0, want 1"]),
    (
        r#"networkPolicy.apiServer=[{"ipBlock": {}}]"#,
        &["/networkPolicy/apiServer/0/ipBlock", "missing property 'cidr'"],
    ),
    ("networkPolicy.enginePorts=[]", &["/networkPolicy/enginePorts", "minItems: got 0, want 1"]),
    (r#"extraEnv=[{"value": "x"}]"#, &["/extraEnv/0", "missing property 'name'"]),
    (r#"workers={"kinference.toml": []}"#, &["invalid propertyName 'kinference.toml'"]),
    (r#"workers={"a/b.toml": []}"#, &["invalid propertyName 'a/b.toml'", "does not match pattern"]),
    (
        r#"workers={"a.toml": [{"worker_id_str": "a", "worker_id_num": 1}]}"#,
        &["/workers/a.toml/0", "missing property 'model_name'"],
    ),
    // The configuration: unknown keys, wrong types, what the chart sets itself.
    (r#"config.listen="0.0.0.0:1""#, &["/config", "'listen' not allowed"]),
    ("config.tls.self_signed=true", &["/config", "'tls' not allowed"]),
    ("config.kubernetes.enable=true", &["/config/kubernetes", "'enable' not allowed"]),
    (r#"config.kubernetes.enabled="yes""#, &["/config/kubernetes/enabled", "got string, want boolean"]),
    ("config.metrics_poll_ms=1.5", &["/config/metrics_poll_ms", "got number, want integer"]),
    ("config.profile=[]", &["/config/profile", "minItems: got 0, want 1"]),
    (r#"config.profile=[{"predictor": {}}]"#, &["/config/profile/0", "missing property 'name'"]),
    (
        r#"config.profile=[{"name": "p", "picker": {"topk": 1}}]"#,
        &["/config/profile/0/picker", "'topk' not allowed"],
    ),
    // How values relate.
    (
        "config.kubernetes.enabled=false",
        &["config.kubernetes.enabled is not true: config.workerset must then have at least one worker set"],
    ),
    (
        r#"config.workerset=[{"name": "a", "profile": "default", "kv_block_size": 16, "discovery": {"mode": "kubernetes"}}]"#,
        &["config.workerset \"a\" has the mode \"kubernetes\": it must have a service_name"],
    ),
    (
        "config.kubernetes.discovery_defaults.http_port=70000",
        &["/config/kubernetes/discovery_defaults/http_port", "maximum: got 70,000, want 65,535"],
    ),
    (
        r#"service={"headless": true, "type": "NodePort"}"#,
        &["service.headless is true: service.type must then be ClusterIP"],
    ),
    ("preStopSeconds=20", &["terminationGracePeriodSeconds is 45: it must be at least 51"]),
    (
        "autoscaling.minReplicas=9",
        &["autoscaling.minReplicas is 9: it must be at most autoscaling.maxReplicas, 4"],
    ),
    (
        r#"config.workerset=[{"name": "a", "profile": "default", "kv_block_size": 16, "discovery": {"workers_file": "a.toml"}}]"#,
        &["config.workerset \"a\" has the workers_file \"a.toml\": it must be a file of `workers`"],
    ),
];

#[test]
fn bad_values_are_refused_with_what_is_accepted() {
    let Some(helm) = Helm::find() else { return };
    let mut wrong = Vec::new();
    for (set, wanted) in REFUSED {
        match helm.template(&["--set-json", set]) {
            Ok(_) => wrong.push(format!("{set}: accepted")),
            Err(said) if wanted.iter().all(|part| said.contains(part)) => {}
            Err(said) => wrong.push(format!("{set}: {said}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
