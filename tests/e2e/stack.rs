//! Starts engines, the server and Envoy as processes on ports chosen by the system; all end with the test.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::{cloud::Cloud, tools::envoy};

/// The longest that any condition is waited for.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A child process that is killed when dropped.
pub struct Process(Child);

impl Process {
    pub fn kill(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One `vllm-sim`.
pub struct Engine {
    process: Process,
    args: Vec<String>,
    /// `ip:port`
    pub http: String,
    pub kv_events: String,
    pub replay: String,
}

impl Engine {
    pub fn start(args: &[&str]) -> Self {
        Self::launch(args, "127.0.0.1:0", ["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"])
    }

    fn launch(args: &[&str], listen: &str, [events, replay]: [&str; 2]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_vllm-sim"))
            .args(["--model", "tiny", "--model-dir"])
            .arg(fixture("tokenizer"))
            .args(["--listen", listen, "--kv-events", events, "--replay", replay, "--exit-with-stdin"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let bound: Value = serde_json::from_str(&line).unwrap();
        let field = |name: &str| bound[name].as_str().unwrap().trim_start_matches("http://").to_owned();
        Self {
            process: Process(child),
            args: args.iter().map(|a| (*a).to_owned()).collect(),
            http: field("http"),
            kv_events: field("kv_events"),
            replay: field("replay"),
        }
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// The same engine at the same addresses, with an empty cache.
    pub fn restart(&mut self) {
        self.kill();
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        *self = Self::launch(&args, &self.http, [&self.kv_events, &self.replay]);
    }
}

/// The server.
pub struct Router {
    process: Process,
    dir: tempfile::TempDir,
    kubeconfig: Option<PathBuf>,
    log: Arc<Mutex<String>>,
    pub grpc: String,
    pub admin: String,
}

impl Router {
    pub fn start(engines: &[Engine], extra: &str) -> Self {
        Self::with(engines, extra, (None, None))
    }

    /// One that logs all that can be logged.
    pub fn talkative(engines: &[Engine], extra: &str) -> Self {
        Self::with(engines, extra, (None, Some("trace")))
    }

    /// In a cluster, without workers of its own.
    pub fn in_cluster(kubeconfig: &Path, extra: &str) -> Self {
        Self::with(&[], extra, (Some(kubeconfig.to_owned()), None))
    }

    fn with(
        engines: &[Engine],
        extra: &str,
        (kubeconfig, log_filter): (Option<PathBuf>, Option<&str>),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let models = dir.path().join("models");
        fs::create_dir(&models).unwrap();
        std::os::unix::fs::symlink(fixture("tokenizer"), models.join("tiny")).unwrap();
        write_workers(dir.path(), engines);
        write_config(dir.path(), ["127.0.0.1:0", "127.0.0.1:0"], extra);
        let log = Arc::default();
        let (process, [grpc, admin]) = launch_router((dir.path(), &log), kubeconfig.as_deref(), log_filter);
        Self { process, dir, kubeconfig, log, grpc, admin }
    }

    /// All that it has logged.
    pub fn log(&self) -> String {
        self.log.lock().clone()
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// The most memory that it ever held, in bytes.
    pub fn peak_memory(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// It stops answering without going away.
    pub fn hang(&self) {
        self.signal("-STOP");
    }

    /// It goes on after it was hung.
    pub fn wake(&self) {
        self.signal("-CONT");
    }

    /// It is asked to end, and does.
    pub fn terminate(&mut self) {
        self.signal("-TERM");
        assert!(self.process.0.wait().unwrap().success());
    }

    fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.process.0.id().to_string()]).status();
        assert!(done.unwrap().success());
    }

    /// The same server at the same addresses.
    pub fn restart(&mut self, extra: &str) {
        self.kill();
        write_config(self.dir.path(), [&self.grpc, &self.admin], extra);
        (self.process, _) = launch_router((self.dir.path(), &self.log), self.kubeconfig.as_deref(), None);
    }

    pub fn set_workers(&self, engines: &[Engine]) {
        write_workers(self.dir.path(), engines);
    }

    /// Changes the text of its workers file.
    pub fn edit_workers(&self, edit: impl FnOnce(String) -> String) {
        let path = self.dir.path().join("workers.toml");
        replace(&path, &edit(fs::read_to_string(&path).unwrap()));
    }

    pub async fn fleet(&self) -> Value {
        get_json(&format!("http://{}/api/fleet", self.admin)).await.unwrap_or_default()
    }

    /// Waits until `/api/fleet` satisfies the condition, and returns it.
    pub async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        until(what, async || Some(self.fleet().await).filter(|fleet| holds(fleet))).await
    }

    pub async fn metric(&self, line_start: &str) -> f64 {
        let text =
            reqwest::get(format!("http://{}/metrics", self.admin)).await.unwrap().text().await.unwrap();
        let line = text.lines().find(|l| l.starts_with(line_start));
        line.and_then(|l| l.rsplit(' ').next()).expect("the series exists").parse().unwrap()
    }
}

/// Waits for something to be there.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

pub async fn get_json(url: &str) -> Option<Value> {
    reqwest::get(url).await.ok()?.json().await.ok()
}

fn write_workers(dir: &Path, engines: &[Engine]) {
    let mut text = if engines.is_empty() { "workers = []".to_owned() } else { String::new() };
    for (i, e) in engines.iter().enumerate() {
        text += &format!(
            "[[workers]]\nworker_id_str = \"w{i}\"\nworker_id_num = {i}\nmodel_name = \"tiny\"\n\
             zmq_endpoint = \"{}\"\nreplay_endpoint = \"{}\"\nhttp_url = \"http://{http}\"\n\
             metrics_url = \"http://{http}/metrics\"\n",
            e.kv_events,
            e.replay,
            http = e.http
        );
    }
    replace(&dir.join("workers.toml"), &text);
}

fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

fn write_config(dir: &Path, [listen, admin]: [&str; 2], extra: &str) {
    // A test may bring a profile of its own.
    let profile = match extra.contains("[[profile]]") {
        true => "",
        false => "[[profile]]\nname = \"p\"\ntokenize.mode = \"local\"\npicker.seed = 7\n",
    };
    let text = format!(
        "listen = \"{listen}\"\nadmin_listen = \"{admin}\"\nmetrics_poll_ms = 200\nmodels_refresh_secs = 1\n{extra}\n\
         {profile}\
         [[workerset]]\nname = \"local\"\nprofile = \"p\"\nkv_block_size = 16\n\
         [workerset.discovery]\nmode = \"static\"\nworkers_file = \"workers.toml\"\n\
         [tokenize]\nlocal.mount_dir = \"{}\"\n",
        dir.join("models").display()
    );
    fs::write(dir.join("kinference.toml"), text).unwrap();
}

fn launch_router(
    (dir, log): (&Path, &Arc<Mutex<String>>),
    kubeconfig: Option<&Path>,
    log_filter: Option<&str>,
) -> (Process, [String; 2]) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kinference"))
        .envs(kubeconfig.map(|path| ("KUBECONFIG", path)))
        .envs(log_filter.map(|filter| ("RUST_LOG", filter)))
        .arg("--config")
        .arg(dir.join("kinference.toml"))
        .args(["--log-format", "json"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = log.clone();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().inspect(move |line| {
        if let Ok(line) = line {
            eprintln!("{line}");
            *log.lock() += &format!("{line}\n");
        }
    });
    let bound = lines
        .by_ref()
        .map(|line| line.unwrap())
        .filter_map(|line| serde_json::from_str::<Value>(&line).ok())
        .find(|line| line["fields"]["message"] == "listening")
        .expect("the server says where it listens");
    // Keep reading, so that the server never blocks on its log.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    let field = |name: &str| bound["fields"][name].as_str().unwrap().to_owned();
    (Process(child), [field("grpc"), field("admin")])
}

/// Envoy with one of the shipped configurations.
pub struct Envoy {
    _process: Process,
    _dir: tempfile::TempDir,
    /// `http://ip:port` of the listener.
    pub url: String,
    /// `http://ip:port` of its admin endpoint.
    pub admin: String,
}

impl Envoy {
    pub async fn start(sample: &str, router: &Router, engines: &[Engine]) -> Option<Self> {
        let engines: Vec<_> = engines.iter().map(|engine| engine.http.as_str()).collect();
        Self::launch(&adapted(sample, &router.grpc, &engines)).await
    }

    /// With that configuration, `adapted` or more.
    pub async fn launch(text: &str) -> Option<Self> {
        let binary = envoy()?;
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("envoy.yaml");
        fs::write(&config, text).unwrap();
        let admin_file = dir.path().join("admin");
        let child = Command::new(binary)
            .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "error", "-c"])
            .arg(&config)
            .arg("--admin-address-path")
            .arg(&admin_file)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let process = Process(child);
        let (url, admin) = until("Envoy listens", async || {
            let admin = fs::read_to_string(&admin_file).ok().filter(|a| !a.is_empty())?;
            let admin = format!("http://{}", admin.trim());
            // It binds before it has its endpoints, and accepts after.
            reqwest::get(format!("{admin}/ready")).await.ok()?.error_for_status().ok()?;
            let listeners = get_json(&format!("{admin}/listeners?format=json")).await?;
            let port = &listeners["listener_statuses"][0]["local_address"]["socket_address"]["port_value"];
            Some((format!("http://127.0.0.1:{}", port.as_u64()?), admin))
        })
        .await;
        Some(Self { _process: process, _dir: dir, url, admin })
    }

    /// `ip:port` of each endpoint of the worker set's cluster, with whether it is healthy.
    pub async fn endpoints(&self) -> Vec<(String, bool)> {
        let clusters = get_json(&format!("{}/clusters?format=json", self.admin)).await.unwrap();
        let clusters = clusters["cluster_statuses"].as_array().unwrap();
        let own = clusters.iter().find(|cluster| cluster["name"] == "workerset/local").unwrap();
        let mut found: Vec<_> = own["host_statuses"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|host| {
                let address = &host["address"]["socket_address"];
                let healthy = host["health_status"]["eds_health_status"] == "HEALTHY";
                (format!("{}:{}", address["address"].as_str().unwrap(), address["port_value"]), healthy)
            })
            .collect();
        found.sort();
        found
    }

    /// One of its counters or gauges.
    pub async fn stat(&self, name: &str) -> Option<u64> {
        let stats = get_json(&format!("{}/stats?format=json&filter={name}", self.admin)).await?;
        stats["stats"].as_array()?.iter().find(|stat| stat["name"] == name)?["value"].as_u64()
    }
}

/// A shipped configuration with this test's addresses in place of the sample's.
pub fn adapted(sample: &str, grpc: &str, engines: &[&str]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("envoy").join(sample);
    let mut text = fs::read_to_string(path).unwrap();
    let mut swap = |from: u16, to: &str| {
        let from = format!("port_value: {from} ");
        assert!(text.contains(&from), "{sample} has no {from}");
        text = text.replace(&from, &format!("port_value: {to} "));
    };
    swap(9901, "0");
    swap(10000, "0");
    swap(9002, grpc.rsplit(':').next().unwrap());
    if sample.contains("static") || sample.contains("buffered") {
        for (i, port) in (8000..8003).enumerate() {
            // A sample has three engines; a smaller test names its last one again.
            let engine = engines.get(i).or(engines.last()).unwrap();
            swap(port, engine.rsplit(':').next().unwrap());
        }
    }
    text.replace("0.0.0.0", "127.0.0.1")
}

/// `providers.yaml` with that provider in place of the sample's.
pub fn to_cloud(config: String, cloud: &Cloud) -> String {
    let ca = cloud.ca().display().to_string();
    let address = format!("address: 127.0.0.1, port_value: {} ", cloud.port);
    [("address: api.example.com, port_value: 443 ", &*address), ("/etc/ssl/certs/ca-certificates.crt", &ca)]
        .into_iter()
        .fold(config, |text, (from, to)| {
            assert_eq!(text.matches(from).count(), 1, "{from}");
            text.replace(from, to)
        })
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Three engines, the server, Envoy; ready to be asked.
pub struct Stack {
    pub envoy: Envoy,
    pub router: Router,
    pub engines: Vec<Engine>,
    pub client: reqwest::Client,
}

impl Stack {
    /// The main sample over three quick engines.
    pub async fn start() -> Option<Self> {
        Self::with("duplex.yaml", "", &["--speedup", "50"]).await
    }

    pub async fn with(sample: &str, extra: &str, engine_args: &[&str]) -> Option<Self> {
        let engines: Vec<_> = (0..3).map(|_| Engine::start(engine_args)).collect();
        let router = Router::start(&engines, extra);
        router.until("all workers are synced", |f| all(f, |w| w["kv_events"]["state"] == "synced")).await;
        router.until("all workers name models", |f| all(f, |w| w["engine"] == "vllm")).await;
        let envoy = Envoy::start(sample, &router, &engines).await?;
        Some(Self { envoy, router, engines, client: reqwest::Client::new() })
    }

    pub async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> reqwest::Response {
        let request = self.client.post(format!("{}{path}", self.envoy.url));
        let sent = request.header("content-type", "application/json").body(body).send();
        timeout(PATIENCE, sent).await.expect("an answer in time").unwrap()
    }

    pub async fn chat(&self, text: &str) -> reqwest::Response {
        let body = serde_json::json!({"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": text}]});
        self.post("/v1/chat/completions", body.to_string()).await
    }

    /// Waits until no load is left anywhere.
    pub async fn until_idle(&self) {
        self.router.until("load is back to 0", |f| all(f, |w| w["load"]["in_flight"] == 0)).await;
    }
}

/// Whether something holds for every worker of a fleet snapshot (and there is one).
pub fn all(fleet: &Value, holds: impl Fn(&Value) -> bool) -> bool {
    fleet["workers"].as_array().is_some_and(|w| !w.is_empty() && w.iter().all(holds))
}
