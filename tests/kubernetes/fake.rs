//! An API server that answers by a test's script: for what a real one can't be made to do in time.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{Request, Response, StatusCode},
};
use futures::{StreamExt, stream};
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinSet};

/// What it answers.
pub enum Answer {
    /// One document.
    Json(u16, Value),
    /// Lines of a watch; then it stays open, or not.
    Lines(Vec<Value>, bool),
    /// A watch of nothing that ends after a while.
    Brief(Duration),
}

type Script = Box<dyn Fn(&str, usize) -> Answer + Send + Sync>;

struct Inner {
    script: Script,
    asked: Mutex<Vec<String>>,
}

/// One that runs until it is dropped.
pub struct Fake {
    pub client: Client,
    inner: Arc<Inner>,
    _task: JoinSet<()>,
}

impl Fake {
    /// The script gets path and query, and how many requests like it (watches, or other) came before.
    pub async fn start(script: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let inner = Arc::new(Inner { script: Box::new(script), asked: Mutex::default() });
        let app = Router::new().fallback(answer).with_state(inner.clone());
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { client: Client::try_from(Config::new(uri)).unwrap(), inner, _task: task }
    }

    /// Path and query of all requests so far.
    pub fn asked(&self) -> Vec<String> {
        self.inner.asked.lock().clone()
    }
}

async fn answer(State(inner): State<Arc<Inner>>, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path_and_query().unwrap().to_string();
    let is_watch = |path: &str| path.contains("watch=true");
    let before = {
        let mut asked = inner.asked.lock();
        let before = asked.iter().filter(|asked| is_watch(asked) == is_watch(&path)).count();
        asked.push(path.clone());
        before
    };
    let (code, body) = match (inner.script)(&path, before) {
        Answer::Json(code, value) => (code, Body::from(value.to_string())),
        Answer::Lines(lines, open) => {
            let lines = stream::iter(lines).map(|line| Ok::<_, Infallible>(format!("{line}\n")));
            let rest = if open { stream::pending().left_stream() } else { stream::empty().right_stream() };
            (200, Body::from_stream(lines.chain(rest)))
        }
        Answer::Brief(wait) => {
            let end = stream::once(tokio::time::sleep(wait)).map(|()| Ok::<_, Infallible>(""));
            (200, Body::from_stream(end))
        }
    };
    Response::builder().status(StatusCode::from_u16(code).unwrap()).body(body).unwrap()
}
