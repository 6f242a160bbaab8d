//! `[traces]` (own addition): whether decisions are traced, and who receives the spans.

use std::time::Duration;

use super::{
    address::base_url,
    keys::Keys,
    kind::{Choice, FRACTION, MILLIS, text},
};

/// `[traces]`
#[derive(Clone, Debug, PartialEq)]
pub struct TracesConfig {
    /// URL of an OTLP receiver; unset: nothing is traced.
    pub endpoint: Option<String>,
    /// How it is spoken to.
    pub protocol: OtlpProtocol,
    /// Share of the requests, 0 to 1, that come without a trace of their own.
    pub sample: f64,
    /// `service.name`
    pub service_name: String,
    /// How long sending a batch may take.
    pub timeout: Duration,
}

/// How a receiver is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// gRPC.
    Grpc,
    /// Protobuf over HTTP.
    Http,
}

const PROTOCOLS: Choice<OtlpProtocol> = Choice(&[("grpc", OtlpProtocol::Grpc), ("http", OtlpProtocol::Http)]);

impl Default for TracesConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            protocol: OtlpProtocol::Grpc,
            sample: 1.0,
            service_name: "kinference".into(),
            timeout: Duration::from_secs(10),
        }
    }
}

impl TracesConfig {
    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        let sure = keys.optional("endpoint", base_url(), &mut self.endpoint);
        keys.key("protocol", PROTOCOLS, &mut self.protocol);
        keys.key("sample", FRACTION, &mut self.sample);
        keys.key("service_name", text(), &mut self.service_name);
        keys.key("timeout_ms", MILLIS, &mut self.timeout);
        // What is printed as it is in force has all keys: defaults are no mistake.
        if sure && self.endpoint.is_none() && *self != Self::default() {
            keys.idle(&["protocol", "sample", "service_name", "timeout_ms"], "without `endpoint`");
        }
    }
}
