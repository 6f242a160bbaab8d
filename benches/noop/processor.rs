//! An ext_proc server that does nothing but the protocol's minimum: every message is answered at once, a duplex body is
//! sent back as it came. No state but the body modes of the stream.

use std::{path::PathBuf, pin::Pin};

use anyhow::Result;
use clap::Parser;
use envoy_types::pb::envoy::{
    extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode,
    service::ext_proc::v3::{
        BodyMutation, BodyResponse, CommonResponse, HeadersResponse, HttpBody, ProcessingRequest,
        ProcessingResponse, StreamedBodyResponse, TrailersResponse,
        body_mutation::Mutation,
        external_processor_server::{ExternalProcessor, ExternalProcessorServer},
        processing_request::Request as Said,
        processing_response::Response as Answer,
    },
};
use futures::{Stream, StreamExt, stream};
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming, transport::Server};

/// The most that one duplex answer carries: Envoy refuses messages over 64 KiB.
const CHUNK_BYTES: usize = 62_000;

#[derive(Parser)]
pub struct Args {
    /// A Unix socket to listen on, in place of a port of 127.0.0.1.
    #[arg(long)]
    unix: Option<PathBuf>,
}

/// Serves until it is ended.
#[tokio::main]
pub async fn run(args: Args) -> Result<()> {
    let service = ExternalProcessorServer::new(Processor).max_decoding_message_size(usize::MAX);
    let server = Server::builder().max_concurrent_streams(65_536).add_service(service);
    if let Some(path) = args.unix {
        let listener = UnixListener::bind(&path)?;
        crate::say(&json!({"listen": path}))?;
        return Ok(server.serve_with_incoming(UnixListenerStream::new(listener)).await?);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    crate::say(&json!({"listen": listener.local_addr()?.to_string()}))?;
    let incoming = TcpListenerStream::new(listener).map(|connection| {
        let connection = connection?;
        connection.set_nodelay(true)?;
        Ok::<_, std::io::Error>(connection)
    });
    Ok(server.serve_with_incoming(incoming).await?)
}

struct Processor;

#[tonic::async_trait]
impl ExternalProcessor for Processor {
    type ProcessStream = Pin<Box<dyn Stream<Item = Result<ProcessingResponse, Status>> + Send>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let mut modes = Modes::default();
        let answers = request.into_inner().map(move |message| match message {
            Ok(message) => modes.answers(message).into_iter().map(Ok).collect(),
            Err(status) => vec![Err(status)],
        });
        Ok(Response::new(Box::pin(answers.flat_map(stream::iter))))
    }
}

/// Which bodies are sent back.
#[derive(Default)]
struct Modes {
    request: bool,
    response: bool,
}

impl Modes {
    fn answers(&mut self, message: ProcessingRequest) -> Vec<ProcessingResponse> {
        if let Some(config) = &message.protocol_config {
            let duplex = BodySendMode::FullDuplexStreamed as i32;
            self.request = config.request_body_mode == duplex;
            self.response = config.response_body_mode == duplex;
        }
        let Some(said) = message.request else { return Vec::new() };
        let headers = || HeadersResponse { response: Some(CommonResponse::default()) };
        let answers = match said {
            Said::RequestHeaders(_) => vec![Answer::RequestHeaders(headers())],
            Said::ResponseHeaders(_) => vec![Answer::ResponseHeaders(headers())],
            Said::RequestBody(body) => bodies(body, self.request).map(Answer::RequestBody).collect(),
            Said::ResponseBody(body) => bodies(body, self.response).map(Answer::ResponseBody).collect(),
            Said::RequestTrailers(_) => vec![Answer::RequestTrailers(TrailersResponse::default())],
            Said::ResponseTrailers(_) => vec![Answer::ResponseTrailers(TrailersResponse::default())],
        };
        let message = |answer| ProcessingResponse { response: Some(answer), ..Default::default() };
        answers.into_iter().map(message).collect()
    }
}

fn bodies(body: HttpBody, echo: bool) -> impl Iterator<Item = BodyResponse> {
    let mut left = Some(body);
    std::iter::from_fn(move || {
        let mut body = left.take()?;
        if !echo {
            return Some(BodyResponse { response: Some(CommonResponse::default()) });
        }
        if body.body.len() > CHUNK_BYTES {
            let rest = body.body.split_off(CHUNK_BYTES);
            left = Some(HttpBody { body: rest, ..body.clone() });
            body.end_of_stream = false;
        }
        let streamed =
            StreamedBodyResponse { body: body.body, end_of_stream: body.end_of_stream, ..Default::default() };
        let body_mutation = Some(BodyMutation { mutation: Some(Mutation::StreamedResponse(streamed)) });
        Some(BodyResponse { response: Some(CommonResponse { body_mutation, ..Default::default() }) })
    })
}
