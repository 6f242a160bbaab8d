//! One streamed completion: sends it, reads its server-sent events, notes when the first token came.
//! Each request has a connection of its own, as clients of a Kubernetes Service have: for every arm alike.
//! Times are wall time since the request was due.

use std::time::Duration;

use reqwest::Response;
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;
use tokio::time::Instant;

use crate::{
    select::{Pick, Selector},
    stream::{Lines, Usage},
};

/// Why a request failed, by kind.
#[derive(Debug, Error)]
pub enum Failure {
    /// No connection, or one that broke before the answer.
    #[error("connect")]
    Connect,
    /// Nothing in time.
    #[error("timeout")]
    Timeout,
    /// An answer that is no success.
    #[error("status {0}")]
    Status(u16),
    /// A stream that ended before its end.
    #[error("cut")]
    Cut,
    /// An event that can't be read, or an answer without a token.
    #[error("malformed")]
    Malformed,
    /// The selection service named no engine.
    #[error("select")]
    Select,
}

impl From<reqwest::Error> for Failure {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() {
            Self::Timeout
        } else if error.is_body() || error.is_decode() {
            Self::Cut
        } else {
            Self::Connect
        }
    }
}

/// What is asked.
pub struct Ask<'a> {
    /// The prompt.
    pub prompt: &'a str,
    /// The same as the engine sees it; empty unless a selection service is asked.
    pub tokens: &'a [u32],
    /// Length of the answer.
    pub output_tokens: u32,
}

/// What came back.
#[derive(Debug, Default)]
pub struct Answer {
    /// The generated text.
    pub text: String,
    /// Until the first event with a token.
    pub first_token: Duration,
    /// Until the end of the stream.
    pub total: Duration,
    /// What the engine counted.
    pub usage: Usage,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    text: String,
}

/// Where and how to send.
pub struct Client {
    http: reqwest::Client,
    url: String,
    model: String,
    selector: Option<Selector>,
}

impl Client {
    /// A client of the router at `url`, or of the engines that the selection service there names.
    ///
    /// # Errors
    /// No HTTP client can be made here.
    pub fn new(url: &str, model: &str, select: bool, timeout: Duration) -> reqwest::Result<Self> {
        let http = reqwest::Client::builder()
            .http1_only()
            .pool_max_idle_per_host(0)
            .tcp_nodelay(true)
            .timeout(timeout)
            .no_proxy()
            .build()?;
        let url = url.trim_end_matches('/').to_owned();
        let selector = if select { Some(Selector::new(&url, model)?) } else { None };
        Ok(Self { http, url, model: model.to_owned(), selector })
    }

    /// Asks, and reads the answer to its end.
    ///
    /// # Errors
    /// Anything but a whole stream with at least one token.
    pub async fn ask(&self, ask: &Ask<'_>) -> Result<Answer, Failure> {
        let sent = Instant::now();
        let Some(selector) = &self.selector else { return self.send(ask, None, sent).await };
        let pick = selector.pick(ask.tokens, ask.output_tokens).await?;
        let answer = self.send(ask, Some((selector, &pick)), sent).await;
        selector.end(&pick).await;
        answer
    }

    async fn send(
        &self,
        ask: &Ask<'_>,
        pick: Option<(&Selector, &Pick)>,
        sent: Instant,
    ) -> Result<Answer, Failure> {
        let url = pick.map_or(&self.url, |(_, pick)| &pick.endpoint);
        let body = json!({
            "model": self.model,
            "prompt": ask.prompt,
            "max_tokens": ask.output_tokens,
            "ignore_eos": true,
            "temperature": 0.0,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        let mut response = self.http.post(format!("{url}/v1/completions")).json(&body).send().await?;
        if !response.status().is_success() {
            return Err(Failure::Status(response.status().as_u16()));
        }
        let mut reader = Reader::default();
        let mut told = false;
        while let Some(chunk) = next(&mut response).await? {
            reader.read(&chunk, sent)?;
            if let (false, Some(_), Some((selector, pick))) = (told, reader.first_token, pick) {
                told = true;
                selector.first_token(pick).await;
            }
        }
        reader.end(sent)
    }
}

async fn next(response: &mut Response) -> Result<Option<bytes::Bytes>, Failure> {
    response.chunk().await.map_err(|error| if error.is_timeout() { Failure::Timeout } else { Failure::Cut })
}

/// An answer so far.
#[derive(Default)]
struct Reader {
    lines: Lines,
    text: String,
    first_token: Option<Duration>,
    usage: Usage,
    done: bool,
}

impl Reader {
    fn read(&mut self, chunk: &[u8], sent: Instant) -> Result<(), Failure> {
        for line in self.lines.push(chunk) {
            let Some(data) = line.strip_prefix("data:") else { continue };
            if data.trim() == "[DONE]" {
                self.done = true;
                continue;
            }
            let event: Event = serde_json::from_str(data).map_err(|_| Failure::Malformed)?;
            for choice in event.choices.into_iter().filter(|choice| !choice.text.is_empty()) {
                self.first_token.get_or_insert_with(|| sent.elapsed());
                self.text += &choice.text;
            }
            if let Some(usage) = event.usage {
                self.usage = usage;
            }
        }
        Ok(())
    }

    fn end(self, sent: Instant) -> Result<Answer, Failure> {
        if !self.done {
            return Err(Failure::Cut);
        }
        let first_token = self.first_token.ok_or(Failure::Malformed)?;
        Ok(Answer { text: self.text, first_token, total: sent.elapsed(), usage: self.usage })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"text\":\"\"}]}\n\n\
        data: {\"choices\":[{\"text\":\" one\"}]}\n\n\
        data: {\"choices\":[{\"text\":\" two\"}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n\
        data: [DONE]\n\n";

    fn answer(stream: &str, size: usize) -> Result<Answer, Failure> {
        let sent = Instant::now();
        let mut reader = Reader::default();
        for chunk in stream.as_bytes().chunks(size) {
            reader.read(chunk, sent)?;
        }
        reader.end(sent)
    }

    proptest! {
        #[test]
        fn an_answer_does_not_depend_on_chunks(size in 1_usize..400) {
            let answer = answer(STREAM, size).unwrap();
            prop_assert_eq!(answer.text, " one two");
            prop_assert_eq!((answer.usage.prompt_tokens, answer.usage.cached_tokens()), (9, 4));
        }
    }

    #[test]
    fn an_event_without_text_is_no_first_token() {
        let mut reader = Reader::default();
        let (first, rest) = STREAM.split_at(STREAM.find("data: {\"choices\":[{\"text\":\" one").unwrap());
        reader.read(first.as_bytes(), Instant::now()).unwrap();
        assert!(reader.first_token.is_none());
        reader.read(rest.as_bytes(), Instant::now()).unwrap();
        assert!(reader.first_token.is_some());
    }

    #[test]
    fn what_is_no_whole_answer_is_a_failure_of_its_kind() {
        let kind = |stream: &str| answer(stream, 7).unwrap_err().to_string();
        assert_eq!(kind(STREAM.strip_suffix("data: [DONE]\n\n").unwrap()), "cut");
        assert_eq!(kind("data: {\"choices\":[]}\n\ndata: [DONE]\n\n"), "malformed");
        assert_eq!(kind("data: {\"choices\"\n\n"), "malformed");
    }
}
