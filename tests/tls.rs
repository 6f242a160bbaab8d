//! TLS of the gRPC listener with real clients on real sockets: who gets in, what wrong files say, rotation under load.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod trusting;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use kinference::{
    config::TlsConfig,
    files,
    observe::Metrics,
    serve::{Server, Services, Tls, tls},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, crypto::ring},
};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

const DEADLINE: Duration = Duration::from_secs(20);

/// A certificate authority with the files of a server.
struct Site {
    dir: TempDir,
    ca: CertifiedIssuer<'static, KeyPair>,
}

/// PEM of a certificate and of its key.
struct Pair {
    cert: String,
    key: String,
    der: Vec<u8>,
}

impl Site {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), ca: authority() }
    }

    fn pair(&self) -> Pair {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.ca).unwrap();
        Pair { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().to_vec() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// In place, one after the other: for a moment they do not belong together.
    fn write(&self, pair: &Pair) {
        fs::write(self.path("cert.pem"), &pair.cert).unwrap();
        fs::write(self.path("key.pem"), &pair.key).unwrap();
    }

    /// Files of a good pair, signed by the authority.
    fn config(&self) -> TlsConfig {
        self.write(&self.pair());
        fs::write(self.path("ca.pem"), self.ca.pem()).unwrap();
        TlsConfig {
            cert_file: Some(self.path("cert.pem")),
            key_file: Some(self.path("key.pem")),
            client_ca_file: None,
            self_signed: false,
        }
    }

    fn trusting(&self) -> ClientTlsConfig {
        ClientTlsConfig::new().domain_name("localhost").ca_certificate(Certificate::from_pem(self.ca.pem()))
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

struct Running {
    port: u16,
    metrics: Metrics,
    shutdown: CancellationToken,
    _ready: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Running {
    async fn start(config: &TlsConfig) -> Self {
        let metrics = Metrics::new();
        let mut tasks = JoinSet::new();
        let (tls, followed) = Tls::load(config, &metrics).await.unwrap().unwrap();
        tasks.spawn(async move { match files::follow(followed).await {} });
        let (ready, is_ready) = watch::channel(true);
        let shutdown = CancellationToken::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server { services: Services::default(), ready: is_ready, tls: Some(tls) };
        let stop = shutdown.clone();
        tasks.spawn(async move { server.run(listener, stop).await.unwrap() });
        Self { port, metrics, shutdown, _ready: ready, tasks }
    }

    /// One call on a connection of its own.
    async fn call(&self, tls: &ClientTlsConfig) -> Result<(), String> {
        call(self.port, tls).await
    }

    /// The certificate that a new connection sees.
    async fn presented(&self) -> Vec<u8> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        let mut config = config
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(trusting::Anybody))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let tcp = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let name = "localhost".try_into().unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    }

    async fn until_presented(&self, pair: &Pair) {
        until("the new certificate is presented", async || self.presented().await == pair.der).await;
    }

    fn counted(&self, series: &str) -> bool {
        self.metrics.render().lines().any(|line| line.starts_with(series) && !line.ends_with(" 0"))
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds().await {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn connect(port: u16, tls: &ClientTlsConfig) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{port}"))?;
    endpoint.tls_config(tls.clone())?.connect().await
}

async fn check(channel: &Channel) -> Result<(), String> {
    let mut health = HealthClient::new(channel.clone());
    let answer = timeout(DEADLINE, health.check(HealthCheckRequest { service: String::new() })).await;
    let answer = answer.map_err(|_| "no answer".to_owned())?.map_err(|status| format!("{status:?}"))?;
    assert_eq!(answer.into_inner().status(), ServingStatus::Serving);
    Ok(())
}

async fn call(port: u16, tls: &ClientTlsConfig) -> Result<(), String> {
    let connected = timeout(DEADLINE, connect(port, tls)).await.map_err(|_| "no connection".to_owned())?;
    check(&connected.map_err(|error| format!("{error:?}"))?).await
}

#[tokio::test]
async fn a_server_is_known_by_its_authority() {
    let site = Site::new();
    let server = Running::start(&site.config()).await;
    server.call(&site.trusting()).await.unwrap();
    // A client of another authority turns away, one that speaks plaintext is cut off; neither keeps others out.
    server.call(&Site::new().trusting()).await.unwrap_err();
    let mut plain = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // What comes is a TLS alert (21), then the end, or only the end.
    let ended = timeout(DEADLINE, plain.read_to_end(&mut answer)).await.expect("the connection ends");
    assert!(ended.is_err() || answer.first().is_none_or(|first| *first == 21), "{answer:?}");
    let channel = Endpoint::from_shared(format!("http://127.0.0.1:{}", server.port)).unwrap();
    match timeout(DEADLINE, channel.connect()).await.expect("an end") {
        Ok(channel) => drop(check(&channel).await.unwrap_err()),
        Err(error) => drop(error),
    }
    server.call(&site.trusting()).await.unwrap();
    assert!(server.counted("kinference_tls_handshakes_total{outcome=\"failed\"}"));
}

#[tokio::test]
async fn silent_clients_keep_nobody_out() {
    let site = Site::new();
    let server = Running::start(&site.config()).await;
    let address = ("127.0.0.1", server.port);
    let silent = futures::future::try_join_all((0..200).map(|_| TcpStream::connect(address)));
    let _silent = timeout(DEADLINE, silent).await.expect("connections are accepted").unwrap();
    server.call(&site.trusting()).await.unwrap();
}

#[tokio::test]
async fn only_holders_of_a_certificate_may_call() {
    let (site, strangers) = (Site::new(), Site::new());
    let config = TlsConfig { client_ca_file: Some(site.path("ca.pem")), ..site.config() };
    let server = Running::start(&config).await;
    let with = |pair: &Pair| site.trusting().identity(Identity::from_pem(&pair.cert, &pair.key));
    let ours = with(&site.pair());
    server.call(&ours).await.unwrap();
    server.call(&site.trusting()).await.unwrap_err();
    let theirs = with(&strangers.pair());
    server.call(&theirs).await.unwrap_err();
    // The authority changes hands: who may call is as new as the files, on new connections.
    let open = connect(server.port, &ours).await.unwrap();
    fs::write(site.path("ca.pem"), strangers.ca.pem()).unwrap();
    until("the other authority is in force", async || server.call(&theirs).await.is_ok()).await;
    server.call(&ours).await.unwrap_err();
    check(&open).await.unwrap();
}

#[tokio::test]
async fn a_made_certificate_serves_who_verifies_none() {
    let site = Site::new();
    site.config();
    let config =
        TlsConfig { self_signed: true, client_ca_file: Some(site.path("ca.pem")), ..TlsConfig::default() };
    let server = Running::start(&TlsConfig { client_ca_file: None, ..config.clone() }).await;
    let first = server.presented().await;
    assert_eq!(first, server.presented().await);
    let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", server.port)).unwrap();
    let endpoint = endpoint.tls_config_with_verifier(ClientTlsConfig::new(), Arc::new(trusting::Anybody));
    check(&endpoint.unwrap().connect().await.unwrap()).await.unwrap();
    server.call(&site.trusting()).await.unwrap_err();
    // Another start makes another one; callers may need one of theirs all the same.
    let other = Running::start(&config).await;
    assert_ne!(first, other.presented().await);
    other.call(&site.trusting()).await.unwrap_err();
}

/// Clients that connect and call until they are told to stop; what failed, and how many calls did not.
struct Load {
    clients: JoinSet<Result<(), String>>,
    calls: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Load {
    fn start(port: u16, tls: &ClientTlsConfig) -> Self {
        let (calls, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let mut clients = JoinSet::new();
        for client in 0..4 {
            let (tls, calls, stop) = (tls.clone(), calls.clone(), stop.clone());
            clients.spawn(async move {
                let kept = connect(port, &tls).await.map_err(|error| format!("{error:?}"))?;
                while !stop.load(Ordering::Relaxed) {
                    // Half of them stay on the connection that they had before the first change.
                    if client % 2 == 0 {
                        check(&kept).await?
                    } else {
                        call(port, &tls).await?
                    }
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        Self { clients, calls, stop }
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_rotate_under_load_without_one_failed_call() {
    let site = Site::new();
    let mut server = Running::start(&site.config()).await;
    let mut load = Load::start(server.port, &site.trusting());
    let mut watching = HealthClient::new(connect(server.port, &site.trusting()).await.unwrap())
        .watch(HealthCheckRequest { service: String::new() })
        .await
        .unwrap()
        .into_inner();
    assert!(watching.message().await.unwrap().is_some());
    for _ in 0..5 {
        let (pair, before) = (site.pair(), load.calls());
        site.write(&pair);
        server.until_presented(&pair).await;
        until("clients go on", async || load.calls() > before + 10).await;
    }
    load.stop.store(true, Ordering::Relaxed);
    while let Some(client) = load.clients.join_next().await {
        client.unwrap().unwrap();
    }
    // The stream from before the first change is still there: it hears of the end.
    server.shutdown.cancel();
    let said = timeout(DEADLINE, watching.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(said.status(), ServingStatus::NotServing);
    drop((watching, load));
    server.tasks.shutdown().await;
}

#[tokio::test]
async fn a_broken_pair_leaves_the_old_one_in_force() {
    let site = Site::new();
    let server = Running::start(&site.config()).await;
    let old = server.presented().await;
    fs::write(site.path("key.pem"), site.pair().key).unwrap();
    until("it is refused", async || server.counted("kinference_tls_reloads_total{outcome=\"refused\"}"))
        .await;
    assert_eq!(server.presented().await, old);
    let pair = site.pair();
    site.write(&pair);
    server.until_presented(&pair).await;
    assert!(server.counted("kinference_tls_reloads_total{outcome=\"applied\"}"));
}

#[tokio::test]
async fn every_wrong_file_is_named_with_what_is_wrong() {
    let site = Site::new();
    let (good, other) = (site.config(), site.pair());
    let pair = Pair {
        cert: fs::read_to_string(site.path("cert.pem")).unwrap(),
        key: fs::read_to_string(site.path("key.pem")).unwrap(),
        der: Vec::new(),
    };
    let encrypted = pair.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let cases: &[(&str, &str, Option<&str>, &str)] = &[
        ("cert_file", "cert.pem", None, "cannot be read"),
        ("cert_file", "cert.pem", Some(""), "is empty"),
        ("cert_file", "cert.pem", Some("0\u{1}text"), "is not PEM"),
        ("cert_file", "cert.pem", Some(&pair.key), "holds no certificate"),
        ("cert_file", "cert.pem", Some(&pair.cert[..pair.cert.len() / 2]), "is broken PEM"),
        ("cert_file", "cert.pem", Some(no_certificate), "holds a certificate that can't be used"),
        ("key_file", "key.pem", None, "cannot be read"),
        ("key_file", "key.pem", Some(&pair.cert), "holds no private key"),
        ("key_file", "key.pem", Some(&other.key), "is not the key of the first certificate in"),
        ("key_file", "key.pem", Some(&encrypted), "holds an encrypted private key"),
        ("key_file", "key.pem", Some(&format!("{}{}", pair.key, other.key)), "holds several private keys"),
        (
            "key_file",
            "key.pem",
            Some("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
            "holds a key of a kind",
        ),
        ("client_ca_file", "ca.pem", None, "cannot be read"),
        ("client_ca_file", "ca.pem", Some("\n"), "is not PEM"),
        ("client_ca_file", "ca.pem", Some(&pair.key), "holds no certificate"),
        ("client_ca_file", "ca.pem", Some(no_certificate), "holds a certificate that can't be used"),
    ];
    let config = TlsConfig { client_ca_file: Some(site.path("ca.pem")), ..good };
    tls::check(&config).await.unwrap();
    for (key, file, content, wrong) in cases {
        let path = site.path(file);
        let kept = fs::read(&path).unwrap();
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let said = tls::check(&config).await.unwrap_err().to_string();
        fs::write(&path, kept).unwrap();
        let start = format!("[tls]: 1 error\n  `tls.{key}` is \"{}\", which {wrong}", path.display());
        assert!(said.starts_with(&start) && said.contains("; it must be PEM with"), "{said}");
        assert!(!said.contains("AAAA"), "{said}");
    }
    // All at once, each in its line.
    let nowhere = Some(PathBuf::from("/nowhere"));
    let config = TlsConfig {
        cert_file: nowhere.clone(),
        key_file: nowhere.clone(),
        client_ca_file: nowhere,
        ..config
    };
    let said = tls::check(&config).await.unwrap_err().to_string();
    assert!(said.starts_with("[tls]: 3 errors\n") && said.lines().count() == 4, "{said}");
    tls::check(&TlsConfig::default()).await.unwrap();
}

/// Writes a configuration that uses the good pair.
fn write_config(site: &Site, listen: &str, tls: &str) -> PathBuf {
    site.config();
    let text = format!(
        "listen = \"{listen}\"\nmock_mode = true\n[tls]\n{tls}\n[[profile]]\nname = \"p\"\n\
         [[workerset]]\nname = \"s\"\nprofile = \"p\"\nkv_block_size = 16\ndiscovery.workers_file = \"workers.toml\"\n"
    );
    fs::write(site.path("kinference.toml"), text).unwrap();
    fs::write(site.path("workers.toml"), "workers = []").unwrap();
    site.path("kinference.toml")
}

const FILES: &str = "cert_file = \"cert.pem\"\nkey_file = \"key.pem\"";

#[test]
fn the_command_line_checks_the_files_too() {
    let site = Site::new();
    let config = write_config(&site, "127.0.0.1:0", FILES);
    assert_eq!(checked(&config), (Some(0), String::new()));
    fs::remove_file(site.path("key.pem")).unwrap();
    fs::write(site.path("workers.toml"), "").unwrap();
    let (code, said) = checked(&config);
    assert_eq!(code, Some(64));
    assert!(
        said.contains("`tls.key_file` is \"") && said.contains("key.pem\", which cannot be read"),
        "{said}"
    );
    assert!(said.contains("workers.toml: 1 error"), "{said}");
}

#[test]
fn a_listener_that_anybody_may_call_says_so() {
    let mutual = format!("{FILES}\nclient_ca_file = \"ca.pem\"");
    for (listen, tls, warned) in [
        ("127.0.0.1:0", "", false),
        ("0.0.0.0:0", "", true),
        ("0.0.0.0:0", FILES, true),
        ("0.0.0.0:0", "self_signed = true", true),
        ("0.0.0.0:0", &mutual, false),
    ] {
        let site = Site::new();
        let said = log_of_start(&write_config(&site, listen, tls));
        assert_eq!(said.contains("it is for a trusted network"), warned, "{listen} {tls}: {said}");
        assert_eq!(said.contains("\"tls\":true"), !tls.is_empty(), "{said}");
    }
}

/// Everything that is logged until the server listens.
fn log_of_start(config: &Path) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kinference"))
        .args(["--log-format", "json", "--config"])
        .arg(config)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut said, mut log) = (String::new(), BufReader::new(child.stderr.take().unwrap()));
    while !said.contains("\"message\":\"listening\"") {
        assert_ne!(log.read_line(&mut said).unwrap(), 0, "it ended: {said}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    said
}

fn checked(config: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kinference"))
        .args(["--check", "--config"])
        .arg(config)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}
