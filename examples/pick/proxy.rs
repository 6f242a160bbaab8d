//! One request: PushBody, Pick, the request itself, Observe. Every pick is told an end, whatever happens.

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use kinference::serve::proto::{
    BodyHead, BodyMutation, Cancelled, Completed, Failed, FirstToken, ObserveRequest, PickRequest,
    PickResponse, PushBodyRequest, Served, Usage, body_mutation::Change, observe_request::Event,
    pick_request::Prompt, picker_client::PickerClient, push_body_request::Part,
};
use reqwest::header::CONTENT_TYPE;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tonic::transport::Channel;

use super::usage::UsageReader;

/// Bytes of a body in one message.
const CHUNK: usize = 64 * 1024;
const JSON: &str = "application/json";

/// A request of a client.
pub struct Call {
    /// Its path.
    pub path: String,
    /// The model to route by; empty: the body's.
    pub model: String,
    /// Its JSON body.
    pub body: Vec<u8>,
}

/// How it went.
#[derive(Debug)]
pub struct Done {
    /// The engine's status.
    pub status: u16,
    /// Who served it.
    pub endpoint: String,
    /// Who was picked.
    pub worker: String,
    /// What it used.
    pub usage: Option<Usage>,
}

/// Sends requests where Kinference says.
pub struct Gateway {
    picker: PickerClient<Channel>,
    engines: reqwest::Client,
}

impl Gateway {
    pub fn new(picker: PickerClient<Channel>) -> Self {
        Self { picker, engines: reqwest::Client::new() }
    }

    /// Proxies one request; the answer's body goes to `out` as it comes.
    pub async fn proxy(&mut self, call: Call, out: &mut (impl AsyncWrite + Unpin)) -> Result<Done> {
        let pushed = self.picker.push_body(futures::stream::iter(pushing(&call))).await?.into_inner();
        let picked = self
            .picker
            .pick(PickRequest {
                prompt: Some(Prompt::BodyId(pushed.body_id)),
                model: call.model,
                ..PickRequest::default()
            })
            .await?
            .into_inner();
        let body = changed(call.body, picked.body_mutation.as_ref());
        let sent = self.send(&picked, &call.path, body).await;
        let (endpoint, response) = match sent {
            Ok(sent) => sent,
            Err(error) => {
                self.observe(&picked, Event::Failed(Failed {})).await?;
                return Err(error);
            }
        };
        let status = response.status().as_u16();
        let answer = self.pass(&picked, response, out).await;
        let (event, usage) = match (&answer, status) {
            (Ok(Passed::Whole(usage)), ..400) => {
                let response_id = String::new();
                (Event::Completed(Completed { usage: *usage, response_id }), *usage)
            }
            (Ok(Passed::Broken), _) | (Ok(Passed::Whole(_)), 500..) => (Event::Failed(Failed {}), None),
            // Refused by the engine, or the client went away: the engine is fine.
            (Ok(Passed::Whole(_)) | Err(_), _) => (Event::Cancelled(Cancelled {}), None),
        };
        self.observe(&picked, event).await?;
        match answer? {
            Passed::Whole(_) => Ok(Done { status, endpoint, worker: picked.worker_id, usage }),
            Passed::Broken => bail!("{endpoint} broke off its answer"),
        }
    }

    /// Sends it to the picked endpoint; to a fallback where the one before is not reached.
    async fn send(
        &mut self,
        picked: &PickResponse,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(String, reqwest::Response)> {
        if let Some(provider) = &picked.provider {
            bail!("{} is a provider: this example sends to engines only", provider.name);
        }
        let mut failed = None;
        for endpoint in std::iter::once(&picked.endpoint).chain(&picked.fallbacks) {
            let request = self.engines.post(format!("http://{endpoint}{path}")).header(CONTENT_TYPE, JSON);
            match request.body(body.clone()).send().await {
                Ok(response) => {
                    if *endpoint != picked.endpoint {
                        let served = Served { endpoint: endpoint.clone() };
                        self.observe(picked, Event::Served(served)).await?;
                    }
                    return Ok((endpoint.clone(), response));
                }
                Err(error) if error.is_connect() => failed = Some(error),
                Err(error) => return Err(error).with_context(|| format!("asking {endpoint}")),
            }
        }
        match failed {
            Some(error) => Err(error).context("no endpoint is reached"),
            None => bail!("there is no endpoint"),
        }
    }

    /// Passes the answer on, and tells of its first byte. An error is the client's: it takes no more.
    async fn pass(
        &mut self,
        picked: &PickResponse,
        response: reqwest::Response,
        out: &mut (impl AsyncWrite + Unpin),
    ) -> Result<Passed> {
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let streamed = content_type.is_some_and(|value| value.starts_with("text/event-stream"));
        let mut usage = UsageReader::new(streamed);
        let mut chunks = response.bytes_stream();
        let mut first = streamed;
        while let Some(chunk) = chunks.next().await {
            let Ok(chunk) = chunk else { return Ok(Passed::Broken) };
            if std::mem::take(&mut first) {
                self.observe(picked, Event::FirstToken(FirstToken {})).await?;
            }
            usage.feed(&chunk);
            out.write_all(&chunk).await.context("the client is gone")?;
        }
        out.flush().await.context("the client is gone")?;
        Ok(Passed::Whole(usage.found()))
    }

    async fn observe(&mut self, picked: &PickResponse, event: Event) -> Result<()> {
        let told = ObserveRequest { pick_id: picked.pick_id.clone(), event: Some(event) };
        self.picker.observe(told).await?;
        Ok(())
    }
}

/// How an answer ended.
enum Passed {
    /// With its end; what it says that it used.
    Whole(Option<Usage>),
    /// Before its end.
    Broken,
}

fn pushing(call: &Call) -> Vec<PushBodyRequest> {
    let head = BodyHead {
        path: call.path.clone(),
        content_type: JSON.to_owned(),
        content_length: call.body.len() as u64,
        ..BodyHead::default()
    };
    let chunks = call.body.chunks(CHUNK).map(|chunk| Part::Chunk(chunk.to_vec()));
    std::iter::once(Part::Head(head)).chain(chunks).map(|part| PushBodyRequest { part: Some(part) }).collect()
}

/// The body as the pick wants it.
fn changed(body: Vec<u8>, mutation: Option<&BodyMutation>) -> Vec<u8> {
    match mutation.and_then(|mutation| mutation.change.as_ref()) {
        None => body,
        Some(Change::Body(body)) => body.clone(),
        Some(Change::Splices(splices)) => {
            let (mut out, mut kept) = (Vec::with_capacity(body.len()), 0);
            for splice in &splices.splices {
                out.extend_from_slice(&body[kept..splice.start as usize]);
                out.extend_from_slice(&splice.replacement);
                kept = splice.end as usize;
            }
            out.extend_from_slice(&body[kept..]);
            out
        }
    }
}
