//! A router that only chooses: Dynamo's selection service. It names an engine, the client sends, and tells it of
//! the first token and of the end. The tokens are made beforehand: that time is not counted against it.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::json;

use crate::client::Failure;

/// A choice, held until its request ends.
#[derive(Debug, Deserialize)]
pub struct Pick {
    /// The engine's URL.
    pub endpoint: String,
    selection_id: String,
}

/// The service, asked over connections that are kept.
pub struct Selector {
    http: reqwest::Client,
    url: String,
    model: String,
    next: AtomicU64,
}

impl Selector {
    /// The service at `url`.
    ///
    /// # Errors
    /// No HTTP client can be made here.
    pub fn new(url: &str, model: &str) -> reqwest::Result<Self> {
        let http = reqwest::Client::builder().http1_only().tcp_nodelay(true).no_proxy().build()?;
        Ok(Self { http, url: url.to_owned(), model: model.to_owned(), next: AtomicU64::new(0) })
    }

    /// Asks which engine is to serve, and reserves its load there.
    ///
    /// # Errors
    /// The service answers anything but an engine.
    pub async fn pick(&self, tokens: &[u32], output_tokens: u32) -> Result<Pick, Failure> {
        let body = json!({
            "selection_id": format!("bench-{}", self.next.fetch_add(1, Ordering::Relaxed)),
            "model_name": self.model,
            "token_ids": tokens,
            "expected_output_tokens": output_tokens,
        });
        let answer = self.http.post(format!("{}/select_and_reserve", self.url)).json(&body).send().await;
        let answer = answer.and_then(reqwest::Response::error_for_status).map_err(|_| Failure::Select)?;
        answer.json().await.map_err(|_| Failure::Select)
    }

    /// The prompt has been worked off.
    pub async fn first_token(&self, pick: &Pick) {
        let url = format!("{}/reservations/{}/prefill_complete", self.url, pick.selection_id);
        // What it does not hear costs it precision, not the request.
        let _ = self.http.post(url).send().await;
    }

    /// The request has ended, however.
    pub async fn end(&self, pick: &Pick) {
        let _ = self.http.delete(format!("{}/reservations/{}", self.url, pick.selection_id)).send().await;
    }
}
