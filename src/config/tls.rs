//! `[tls]` (own addition): the certificate of the gRPC listener, and who may call it.
//!
//! Invariant: of a checked configuration, the two files are set together, and never beside `self_signed`.

use std::path::{Path, PathBuf};

use super::{
    keys::Keys,
    kind::{Bool, FilePath, Kind},
    report::{Problem, Report},
};

/// `[tls]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// PEM: the server's certificate, then its intermediates.
    pub cert_file: Option<PathBuf>,
    /// PEM: the certificate's private key.
    pub key_file: Option<PathBuf>,
    /// PEM: who may sign the certificates of callers; unset: callers need none.
    pub client_ca_file: Option<PathBuf>,
    /// Make a certificate at the start, for callers that verify none.
    pub self_signed: bool,
}

/// Where the server's certificate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsIdentity<'c> {
    /// From files.
    Files {
        /// The certificate chain.
        cert: &'c Path,
        /// Its private key.
        key: &'c Path,
    },
    /// Made at the start.
    SelfSigned,
}

impl TlsConfig {
    /// Where the certificate comes from; `None`: the listener is plaintext.
    pub fn identity(&self) -> Option<TlsIdentity<'_>> {
        match (&self.cert_file, &self.key_file) {
            _ if self.self_signed => Some(TlsIdentity::SelfSigned),
            (Some(cert), Some(key)) => Some(TlsIdentity::Files { cert, key }),
            _ => None,
        }
    }

    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        keys.optional("cert_file", FilePath, &mut self.cert_file);
        keys.optional("key_file", FilePath, &mut self.key_file);
        keys.optional("client_ca_file", FilePath, &mut self.client_ca_file);
        keys.key("self_signed", Bool, &mut self.self_signed);
    }

    pub(super) fn resolve(&mut self, dir: &Path) {
        for file in [&mut self.cert_file, &mut self.key_file, &mut self.client_ca_file] {
            *file = file.take().map(|file| dir.join(file));
        }
    }

    /// Reports what does not go together.
    pub(super) fn check(&self, report: &mut Report) {
        if !report.clean(|path| path == "tls" || path.starts_with("tls.")) {
            return;
        }
        let (cert, key) = (self.cert_file.as_ref(), self.key_file.as_ref());
        let mut missing = |name: &str, accepted: &str| {
            report.push(format!("tls.{name}"), Problem::Missing { accepted: accepted.into() });
        };
        match (self.self_signed, cert, key) {
            (true, None, None) => {}
            (true, ..) => {
                let accepted = "false, or left out, beside `cert_file` and `key_file`";
                report.reject("tls.self_signed", &Bool.show(&true), accepted);
            }
            (false, Some(_), None) => missing("key_file", "the private key of `cert_file`"),
            (false, None, Some(_)) => missing("cert_file", "the certificate of `key_file`"),
            (false, None, None) if self.client_ca_file.is_some() => {
                missing("cert_file", "a certificate beside `client_ca_file`, or `self_signed = true`");
            }
            (false, ..) => {}
        }
    }
}
