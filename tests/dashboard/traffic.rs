//! Requests through the native API, as a gateway would send them: a pick, the engine's streamed answer, what became of it.

use futures::StreamExt;
use kinference::serve::proto::{
    BodyHead, Completed, Failed, FirstToken, InlineBody, ObserveRequest, PickRequest, PickResponse,
    observe_request::Event, pick_request::Prompt, picker_client::PickerClient,
};
use serde_json::{Value, json};
use tonic::{Code, transport::Channel};

use crate::usage::UsageReader;

const PATH: &str = "/v1/completions";
/// What the engines call their model.
const MODEL: &str = "tiny";

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    pub tenant: String,
    pub pool: String,
    pub model: String,
    pub tokens: Vec<u32>,
    pub answer: u32,
}

impl Ask {
    pub fn of(tokens: Vec<u32>) -> Self {
        Self { tenant: String::new(), pool: String::new(), model: MODEL.into(), tokens, answer: 4 }
    }

    fn body(&self) -> Value {
        let options = json!({"include_usage": true});
        json!({"model": MODEL, "prompt": self.tokens, "max_tokens": self.answer, "stream": true, "stream_options": options})
    }
}

/// A client of a server, and of the engines that it picks.
pub struct Gateway {
    picker: PickerClient<Channel>,
    engines: reqwest::Client,
}

impl Gateway {
    pub async fn to(grpc: &str) -> Self {
        let picker = PickerClient::connect(format!("http://{grpc}")).await.unwrap();
        Self { picker, engines: reqwest::Client::new() }
    }

    /// Whether it was answered: who is turned away is not, nor is one whose engine is gone.
    pub async fn ask(&mut self, ask: &Ask) -> bool {
        let Some(picked) = self.pick(ask).await else { return false };
        let url = format!("http://{}{PATH}", picked.endpoint);
        let Ok(response) = self.engines.post(url).json(&ask.body()).send().await else { return false };
        let (mut chunks, mut usage, mut first) = (response.bytes_stream(), UsageReader::new(true), true);
        while let Some(chunk) = chunks.next().await {
            let Ok(chunk) = chunk else { return false };
            usage.feed(&chunk);
            if std::mem::take(&mut first) {
                self.observe(&picked.pick_id, Event::FirstToken(FirstToken {})).await;
            }
        }
        let (usage, response_id) = (usage.found(), String::new());
        self.observe(&picked.pick_id, Event::Completed(Completed { usage, response_id })).await;
        true
    }

    /// A request that its target fails.
    pub async fn fail(&mut self, ask: &Ask) {
        let picked = self.pick(ask).await.unwrap();
        self.observe(&picked.pick_id, Event::Failed(Failed::default())).await;
    }

    /// A request that its target does not end while a test looks; whether it is answered with the first token.
    pub async fn begin(&mut self, ask: &Ask, answers: bool) {
        let picked = self.pick(ask).await.unwrap();
        if answers {
            self.observe(&picked.pick_id, Event::FirstToken(FirstToken {})).await;
        }
    }

    /// `None`: turned away.
    async fn pick(&mut self, ask: &Ask) -> Option<PickResponse> {
        let head = BodyHead { path: PATH.into(), ..BodyHead::default() };
        let request = PickRequest {
            prompt: Some(Prompt::Body(InlineBody {
                head: Some(head),
                body: ask.body().to_string().into_bytes(),
            })),
            model: ask.model.clone(),
            tenant: ask.tenant.clone(),
            inference_pool: ask.pool.clone(),
            ..PickRequest::default()
        };
        match self.picker.pick(request).await {
            Ok(picked) => Some(picked.into_inner()),
            Err(status) => {
                assert_ne!(status.code(), Code::Internal, "{status}");
                None
            }
        }
    }

    async fn observe(&mut self, pick_id: &str, event: Event) {
        let told = ObserveRequest { pick_id: pick_id.into(), event: Some(event) };
        self.picker.observe(told).await.unwrap();
    }
}

/// So many tokens that no other request begins with.
pub fn tokens(from: u32, count: u32) -> Vec<u32> {
    (0..count).map(|at| 10 + (from * 101 + at * 13) % 400).collect()
}
