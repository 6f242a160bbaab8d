//! One streamed chat completion: sends it, reads its server-sent events, notes when the first token came.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use reqwest::{
    Response,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::stream::{Lines, Usage};

/// A message of a chat.
#[derive(Clone, Debug, Serialize)]
pub struct Message {
    role: &'static str,
    content: String,
}

impl Message {
    /// What the operator says.
    pub fn system(text: &str) -> Self {
        Self { role: "system", content: text.to_owned() }
    }

    /// What the user says.
    pub fn user(text: String) -> Self {
        Self { role: "user", content: text }
    }

    /// What the model said.
    pub fn assistant(text: String) -> Self {
        Self { role: "assistant", content: text }
    }
}

/// What came back. Times are wall time since the request was sent.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The generated text.
    pub text: String,
    /// Until the first generated text.
    pub first_token: Option<Duration>,
    /// Until the end of the stream.
    pub total: Duration,
    /// What the engine counted.
    pub usage: Usage,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    messages: &'a [Message],
    max_tokens: u32,
    ignore_eos: bool,
    temperature: f32,
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
}

/// Where and how to send.
pub struct Client {
    http: reqwest::Client,
    url: String,
    model: String,
}

impl Client {
    /// A client of the server at `url`; each header is `name: value`.
    ///
    /// # Errors
    /// A malformed header.
    pub fn new(url: &str, model: &str, headers: &[String], timeout: Duration) -> Result<Self> {
        let mut map = HeaderMap::new();
        for header in headers {
            let (name, value) =
                header.split_once(':').with_context(|| format!("header {header:?}: no colon"))?;
            map.append(HeaderName::try_from(name.trim())?, HeaderValue::try_from(value.trim())?);
        }
        let http = reqwest::Client::builder()
            .http1_only()
            .default_headers(map)
            .timeout(timeout)
            .no_proxy()
            .build()?;
        let url = format!("{}/v1/chat/completions", url.trim_end_matches('/'));
        Ok(Self { http, url, model: model.to_owned() })
    }

    /// Asks, and reads the answer to its end.
    ///
    /// # Errors
    /// Anything but a whole stream.
    pub async fn ask(&self, messages: &[Message], max_tokens: u32) -> Result<Answer> {
        let stream_options = StreamOptions { include_usage: true };
        let request = Request {
            model: &self.model,
            messages,
            max_tokens,
            ignore_eos: true,
            temperature: 0.0,
            stream: true,
            stream_options,
        };
        let sent = Instant::now();
        let response = self.http.post(&self.url).json(&request).send().await?;
        let status = response.status();
        if !status.is_success() {
            bail!("{status}: {}", response.text().await.unwrap_or_default());
        }
        read(response, sent).await
    }
}

async fn read(mut response: Response, sent: Instant) -> Result<Answer> {
    let mut answer = Answer::default();
    let mut lines = Lines::default();
    let mut done = false;
    while let Some(chunk) = response.chunk().await? {
        for line in lines.push(&chunk) {
            let Some(data) = line.strip_prefix("data:") else { continue };
            if data.trim() == "[DONE]" {
                done = true;
                continue;
            }
            let event: Event = serde_json::from_str(data).map_err(|error| anyhow!("{error} in {data}"))?;
            if let Some(usage) = event.usage {
                answer.usage = usage;
            }
            for text in event.choices.into_iter().filter_map(|choice| choice.delta.content) {
                if !text.is_empty() {
                    answer.first_token.get_or_insert_with(|| sent.elapsed());
                    answer.text.push_str(&text);
                }
            }
        }
    }
    answer.total = sent.elapsed();
    if !done {
        bail!("the stream ended before [DONE]");
    }
    Ok(answer)
}
