//! A provider that stands in for those outside: OpenAI's and Anthropic's API over TLS, which tells what reached it.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
    serve::Listener,
};
use futures::stream;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer},
    server::TlsStream,
};

/// What it says that each answer has: more than engines ever say here.
pub const ANSWER_TOKENS: usize = 10_000;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// With its query.
    pub path: String,
    pub authority: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// How the provider does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Well,
    /// It answers everything with that status.
    Status(u16),
    /// It closes the connection instead of an answer.
    HangsUp,
}

#[derive(Default)]
struct Shared {
    arrived: Mutex<Vec<Arrived>>,
    mood: Mutex<Mood>,
    asked_for: Mutex<Option<String>>,
}

/// A provider, until it is dropped.
pub struct Cloud {
    pub port: u16,
    dir: tempfile::TempDir,
    shared: Arc<Shared>,
    _task: JoinSet<()>,
}

impl Cloud {
    /// One whose certificate is for that host.
    pub async fn start(host: &str) -> Self {
        let (ca, config) = certified(host);
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca.pem"), ca).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let encrypted = Encrypted { listener, acceptor: config, shared: shared.clone() };
        let app = Router::new().fallback(answer).with_state(shared.clone());
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(encrypted, app).await.unwrap() });
        Self { port, dir, shared, _task: task }
    }

    /// What its certificate is signed by.
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    pub fn turn(&self, mood: Mood) {
        *self.shared.mood.lock() = mood;
    }

    /// What has arrived since it was last asked.
    pub fn arrived(&self) -> Vec<Arrived> {
        std::mem::take(&mut *self.shared.arrived.lock())
    }

    /// The host that the last handshake asked for.
    pub fn asked_for(&self) -> Option<String> {
        self.shared.asked_for.lock().clone()
    }
}

/// PEM of an authority, and a server that it answers for.
fn certified(host: &str) -> (String, TlsAcceptor) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // One of another name than the server's, or the server would seem to have signed itself.
    params.distinguished_name.push(DnType::CommonName, "authority");
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(vec![host.to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (ca.pem(), Arc::new(config).into())
}

struct Encrypted {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    shared: Arc<Shared>,
}

impl Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, from) = self.listener.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                let name = stream.get_ref().1.server_name().map(str::to_owned);
                *self.shared.asked_for.lock() = name;
                return (stream, from);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

async fn answer(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let authority = uri.authority().map(ToString::to_string);
    let host = || headers["host"].to_str().unwrap().to_owned();
    let path = uri.path_and_query().unwrap().to_string();
    let arrived = Arrived { path, authority: authority.unwrap_or_else(host), headers: headers.clone(), body };
    let asked: Value = serde_json::from_slice(&arrived.body).unwrap();
    let messages = uri.path().ends_with("/v1/messages");
    shared.arrived.lock().push(arrived);
    let mood = *shared.mood.lock();
    match mood {
        // Unwinding ends the connection's task, and says nothing.
        Mood::HangsUp => std::panic::resume_unwind(Box::new("hung up")),
        Mood::Status(status) => (StatusCode::from_u16(status).unwrap(), "{\"error\": {}}").into_response(),
        Mood::Well if asked["stream"] == true => events(&asked, messages),
        Mood::Well => whole(&asked, messages),
    }
}

fn whole(asked: &Value, messages: bool) -> Response {
    let body = if messages {
        json!({"type": "message", "id": "msg_1", "model": asked["model"], "role": "assistant",
            "content": [{"type": "text", "text": "from outside"}],
            "usage": {"input_tokens": 11, "output_tokens": ANSWER_TOKENS}})
    } else {
        json!({"object": "chat.completion", "id": "c1", "model": asked["model"],
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "from outside"}}],
            "usage": {"prompt_tokens": 11, "completion_tokens": ANSWER_TOKENS, "total_tokens": 11 + ANSWER_TOKENS}})
    };
    ([("content-type", "application/json")], body.to_string()).into_response()
}

fn events(asked: &Value, messages: bool) -> Response {
    let model = &asked["model"];
    let mut events = if messages {
        vec![
            json!({"type": "message_start", "message": {"model": model, "usage": {"input_tokens": 11}}}),
            json!({"type": "content_block_delta", "delta": {"text": "from outside"}}),
            json!({"type": "message_delta", "usage": {"output_tokens": ANSWER_TOKENS}}),
        ]
    } else {
        let delta = |text: &str| json!({"model": model, "choices": [{"delta": {"content": text}}]});
        vec![delta("from "), delta("outside")]
    };
    if asked["stream_options"]["include_usage"] == true {
        let usage = json!({"prompt_tokens": 11, "completion_tokens": ANSWER_TOKENS, "total_tokens": 11 + ANSWER_TOKENS});
        events.push(json!({"model": model, "choices": [], "usage": usage}));
    }
    let mut lines: Vec<_> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    if !messages {
        lines.push("data: [DONE]\n\n".into());
    }
    let body = Body::from_stream(stream::iter(lines.into_iter().map(Ok::<_, std::io::Error>)));
    ([("content-type", "text/event-stream")], body).into_response()
}
