//! The native API as `grpcurl` sees it, by reflection alone: every method called, every line of `docs/grpc.md` run.
//! Skips, with one line, where there is no `grpcurl` (`make test` fetches it).

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kinference::serve::status::{DOMAIN, Reason};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Deserializer, Value, json};

use crate::{
    stack::{Engine, Router, all, until},
    tools::tool,
};

const PAGE: &str = include_str!("../../docs/grpc.md");
const PACKAGE: &str = "kinference.v1alpha1";
/// Seconds that one call may take.
const PATIENCE: &str = "60";

/// One engine and the server.
struct Site {
    program: PathBuf,
    router: Router,
    _engine: Engine,
    called: BTreeSet<String>,
}

impl Site {
    async fn start() -> Option<Self> {
        let program = tool("grpcurl", "KINFERENCE_TEST_GRPCURL")?;
        let engine = Engine::start(&["--speedup", "50"]);
        let router = Router::start(std::slice::from_ref(&engine), "rate_limit.enabled = true");
        router.until("the worker is synced", |f| all(f, |w| w["kv_events"]["state"] == "synced")).await;
        router.until("the worker names models", |f| all(f, |w| w["engine"] == "vllm")).await;
        let site = Self { program, router, _engine: engine, called: BTreeSet::new() };
        until("it is ready", async || site.is_ready().then_some(())).await;
        Some(site)
    }

    fn is_ready(&self) -> bool {
        let mut command = Command::new(&self.program);
        command.args(["-plaintext", "-d", r#"{"service": "readiness"}"#, &self.router.grpc]);
        let output = command.arg("grpc.health.v1.Health/Check").output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains("\"SERVING\"")
    }

    /// Lines of a call that tells of the API itself.
    fn ask(&self, verb: &str, what: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        let output = command.args(["-plaintext", &self.router.grpc, verb]).args(what).output().unwrap();
        assert!(output.status.success(), "{verb} {what:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn run(&mut self, method: &str, options: &[&str], messages: &[Value]) -> Output {
        self.called.insert(format!("{PACKAGE}.{}", method.replace('/', ".")));
        let mut child = Command::new(&self.program)
            .args(["-plaintext", "-format-error", "-d", "@"])
            .args(options)
            .args([&self.router.grpc, &format!("{PACKAGE}.{method}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let text: String = messages.iter().map(|message| format!("{message}\n")).collect();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Calls a method that has one answer.
    fn call(&mut self, method: &str, messages: &[Value]) -> Value {
        let output = self.run(method, &["-max-time", PATIENCE], messages);
        assert!(output.status.success(), "{method}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Calls a method that fails; the error as JSON.
    fn fail(&mut self, method: &str, message: Value) -> Value {
        let output = self.run(method, &["-max-time", PATIENCE], &[message]);
        assert!(!output.status.success(), "{method}: {output:?}");
        serde_json::from_slice(&output.stderr).unwrap_or_else(|e| panic!("{method}: {e}: {output:?}"))
    }

    fn pick(&mut self, request: Value) -> Value {
        let picked = self.call("Picker/Pick", &[request]);
        assert_eq!((&picked["workerId"], &picked["workerSet"]), (&json!("w0"), &json!("local")), "{picked}");
        picked
    }

    fn end(&mut self, picked: &Value, event: &str) {
        let told = self.call("Picker/Observe", &[json!({"pick_id": picked["pickId"], event: {}})]);
        assert_eq!(told, json!({}));
    }
}

fn chat() -> String {
    json!({"model": "tiny", "stream": true, "messages": [{"role": "user", "content": "Hello there"}]})
        .to_string()
}

#[tokio::test]
async fn everything_is_listed_and_described() {
    let Some(site) = Site::start().await else { return };
    let listed = site.ask("list", &[]);
    let services: Vec<_> = listed.lines().collect();
    for name in ["Picker", "Fleet", "RateLimiter"].map(|name| format!("{PACKAGE}.{name}")) {
        assert!(services.contains(&name.as_str()), "{name} in {services:?}");
    }
    assert!(services.contains(&"grpc.health.v1.Health"), "{services:?}");
    for service in services {
        let described = site.ask("describe", &[service]);
        assert!(described.starts_with(&format!("{service} is a service:")), "{described}");
        for method in site.ask("list", &[service]).lines() {
            let described = site.ask("describe", &[method]);
            assert!(described.starts_with(&format!("{method} is a method:")), "{described}");
        }
    }
}

#[tokio::test]
async fn every_method_is_called() {
    let Some(mut site) = Site::start().await else { return };
    picks(&mut site);
    fleet(&mut site);
    reservations(&mut site);
    // It needs Kubernetes, so it is not enabled.
    assert_eq!(site.fail("TokenReview/Review", json!({"token": "x"}))["code"], 12);
    site.router.until("load is back to 0", |f| all(f, |w| w["load"]["in_flight"] == 0)).await;

    let services = ["Picker", "Fleet", "RateLimiter", "TokenReview"].map(|name| format!("{PACKAGE}.{name}"));
    let methods = services.iter().map(|service| site.ask("list", &[service])).collect::<String>();
    assert_eq!(site.called, methods.lines().map(str::to_owned).collect());
}

fn picks(site: &mut Site) {
    let body = chat();
    let (start, rest) = body.split_at(20);
    let head = json!({"path": "/v1/chat/completions", "content_length": body.len()});
    let chunk = |bytes: &str| json!({"chunk": STANDARD.encode(bytes)});
    let pushed = site.call("Picker/PushBody", &[json!({"head": head}), chunk(start), chunk(rest)]);
    let length = body.len().to_string();
    assert_eq!(
        [&pushed["length"], &pushed["model"], &pushed["stream"]],
        [&json!(length), &json!("tiny"), &json!(true)]
    );

    let of_body = site.pick(json!({"body_id": pushed["bodyId"]}));
    let inline = site.pick(json!({"body": {"head": head, "body": STANDARD.encode(&body)}}));
    let message = json!({"role": "user", "content": "Hello there"}).to_string();
    let messages = site
        .pick(json!({"model": "tiny", "messages": {"messages_json": [message]}, "want_candidates": true}));
    // The same prompt, whichever way it came.
    assert!(of_body["promptTokens"].is_string(), "{of_body}");
    assert_eq!(of_body["promptTokens"], inline["promptTokens"]);
    assert_eq!(of_body["promptTokens"], messages["promptTokens"]);
    assert_eq!(messages["candidates"][0]["workerId"], "w0", "{messages}");
    let tokens = site.pick(json!({"model": "tiny", "tokens": {"ids": [1, 2, 3]}}));
    assert_eq!(tokens["promptTokens"], "3");

    site.end(&of_body, "first_token");
    for (picked, event) in
        [(&of_body, "completed"), (&inline, "cancelled"), (&messages, "cancelled"), (&tokens, "cancelled")]
    {
        site.end(picked, event);
    }
    let used = site.fail("Picker/Pick", json!({"body_id": pushed["bodyId"]}));
    assert_eq!((&used["code"], info(&used)), (&json!(5), Some(Reason::BodyNotFound.name())), "{used}");
}

/// The reason of an error.
fn info(error: &Value) -> Option<&str> {
    let details = error["details"].as_array()?;
    details.iter().find(|detail| detail["domain"] == DOMAIN)?["reason"].as_str()
}

fn fleet(site: &mut Site) {
    let workers = site.call("Fleet/ListWorkers", &[json!({})])["workers"].take();
    assert_eq!((&workers[0]["workerId"], &workers[1]), (&json!("w0"), &Value::Null));
    let output = site.run("Fleet/WatchWorkers", &["-max-time", "5"], &[json!({"worker_set": "local"})]);
    let first = Deserializer::from_slice(&output.stdout).into_iter::<Value>().next().unwrap().unwrap();
    assert_eq!(first["snapshot"]["workers"][0]["workerId"], "w0", "{first}");
    let over: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(over["code"], 4, "{over}");
}

fn reservations(site: &mut Site) {
    let reserved = site.call("RateLimiter/Reserve", &[json!({"tenant": "a", "prompt_tokens": 3})]);
    assert_eq!(reserved["admitted"], true);
    let id = &reserved["reservationId"];
    assert_eq!(
        site.call("RateLimiter/Settle", &[json!({"reservation_id": id, "prompt_tokens": 2})]),
        json!({})
    );
    assert_eq!(site.call("RateLimiter/Release", &[json!({"reservation_id": id})]), json!({}));
    let refused = site.fail("RateLimiter/Reserve", json!({}));
    assert_eq!((&refused["code"], info(&refused)), (&json!(3), Some("BAD_REQUEST")), "{refused}");
}

/// The page's commands as one script, with this test's addresses.
fn script(router: &Router) -> String {
    let blocks = PAGE.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let text = blocks.collect::<String>();
    let sample = "GRPC=127.0.0.1:9002 MODEL=demo\n";
    assert!(text.starts_with(sample), "{text}");
    text.replacen(sample, &format!("GRPC={} MODEL=tiny\n", router.grpc), 1)
}

#[tokio::test]
async fn the_lines_of_the_page_work() {
    let Some(site) = Site::start().await else { return };
    // Under `-e` a line that fails ends it; what may fail is told from what it says below.
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script(&site.router)])
        .env("PATH", path_with(site.program.parent().unwrap()))
        .output()
        .unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complained}");
    for word in
        ["\"SERVING\"", "\"candidates\"", "\"bodyId\"", "\"snapshot\"", "that was it", "not served here"]
    {
        assert!(said.contains(word), "{word} in {said}");
    }
    let codes: Vec<_> = complained.lines().filter_map(|line| line.trim().strip_prefix("Code: ")).collect();
    assert_eq!(codes, ["DeadlineExceeded", "Unimplemented"], "{complained}");
    site.router.until("load is back to 0", |f| all(f, |w| w["load"]["in_flight"] == 0)).await;
    assert_eq!(site.router.metric("kinference_picker_events_total{event=\"ended\"}").await, 4.0);
    assert_eq!(site.router.metric("kinference_picker_events_total{event=\"first_token\"}").await, 1.0);
}

/// The page's one line that needs certificates.
#[tokio::test]
async fn the_line_with_certificates_works() {
    let Some(program) = tool("grpcurl", "KINFERENCE_TEST_GRPCURL") else { return };
    let dir = tempfile::tempdir().unwrap();
    write_certificates(dir.path());
    let at = |name: &str| dir.path().join(name).display().to_string();
    let tls = format!(
        "tls.cert_file = {:?}\ntls.key_file = {:?}\ntls.client_ca_file = {:?}",
        at("server.pem"),
        at("server.key"),
        at("ca.pem")
    );
    let router = Router::start(&[], &tls);
    let line = PAGE.lines().find(|line| line.starts_with("    grpcurl -cacert ")).unwrap();
    let line = line.replace("kinference.example:9002", &router.grpc);
    let run = |line: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(dir.path());
        command.env("PATH", path_with(program.parent().unwrap())).output().unwrap()
    };
    let output = run(&line);
    assert!(String::from_utf8_lossy(&output.stdout).contains(PACKAGE), "{line}: {output:?}");
    let bare = run(&line.replace("-cert gateway.pem -key gateway.key", "-max-time 5 -connect-timeout 5"));
    assert!(!bare.status.success(), "without a certificate: {bare:?}");
}

/// An authority, and what it signed for the server and for a gateway.
fn write_certificates(dir: &Path) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    fs::write(dir.join("ca.pem"), ca.pem()).unwrap();
    for name in ["server", "gateway"] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let signed = params.signed_by(&key, &ca).unwrap();
        fs::write(dir.join(name).with_extension("pem"), signed.pem()).unwrap();
        fs::write(dir.join(name).with_extension("key"), key.serialize_pem()).unwrap();
    }
}

fn path_with(dir: &Path) -> String {
    // An absolute path: it may be named from the folder that the tests run in.
    let dir = fs::canonicalize(dir).unwrap();
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap())
}

#[test]
fn the_page_lists_every_error_as_it_is() {
    let mut listed = PAGE.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| `")?.split(" | ").collect();
        let [reason, code, http_status, ..] = cells[..] else { return None };
        http_status
            .parse::<u16>()
            .ok()
            .map(|status| (reason.trim_matches('`'), code.trim_matches('`'), status))
    });
    for reason in Reason::all() {
        let code = format!("{:?}", reason.code()).to_uppercase();
        let (name, said, http_status) = listed.next().unwrap();
        assert_eq!((name, http_status), (reason.name(), reason.http_status()));
        assert_eq!(said.replace('_', ""), code, "{name}");
    }
    assert_eq!(listed.next(), None);
}
