//! Speaks OTLP with a receiver, over gRPC or HTTP. A batch is sent once: what is not taken is lost.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse, trace_service_client::TraceServiceClient,
};
use prost::Message;
use reqwest::{StatusCode, header::CONTENT_TYPE};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

use super::{TraceOptions, TraceProtocol};

const PROTOBUF: &str = "application/x-protobuf";

/// Bytes of an answer that are read: the rest says nothing that matters.
const MOST_ANSWERED: usize = 64 * 1024;

/// Spans don't get out.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The endpoint is no address that gRPC could use, or its TLS can't be set up.
    #[error("the endpoint of traces can't be used: {0}")]
    Endpoint(#[source] tonic::transport::Error),
    /// The receiver's answer over gRPC.
    #[error("{:?}: {}", .0.code(), .0.message())]
    Grpc(#[from] Box<tonic::Status>),
    /// It was not reached over HTTP.
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    /// Its answer over HTTP.
    #[error("it answers with {0}")]
    Refused(StatusCode),
    /// It took only some.
    #[error("it rejected {spans} spans: {why}")]
    Partial {
        /// How many it rejected.
        spans: u64,
        /// In its words.
        why: String,
    },
}

/// A receiver.
pub(super) enum Client {
    Grpc(TraceServiceClient<Channel>),
    Http { client: reqwest::Client, url: String, timeout: Duration },
}

impl Client {
    /// Not connected yet.
    pub fn new(options: &TraceOptions, http: reqwest::Client) -> Result<Self, TraceError> {
        let TraceOptions { endpoint, timeout, .. } = options;
        match options.protocol {
            TraceProtocol::Http => {
                Ok(Self::Http { client: http, url: format!("{endpoint}/v1/traces"), timeout: *timeout })
            }
            TraceProtocol::Grpc => {
                let channel = Endpoint::from_shared(endpoint.clone())
                    .and_then(|at| match endpoint.to_ascii_lowercase().starts_with("https:") {
                        true => at.tls_config(ClientTlsConfig::new().with_native_roots()),
                        false => Ok(at),
                    })
                    .map_err(TraceError::Endpoint)?;
                let channel = channel.timeout(*timeout).connect_timeout(*timeout).connect_lazy();
                Ok(Self::Grpc(TraceServiceClient::new(channel)))
            }
        }
    }

    /// Sends a batch.
    ///
    /// # Errors
    /// It did not get through, or not all of it.
    pub async fn send(&mut self, batch: ExportTraceServiceRequest) -> Result<(), TraceError> {
        let answer = match self {
            Self::Grpc(client) => client.export(batch).await.map_err(Box::new)?.into_inner(),
            Self::Http { client, url, timeout } => {
                let sent = client.post(&*url).header(CONTENT_TYPE, PROTOBUF).body(batch.encode_to_vec());
                let mut answer = sent.timeout(*timeout).send().await?;
                if !answer.status().is_success() {
                    return Err(TraceError::Refused(answer.status()));
                }
                // One that says nothing that can be read has taken all of it.
                let mut body = Vec::new();
                while body.len() < MOST_ANSWERED
                    && let Some(chunk) = answer.chunk().await?
                {
                    body.extend_from_slice(&chunk);
                }
                ExportTraceServiceResponse::decode(&*body).unwrap_or_default()
            }
        };
        match answer.partial_success {
            Some(partial) if partial.rejected_spans > 0 => Err(TraceError::Partial {
                spans: partial.rejected_spans.unsigned_abs(),
                why: partial.error_message,
            }),
            _ => Ok(()),
        }
    }
}
