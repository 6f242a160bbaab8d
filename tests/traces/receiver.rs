//! A receiver of OTLP: it answers as it is told to, and hands on what it gets.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::post};
use bytes::Bytes;
use kinference::observe::TraceProtocol;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    trace::v1::ResourceSpans,
};
use prost::Message;
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

/// A receiver at work.
pub struct Receiver {
    pub endpoint: String,
    batches: mpsc::UnboundedReceiver<ExportTraceServiceRequest>,
    desk: Desk,
    _server: JoinSet<Infallible>,
}

/// What both protocols do with a batch.
#[derive(Clone)]
struct Desk {
    received: mpsc::UnboundedSender<ExportTraceServiceRequest>,
    refuses: Arc<AtomicBool>,
    /// Of each batch one span is rejected.
    picky: Arc<AtomicBool>,
}

impl Desk {
    /// `None`: nothing is taken now.
    fn take(&self, batch: ExportTraceServiceRequest) -> Option<ExportTraceServiceResponse> {
        if self.refuses.load(Ordering::Relaxed) {
            return None;
        }
        self.received.send(batch).unwrap();
        let picky = self.picky.load(Ordering::Relaxed);
        let partial = ExportTracePartialSuccess { rejected_spans: 1, error_message: "one is odd".into() };
        Some(ExportTraceServiceResponse { partial_success: picky.then_some(partial) })
    }
}

#[tonic::async_trait]
impl TraceService for Desk {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.take(request.into_inner()).map(Response::new).ok_or_else(|| Status::unavailable("not now"))
    }
}

async fn over_http(State(desk): State<Desk>, body: Bytes) -> impl IntoResponse {
    match desk.take(ExportTraceServiceRequest::decode(body).unwrap()) {
        Some(answer) => (StatusCode::OK, answer.encode_to_vec()),
        None => (StatusCode::SERVICE_UNAVAILABLE, Vec::new()),
    }
}

impl Receiver {
    pub async fn start(protocol: TraceProtocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (received, batches) = mpsc::unbounded_channel();
        let desk = Desk { received, refuses: Arc::default(), picky: Arc::default() };
        let (serving, mut server) = (desk.clone(), JoinSet::new());
        server.spawn(async move {
            match protocol {
                TraceProtocol::Grpc => {
                    let incoming = TcpListenerStream::new(listener);
                    let service = TraceServiceServer::new(serving);
                    Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
                }
                TraceProtocol::Http => {
                    let router = Router::new().route("/v1/traces", post(over_http)).with_state(serving);
                    axum::serve(listener, router).await.unwrap();
                }
            }
            panic!("the receiver ended");
        });
        Self { endpoint, batches, desk, _server: server }
    }

    /// What it got since it was last asked.
    pub fn received(&mut self) -> Vec<ResourceSpans> {
        let mut all = Vec::new();
        while let Ok(batch) = self.batches.try_recv() {
            all.extend(batch.resource_spans);
        }
        all
    }

    pub fn refuse(&self, refuses: bool) {
        self.desk.refuses.store(refuses, Ordering::Relaxed);
    }

    pub fn be_picky(&self) {
        self.desk.picky.store(true, Ordering::Relaxed);
    }
}
