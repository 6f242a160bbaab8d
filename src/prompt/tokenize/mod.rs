//! Prompts to tokens: by the engine, in this process, or by both, compared.
//!
//! Invariant: what comes out is what the engine will see, or an error. Whatever the error, the request is
//! routed on load alone, and where it is the request's fault the engine itself tells the client so.

mod answer;
mod compare;
mod engine;
mod local;
mod metrics;
mod models;

use std::{sync::Arc, time::Duration};

pub use local::LocalModel;

use compare::Comparisons;
use engine::Engines;
use metrics::{Means, TokenizeMetrics};
use models::Models;

use super::request::{ParsedRequest, Prompts};
use crate::{
    config::{TokenizeConfig, TokenizeMode},
    observe::Metrics,
    types::PromptTokens,
};

/// How and for which model a prompt is tokenized.
#[derive(Clone, Debug)]
pub struct TokenizeTarget {
    /// By whom.
    pub mode: TokenizeMode,
    /// The base model, which names the tokenizer's directory.
    pub model: Arc<str>,
    /// The LoRA adapter that the request names, if it is one.
    pub lora_name: Option<Arc<str>>,
    /// An engine that serves it: its HTTP base.
    pub http_url: Option<String>,
    /// Where to render instead of the engine.
    pub render_url: Option<String>,
}

/// Why a prompt has no tokens. The texts are for logs: they may name addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenizeError {
    /// The engine refuses the request, and will tell the client so itself.
    #[error("the engine refuses the request with status {status}: {message}")]
    Rejected {
        /// HTTP status.
        status: u16,
        /// What it said.
        message: String,
    },
    /// The engine did not answer, or not in a way that is understood.
    #[error("the engine does not tokenize: {0}")]
    Engine(String),
    /// There is no tokenizer for the model, or not yet.
    #[error("no tokenizer for `{model}`: {reason}")]
    NoTokenizer {
        /// The model.
        model: Arc<str>,
        /// Why not.
        reason: Arc<str>,
    },
    /// A request whose tokens can't be known here.
    #[error("can't be tokenized here: {0}")]
    Unsupported(String),
}

impl TokenizeError {
    /// The metric label.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Rejected { .. } => "rejected",
            Self::Engine(_) => "engine",
            Self::NoTokenizer { .. } => "no_tokenizer",
            Self::Unsupported(_) => "unsupported",
        }
    }
}

/// Everything that tokenizes.
pub struct Tokenizers {
    engines: Arc<Engines>,
    models: Models,
    comparisons: Comparisons,
    metrics: Arc<TokenizeMetrics>,
}

/// A client for the engines' HTTP endpoints. Engines are never reached through a proxy of the environment.
///
/// # Errors
/// When the platform's TLS can't be set up.
pub fn http_client(config: &TokenizeConfig) -> reqwest::Result<reqwest::Client> {
    let client = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(2));
    match config.pool_max_idle_per_host {
        Some(idle) => client.pool_max_idle_per_host(idle),
        None => client,
    }
    .build()
}

impl Tokenizers {
    /// Nothing is loaded or asked yet.
    pub fn new(config: TokenizeConfig, client: reqwest::Client, metrics: &Metrics) -> Arc<Self> {
        let metrics = Arc::new(TokenizeMetrics::new(metrics));
        let engines = Arc::new(Engines::new(client));
        Arc::new(Self {
            models: Models::new(config),
            comparisons: Comparisons::new(Arc::clone(&engines), Arc::clone(&metrics)),
            engines,
            metrics,
        })
    }

    /// The tokens of a request as the target's engines see them; of several prompts, those of the longest.
    ///
    /// Cancel-safe: a tokenizer that is being loaded goes on loading.
    ///
    /// # Errors
    /// See [`TokenizeError`]; the caller then picks on load alone.
    pub async fn tokenize(
        &self,
        request: &ParsedRequest,
        target: &TokenizeTarget,
    ) -> Result<PromptTokens, TokenizeError> {
        let started = tokio::time::Instant::now();
        let (means, result) = self.by_mode(request, target).await;
        self.metrics.record(means, started.elapsed(), result.as_ref().err());
        let tokens = result?;
        Ok(PromptTokens {
            lora_name: target.lora_name.clone(),
            cache_salt: request.cache_salt.clone(),
            credit_until: if request.prompt_embeds { Some(0) } else { tokens.credit_until },
            ..tokens
        })
    }

    async fn by_mode(
        &self,
        request: &ParsedRequest,
        target: &TokenizeTarget,
    ) -> (Means, Result<PromptTokens, TokenizeError>) {
        if request.previous_response_id.is_some() {
            let why = "it goes on from a stored response".to_owned();
            return (Means::Given, Err(TokenizeError::Unsupported(why)));
        }
        if let Some(tokens) = given(request) {
            return (Means::Given, Ok(tokens));
        }
        match target.mode {
            TokenizeMode::Render => self.engines.tokenize(request, target).await,
            TokenizeMode::Local => (Means::Local, self.local(request, target).await),
            TokenizeMode::Compare => {
                let result = self.local(request, target).await;
                if let Ok(tokens) = &result {
                    self.comparisons.check(request, target, tokens);
                }
                (Means::Local, result)
            }
        }
    }

    async fn local(
        &self,
        request: &ParsedRequest,
        target: &TokenizeTarget,
    ) -> Result<PromptTokens, TokenizeError> {
        let model = self.models.get(&target.model).await?;
        self.models.run(model, request.clone()).await
    }

    /// Loads a model's tokenizer ahead of its first request, unless the configuration says not to. One that
    /// does not load is tried again by the requests that need it.
    pub async fn warm(&self, model: &str) {
        if self.models.warmup() {
            // How it ends is logged where it is loaded.
            let _ = self.models.get(&Arc::from(model)).await;
        }
    }
}

impl ParsedRequest {
    /// Tokens of its prompt where it comes as tokens: known without anybody who tokenizes.
    pub fn given_tokens(&self) -> Option<usize> {
        given(self).map(|tokens| tokens.ids.len())
    }
}

/// The longest of prompts that are token ids already.
fn given(request: &ParsedRequest) -> Option<PromptTokens> {
    let Prompts::TokenIds(lists) = &request.prompts else { return None };
    let mut tokens = PromptTokens { ids: longest(lists.iter().cloned())?, ..PromptTokens::default() };
    local::cut(request, &mut tokens);
    Some(tokens)
}

/// The longest list; of equally long ones the first.
fn longest(lists: impl DoubleEndedIterator<Item = Arc<[u32]>>) -> Option<Arc<[u32]>> {
    lists.rev().max_by_key(|ids| ids.len())
}

#[cfg(test)]
mod tests;
