//! TokenReview and RateLimiter of the real server, with a real Kubernetes API server where one is needed.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod apiserver;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use apiserver::ApiServer;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kinference::serve::proto::{
    ReleaseRequest, ReserveRequest, ReviewRequest, ReviewResponse, SettleRequest,
    rate_limiter_client::RateLimiterClient, token_review_client::TokenReviewClient,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::Value;
use tokio::time::{sleep, timeout};
use tonic::{Code, Status, transport::Channel};
use tonic_types::StatusExt;

const PATIENCE: Duration = Duration::from_secs(20);

/// The server as a process; ends with the test.
struct Server {
    child: Child,
    /// Reads on, so that the server never blocks on its log; gives all that came.
    log: Option<JoinHandle<String>>,
    /// What it said until it listened.
    said: String,
    channel: Channel,
    _dir: tempfile::TempDir,
}

impl Server {
    /// With the default log.
    async fn start(extra: &str, kubeconfig: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::spawn(command(dir.path(), extra, kubeconfig), dir).await
    }

    /// With all that anything logs.
    async fn talkative(extra: &str, kubeconfig: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = command(dir.path(), extra, kubeconfig);
        command.env("RUST_LOG", "trace");
        Self::spawn(command, dir).await
    }

    async fn spawn(mut command: Command, dir: tempfile::TempDir) -> Self {
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let grpc = loop {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "it ended: {said}");
            said += &line;
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["fields"]["message"] == "listening" {
                break line["fields"]["grpc"].as_str().unwrap().to_owned();
            }
        };
        let log = Some(thread::spawn(move || {
            let mut rest = String::new();
            log.read_to_string(&mut rest).unwrap();
            rest
        }));
        let channel = Channel::from_shared(format!("http://{grpc}")).unwrap().connect().await.unwrap();
        Self { child, log, said, channel, _dir: dir }
    }

    async fn ask(&self, request: ReviewRequest) -> Result<ReviewResponse, Status> {
        let mut client = TokenReviewClient::new(self.channel.clone());
        let answered = timeout(PATIENCE, client.review(request)).await.unwrap();
        answered.map(tonic::Response::into_inner)
    }

    async fn review(&self, token: &str, audiences: &[&str]) -> Result<ReviewResponse, Status> {
        let audiences = audiences.iter().map(|a| (*a).into()).collect();
        self.ask(ReviewRequest { token: token.into(), audiences, deadline_ms: None }).await
    }

    /// Ends it; everything that it ever logged.
    fn end(mut self) -> String {
        self.child.kill().unwrap();
        let rest = self.log.take().unwrap().join().unwrap();
        format!("{}{rest}", self.said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn command(dir: &Path, extra: &str, kubeconfig: &Path) -> Command {
    fs::write(dir.join("workers.toml"), "workers = []").unwrap();
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[[profile]]\nname = \"p\"\n\
         [[workerset]]\nname = \"s\"\nprofile = \"p\"\nkv_block_size = 16\n\
         [workerset.discovery]\nworkers_file = \"workers.toml\"\n{extra}\n"
    );
    fs::write(dir.join("kinference.toml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kinference"));
    command
        .args(["--log-format", "json", "--config"])
        .arg(dir.join("kinference.toml"))
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", dir)
        .env_remove("RUST_LOG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

const ENABLED: &str = "[token_review]\nenabled = true";

fn reason(status: &Status) -> (Code, String) {
    (status.code(), status.get_details_error_info().unwrap().reason)
}

/// A service account of a test, and a token of it for the audience "gateway".
async fn service_account(api: &Api<ServiceAccount>) -> (String, String) {
    let mut account = ServiceAccount::default();
    account.metadata.name = Some(format!("kinference-test-{:016x}", rand::random::<u64>()));
    let name = api.create(&PostParams::default(), &account).await.unwrap().metadata.name.unwrap();
    let spec = TokenRequestSpec { audiences: vec!["gateway".into()], ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let made = api.create_token_request(&name, &PostParams::default(), &request).await.unwrap();
    (name, made.status.unwrap().token)
}

#[tokio::test]
async fn tokens_of_a_real_cluster() {
    let Some(cluster) = ApiServer::find() else { return };
    let server = Server::talkative(ENABLED, &cluster.kubeconfig).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client().await, "default");
    let (name, token) = service_account(&accounts).await;

    let user = format!("system:serviceaccount:default:{name}");
    let yes = server.review(&token, &["other", "gateway"]).await.unwrap();
    assert_eq!((yes.authenticated, &yes.username, yes.cached), (true, &user, false), "{yes:?}");
    assert_eq!((yes.audiences.as_slice(), yes.error.as_str()), (&["gateway".to_owned()][..], ""));
    assert!(yes.groups.contains(&"system:serviceaccounts".into()) && !yes.uid.is_empty(), "{yes:?}");
    let again = server.review(&token, &["gateway", "other"]).await.unwrap();
    assert_eq!(again, ReviewResponse { cached: true, ..yes });

    for audiences in [&["other"][..], &[]] {
        let no = server.review(&token, audiences).await.unwrap();
        assert!(!no.authenticated && !no.error.is_empty() && no.username.is_empty(), "{no:?}");
    }
    let invalid = server.review("n0-such-token", &[]).await.unwrap();
    assert!(!invalid.authenticated && !invalid.error.is_empty() && !invalid.cached, "{invalid:?}");
    assert!(server.review("n0-such-token", &[]).await.unwrap().cached);
    assert_eq!(
        reason(&server.review("", &[]).await.unwrap_err()),
        (Code::InvalidArgument, "BAD_REQUEST".into())
    );

    // Deleted, it is remembered for a while where it was asked for, and nowhere else.
    accounts.delete(&name, &DeleteParams::default()).await.unwrap();
    assert!(server.review(&token, &["gateway", "other"]).await.unwrap().authenticated);
    assert!(!server.review(&token, &["gateway"]).await.unwrap().authenticated);

    let log = server.end();
    assert!(log.contains("kube_client"), "what the client logs is in there");
    assert!(!log.contains(&token) && !log.contains("n0-such-token"), "a token is in the log");
}

#[tokio::test]
async fn a_server_without_the_right_to_ask_says_so() {
    let Some(cluster) = ApiServer::find() else { return };
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client().await, "default");
    let (name, _) = service_account(&accounts).await;
    let made = accounts.create_token_request(&name, &PostParams::default(), &TokenRequest::default()).await;
    let token = made.unwrap().status.unwrap().token;
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    cluster.kubeconfig_with_token(&token, &kubeconfig);

    let server = Server::start(ENABLED, &kubeconfig).await;
    let refused = server.review("any", &[]).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::Unavailable, "REVIEW_UNAVAILABLE".into()));
    assert!(refused.message().contains("`create` on tokenreviews"), "{refused}");
    let log = server.end();
    assert!(log.contains("403") && log.contains("`create` on tokenreviews"), "{log}");

    cluster.kubeconfig_with_token("nobodys", &kubeconfig);
    let server = Server::start(ENABLED, &kubeconfig).await;
    assert_eq!(server.review("any", &[]).await.unwrap_err().code(), Code::Unavailable);
    assert!(server.end().contains("401"));
    accounts.delete(&name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn what_is_remembered_outlasts_the_api_server() {
    let Some(mut cluster) = ApiServer::start() else { return };
    let server = Server::start(ENABLED, &cluster.kubeconfig).await;
    let alice = server.review("alice-token", &[]).await.unwrap();
    assert_eq!((alice.username.as_str(), alice.uid.as_str()), ("alice", "uid-alice"));
    assert!(["devs", "testers"].iter().all(|group| alice.groups.contains(&(*group).into())), "{alice:?}");
    cluster.stop();
    let gone = timeout(PATIENCE, async {
        for n in 0.. {
            match server.review(&format!("token {n}"), &[]).await {
                Err(status) if status.code() == Code::Unavailable => return status,
                _ => sleep(Duration::from_millis(50)).await,
            }
        }
        unreachable!()
    });
    let gone = gone.await.unwrap();
    assert_eq!(reason(&gone), (Code::Unavailable, "REVIEW_UNAVAILABLE".into()));
    assert!(gone.message().contains("can't be reached"), "{gone}");
    let again = server.review("alice-token", &[]).await.unwrap();
    assert_eq!(again, ReviewResponse { cached: true, ..alice });
    for n in 0..5 {
        server.review(&format!("other {n}"), &[]).await.unwrap_err();
    }
    let log = server.end();
    assert!(log.matches("token reviews fail").count() <= 2, "once, and maybe once for the end itself: {log}");
    assert!(log.contains("not reached") && !log.contains("kube_client"), "{log}");
}

#[test]
fn without_credentials_it_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("no-kubeconfig");
    let output = command(dir.path(), ENABLED, &missing).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8(output.stderr).unwrap();
    for words in ["`token_review.enabled` is true", "no Kubernetes credentials", "no-kubeconfig"] {
        assert!(log.contains(words), "{words:?} is not in {log}");
    }
}

#[tokio::test]
async fn what_is_not_enabled_is_not_implemented() {
    let server = Server::start("", Path::new("/none")).await;
    assert_eq!(server.review("any", &[]).await.unwrap_err().code(), Code::Unimplemented);
    let mut limiter = RateLimiterClient::new(server.channel.clone());
    let reserve = ReserveRequest { tenant: "t".into(), ..ReserveRequest::default() };
    assert_eq!(limiter.reserve(reserve).await.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn the_rate_limiter_admits_and_warns() {
    let server = Server::start("[rate_limit]\nenabled = true", Path::new("/none")).await;
    assert!(
        server.said.contains("\"WARN\"") && server.said.contains("no budget is tracked"),
        "{}",
        server.said
    );
    let mut limiter = RateLimiterClient::new(server.channel.clone());
    let request = ReserveRequest { tenant: "t".into(), prompt_tokens: 1 << 60, ..ReserveRequest::default() };
    let reserved = limiter.reserve(request.clone()).await.unwrap().into_inner();
    let other = limiter.reserve(request).await.unwrap().into_inner();
    assert!(reserved.admitted && reserved.reservation_id != other.reservation_id);
    let nobodys = limiter.reserve(ReserveRequest::default()).await.unwrap_err();
    assert_eq!(reason(&nobodys), (Code::InvalidArgument, "BAD_REQUEST".into()));
    let settle = SettleRequest { reservation_id: reserved.reservation_id, ..SettleRequest::default() };
    limiter.settle(settle.clone()).await.unwrap();
    limiter.settle(settle).await.unwrap();
    limiter.release(ReleaseRequest { reservation_id: "unknown".into() }).await.unwrap();
}
