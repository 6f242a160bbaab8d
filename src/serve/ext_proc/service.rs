//! The `ExternalProcessor` service: one session per stream, run inside the stream that is answered.
//!
//! Invariant: a session lives exactly as long as its stream; there is no task and no channel beside it.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32},
    },
};

use envoy_types::pb::envoy::service::ext_proc::v3::{
    ProcessingRequest, ProcessingResponse,
    external_processor_server::{ExternalProcessor, ExternalProcessorServer},
};
use futures::{Stream, stream};
use tonic::{Request, Response, Status, Streaming};

pub use super::shared::{Decide, Models, Refused};
use super::{super::limits, session::Session, shared::Shared, stats::Stats};
use crate::{config::ExtProcConfig, observe::Metrics, pipeline::Pipeline, prompt::BodyBudget};

/// The pipeline as a decider.
pub fn deciding(pipeline: Arc<Pipeline>) -> Decide {
    Arc::new(move |incoming| {
        let pipeline = pipeline.clone();
        Box::pin(async move { pipeline.decide(incoming).await })
    })
}

/// The pipeline as the one who knows what pools publish.
pub fn publishing(pipeline: Arc<Pipeline>) -> Models {
    Arc::new(move |incoming, shape| pipeline.models(incoming, shape))
}

/// The pipeline as the one who tells of requests that never got to it.
pub fn telling(pipeline: Arc<Pipeline>) -> Refused {
    Arc::new(move |incoming, rejection| pipeline.refused(incoming, rejection))
}

/// What the front door is made of.
pub struct Parts {
    /// Who decides.
    pub decide: Decide,
    /// Who knows what pools publish; `None`: the engines are asked.
    pub models: Option<Models>,
    /// Whom to tell of requests that are turned away before they were decided.
    pub refused: Refused,
    /// Where bodies are held.
    pub budget: Arc<BodyBudget>,
    /// `[ext_proc]`
    pub config: ExtProcConfig,
    /// Start of the ids given to requests without one; random, so that restarts and replicas differ.
    pub id_seed: u64,
}

/// The service.
#[derive(Clone)]
pub struct ExtProc {
    shared: Arc<Shared>,
}

impl ExtProc {
    /// Of these parts.
    pub fn new(parts: Parts, metrics: &Metrics) -> Self {
        let Parts { decide, models, refused, budget, config, id_seed } = parts;
        let shared = Shared {
            decide,
            models,
            refused,
            budget,
            config,
            stats: Stats::new(metrics),
            ids: id_seed.into(),
            streams: AtomicU32::default(),
            told_unheeded: AtomicBool::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// As a gRPC service whose message limit follows the body caps: a collected body comes in one message.
    pub fn into_server(self) -> ExternalProcessorServer<Self> {
        let limit = limits::body_message(self.shared.budget.limits());
        ExternalProcessorServer::new(self)
            .max_decoding_message_size(limit)
            .max_encoding_message_size(usize::MAX)
    }

    /// Runs one stream.
    pub fn answers<S>(
        &self,
        inbound: S,
    ) -> impl Stream<Item = Result<ProcessingResponse, Status>> + Send + 'static
    where
        S: Stream<Item = Result<ProcessingRequest, Status>> + Send + Unpin + 'static,
    {
        let session = Session::new(self.shared.clone(), inbound);
        stream::unfold(session, |mut session| async move {
            let answer = session.next().await?;
            Some((Ok(answer), session))
        })
    }
}

#[tonic::async_trait]
impl ExternalProcessor for ExtProc {
    type ProcessStream = Pin<Box<dyn Stream<Item = Result<ProcessingResponse, Status>> + Send>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        Ok(Response::new(Box::pin(self.answers(request.into_inner()))))
    }
}
