//! Where decisions are told, as the configuration says: memory always, the log and the traces where they are on.

use std::{sync::Arc, time::Duration};

use anyhow::Context;

use crate::{
    config::{Config, DecisionLogConfig, DecisionOutput, OtlpProtocol, TracesConfig},
    observe::{
        DecisionLog, Decisions, LogOptions, LogTarget, LogWriter, Metrics, SpanExporter, TraceOptions,
        TraceProtocol, Traces,
    },
};

use super::tasks::{Tasks, never};

/// How long what was decided last may take to be written and sent.
const FLUSH: Duration = Duration::from_secs(2);

/// What writes decisions and sends spans, to be run.
#[derive(Default)]
pub(super) struct Telling {
    log: Option<LogWriter>,
    spans: Option<SpanExporter>,
}

/// Builds all of it, for the replica of that name.
///
/// # Errors
/// An endpoint of traces that can't be used.
pub(super) fn build(
    config: &Config,
    (metrics, client, replica): (&Metrics, &reqwest::Client, &Arc<str>),
) -> anyhow::Result<(Arc<Decisions>, Telling)> {
    let (log, writer) =
        log_options(&config.decision_log).map(|options| DecisionLog::new(options, metrics)).unzip();
    let traces = trace_options(&config.traces, replica.clone())
        .map(|options| Traces::new(options, client.clone(), metrics))
        .transpose()
        .context("traces")?;
    let (traces, exporter) = traces.unzip();
    Ok((Arc::new(Decisions::new(log, traces)), Telling { log: writer, spans: exporter }))
}

/// Why the decision log can't be written where the configuration has it, as far as this process may.
pub fn unwritable_log(config: &Config) -> Option<String> {
    let why = log_options(&config.decision_log)?.target.probe().err()?;
    let file = config.decision_log.file.as_deref()?;
    Some(format!(
        "`decision_log.file` is {:?}, which can't be written now: {why}; decisions are not logged until it can",
        file.display().to_string()
    ))
}

impl Telling {
    /// Runs it.
    pub(super) fn spawn(self, tasks: &mut Tasks) {
        if let Some(log) = self.log {
            tasks.spawn(async move { ("decision log", log.run().await.map_err(Into::into)) });
        }
        if let Some(spans) = self.spans {
            tasks.spawn(async move { ("traces", never(spans.run().await)) });
        }
    }
}

/// Has what was decided last written and sent, within a bound.
pub(super) async fn flush(decisions: &Decisions) {
    if !decisions.flush(FLUSH).await {
        tracing::warn!(after = ?FLUSH, "what was decided last is not all in the decision log and the traces");
    }
}

fn log_options(config: &DecisionLogConfig) -> Option<LogOptions> {
    let target = match (config.output, &config.file) {
        (DecisionOutput::Stdout, _) => LogTarget::Stdout,
        (DecisionOutput::File, Some(file)) => LogTarget::File {
            path: file.clone(),
            max_bytes: config.max_size_mb * 1_000_000,
            max_files: config.max_files,
        },
        (DecisionOutput::Off | DecisionOutput::File, _) => return None,
    };
    Some(LogOptions { target, sample: config.sample })
}

fn trace_options(config: &TracesConfig, instance: Arc<str>) -> Option<TraceOptions> {
    Some(TraceOptions {
        endpoint: config.endpoint.clone()?,
        protocol: match config.protocol {
            OtlpProtocol::Grpc => TraceProtocol::Grpc,
            OtlpProtocol::Http => TraceProtocol::Http,
        },
        sample: config.sample,
        service: config.service_name.clone(),
        instance,
        timeout: config.timeout,
        seed: rand::random(),
    })
}
