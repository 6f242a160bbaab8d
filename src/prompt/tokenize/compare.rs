//! Local ids checked against the engine's, off the request path: a few at a time, the rest is skipped.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use tokio::{sync::Semaphore, task::JoinSet};

use super::{
    TokenizeTarget,
    engine::Engines,
    metrics::{Comparison, TokenizeMetrics},
};
use crate::{prompt::request::ParsedRequest, types::PromptTokens};

/// Checks running at once; each holds one request's body.
const AT_ONCE: usize = 4;

pub(super) struct Comparisons {
    inner: Arc<Inner>,
    permits: Arc<Semaphore>,
    running: Mutex<JoinSet<()>>,
}

struct Inner {
    engines: Arc<Engines>,
    metrics: Arc<TokenizeMetrics>,
    logged: AtomicBool,
}

impl Comparisons {
    pub(super) fn new(engines: Arc<Engines>, metrics: Arc<TokenizeMetrics>) -> Self {
        Self {
            inner: Arc::new(Inner { engines, metrics, logged: AtomicBool::new(false) }),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
            running: Mutex::default(),
        }
    }

    /// Starts a check, unless enough are running.
    pub(super) fn check(&self, request: &ParsedRequest, target: &TokenizeTarget, local: &PromptTokens) {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.inner.metrics.compared(Comparison::Skipped);
            return;
        };
        let (inner, request, target) = (Arc::clone(&self.inner), request.clone(), target.clone());
        let local = Arc::clone(&local.ids);
        let mut running = self.running.lock();
        while running.try_join_next().is_some() {}
        running.spawn(async move {
            let _permit = permit;
            inner.compare(&request, &target, &local).await;
        });
    }
}

impl Inner {
    async fn compare(&self, request: &ParsedRequest, target: &TokenizeTarget, local: &[u32]) {
        let outcome = match self.engines.tokenize(request, target).await.1 {
            Ok(tokens) if *tokens.ids == *local => Comparison::Equal,
            Ok(tokens) => {
                self.log_first(request, target, (local, &tokens.ids));
                Comparison::Different
            }
            Err(error) => {
                tracing::debug!(model = &*target.model, %error, "the engine gave no tokens to compare with");
                Comparison::Failed
            }
        };
        self.metrics.compared(outcome);
    }

    /// Where the ids part, never the text: prompts are the client's.
    fn log_first(&self, request: &ParsedRequest, target: &TokenizeTarget, (local, engine): (&[u32], &[u32])) {
        if !self.logged.swap(true, Ordering::Relaxed) {
            let equal = local.iter().zip(engine).take_while(|(a, b)| a == b).count();
            tracing::warn!(
                model = &*target.model,
                api = request.api.path(),
                local_tokens = local.len(),
                engine_tokens = engine.len(),
                first_difference = equal,
                "local tokens differ from the engine's; further differences are only counted"
            );
        }
    }
}
