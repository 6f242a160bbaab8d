//! TLS of the gRPC listener: a certificate from files or made at the start, taken over anew when files change.
//!
//! Invariant: what is in force is always whole, because certificate, key and CAs are swapped together; a
//! connection keeps what it began with.

mod incoming; // connections, accepted and secured
mod material; // PEM files in, one TLS configuration out
mod preface; // the first bytes of a connection

use std::{path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use prometheus::IntCounterVec;
use rustls::ServerConfig;

use crate::{
    config::{TlsConfig, TlsIdentity},
    files::FromFiles,
    observe::Metrics,
};
use material::{Material, OwnCertificate};

pub(super) use incoming::{plain, secured};
pub use material::{TlsError, TlsErrors};

/// What connections are secured with. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    current: Arc<ArcSwap<ServerConfig>>,
    client_certificates: bool,
    handshakes: IntCounterVec,
}

/// Where [`Tls`] comes from, to be followed.
pub struct TlsFiles {
    config: TlsConfig,
    own: Option<OwnCertificate>,
    applied: Material,
    tls: Tls,
    reloads: IntCounterVec,
}

impl Tls {
    /// What `[tls]` says, with the files to follow; `None`: plaintext. Call once: it registers metrics.
    ///
    /// # Errors
    /// Everything that is wrong with the files.
    pub async fn load(config: &TlsConfig, metrics: &Metrics) -> Result<Option<(Self, TlsFiles)>, TlsErrors> {
        let own = match config.identity() {
            None => return Ok(None),
            Some(TlsIdentity::SelfSigned) => Some(OwnCertificate::new()?),
            Some(TlsIdentity::Files { .. }) => None,
        };
        let applied = Material::read(config, own.as_ref()).await?;
        let handshakes = metrics.counters_from_zero(
            "kinference_tls_handshakes_total",
            "TLS handshakes of the gRPC listener, by how they ended.",
            ("outcome", &["done", "failed", "timeout"]),
        );
        let reloads = metrics.counters_from_zero(
            "kinference_tls_reloads_total",
            "Changed TLS files that were taken over, and those that could not be used.",
            ("outcome", &["applied", "refused"]),
        );
        let tls = Self {
            current: Arc::new(ArcSwap::from_pointee(applied.server_config(config)?)),
            client_certificates: config.client_ca_file.is_some(),
            handshakes,
        };
        let files = TlsFiles { config: config.clone(), own, applied, tls: tls.clone(), reloads };
        Ok(Some((tls, files)))
    }

    /// Whether callers need a certificate.
    pub const fn client_certificates(&self) -> bool {
        self.client_certificates
    }
}

/// Reads the files of `[tls]` as [`Tls::load`] would, without keeping anything.
///
/// # Errors
/// Everything that is wrong with them.
pub async fn check(config: &TlsConfig) -> Result<(), TlsErrors> {
    Tls::load(config, &Metrics::new()).await.map(|_| ())
}

impl FromFiles for TlsFiles {
    fn files(&self) -> Vec<PathBuf> {
        let TlsConfig { cert_file, key_file, client_ca_file, .. } = &self.config;
        [cert_file, key_file, client_ca_file].into_iter().flatten().cloned().collect()
    }

    async fn load(&mut self) -> Result<(), String> {
        let said = |errors: TlsErrors| errors.to_string();
        let material = Material::read(&self.config, self.own.as_ref()).await.map_err(said)?;
        if material == self.applied {
            return Ok(());
        }
        self.tls.current.store(Arc::new(material.server_config(&self.config).map_err(said)?));
        self.applied = material;
        self.reloads.with_label_values(&["applied"]).inc();
        tracing::info!("changed TLS files are in force for new connections");
        Ok(())
    }

    fn refused(&self, why: &str) {
        self.reloads.with_label_values(&["refused"]).inc();
        tracing::error!(error = why, "changed TLS files can't be used: what was in force stays");
    }
}
