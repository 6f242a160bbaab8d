//! From PEM files to one TLS configuration: read, parsed and fitted together, with every mistake by its key and path.
//!
//! Invariant: nothing of a private key gets into an error.

use std::{fmt, path::Path, path::PathBuf, sync::Arc};

use rustls::{
    InconsistentKeys, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    server::{NoClientAuth, WebPkiClientVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::{
    config::{TlsConfig, TlsIdentity},
    files,
};

/// Largest file, in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// Who a made certificate is for; nobody is expected to verify it.
const OWN_NAMES: [&str; 2] = ["kinference", "localhost"];

/// What is wrong with one setting.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be used.
    #[error("`tls.{key}` is \"{}\", which {wrong}; it must be {accepted}", path.display())]
    File {
        /// The key in `[tls]`.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        wrong: String,
        /// What would do.
        accepted: &'static str,
    },
    /// No certificate could be made.
    #[error("`tls.self_signed`: no certificate could be made: {0}")]
    SelfSigned(#[from] rcgen::Error),
    /// The library refuses.
    #[error("`tls` can't be set up: {0}")]
    Library(#[from] rustls::Error),
}

/// Everything that is wrong: at least one.
#[derive(Debug)]
pub struct TlsErrors(Vec<TlsError>);

impl std::error::Error for TlsErrors {}

impl fmt::Display for TlsErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[tls]: {} error{}", self.0.len(), if self.0.len() == 1 { "" } else { "s" })?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl<E: Into<TlsError>> From<E> for TlsErrors {
    fn from(error: E) -> Self {
        Self(vec![error.into()])
    }
}

/// One of the files: its key in `[tls]`, where it is, and what it must be.
#[derive(Clone, Copy)]
struct Pem<'c> {
    key: &'static str,
    path: &'c Path,
    accepted: &'static str,
}

impl<'c> Pem<'c> {
    const fn cert(path: &'c Path) -> Self {
        Self { key: "cert_file", path, accepted: "PEM with the server's certificate, then its intermediates" }
    }

    const fn key(path: &'c Path) -> Self {
        let accepted = "PEM with one private key, not encrypted (PKCS#8, PKCS#1 or SEC1)";
        Self { key: "key_file", path, accepted }
    }

    const fn client_ca(path: &'c Path) -> Self {
        let accepted = "PEM with the certificates of those who may sign callers' certificates";
        Self { key: "client_ca_file", path, accepted }
    }

    fn wrong(self, wrong: impl Into<String>) -> TlsError {
        TlsError::File { key: self.key, path: self.path.into(), wrong: wrong.into(), accepted: self.accepted }
    }

    async fn content(self) -> Result<Vec<u8>, TlsError> {
        let read = files::read(self.path, MAX_BYTES).await;
        let content = read.map_err(|error| self.wrong(format!("cannot be read: {error}")))?;
        match content.is_empty() {
            true => Err(self.wrong("is empty")),
            false => Ok(content),
        }
    }

    async fn certificates(self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        self.items(&self.content().await?, "certificate")
    }

    async fn private_key(self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let content = self.content().await?;
        if [&b"BEGIN ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"].iter().any(|m| has(&content, m)) {
            return Err(self.wrong("holds an encrypted private key"));
        }
        let mut keys = self.items(&content, "private key")?;
        match (keys.pop(), keys.is_empty()) {
            (Some(key), true) => Ok(key),
            _ => Err(self.wrong("holds several private keys")),
        }
    }

    /// At least one.
    fn items<T: PemObject>(self, content: &[u8], what: &str) -> Result<Vec<T>, TlsError> {
        let items = T::pem_slice_iter(content).collect::<Result<Vec<_>, _>>();
        // The library's words may quote the file.
        let items = items.map_err(|_| self.wrong("is broken PEM"))?;
        match items.is_empty() {
            true if has(content, b"-----BEGIN ") => Err(self.wrong(format!("holds no {what}"))),
            true => Err(self.wrong("is not PEM")),
            false => Ok(items),
        }
    }
}

fn has(content: &[u8], part: &[u8]) -> bool {
    content.windows(part.len()).any(|window| window == part)
}

/// A certificate that was made at the start, with its key.
pub(super) struct OwnCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl OwnCertificate {
    pub(super) fn new() -> Result<Self, TlsError> {
        let made = rcgen::generate_simple_self_signed(OWN_NAMES.map(String::from))?;
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        Ok(Self { chain: vec![made.cert.der().clone()], key })
    }
}

/// What the files say.
#[derive(PartialEq, Eq)]
pub(super) struct Material {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// Empty: callers need no certificate.
    client_ca: Vec<CertificateDer<'static>>,
}

impl Material {
    /// Reads the files of `config`; `own` takes the place of certificate and key where there are none.
    pub(super) async fn read(config: &TlsConfig, own: Option<&OwnCertificate>) -> Result<Self, TlsErrors> {
        let mut errors = Vec::new();
        let (chain, key) = match (config.identity(), own) {
            (Some(TlsIdentity::Files { cert, key }), _) => {
                (Pem::cert(cert).certificates().await, Pem::key(key).private_key().await)
            }
            (_, Some(own)) => (Ok(own.chain.clone()), Ok(own.key.clone_key())),
            (_, None) => (Err(no_certificate()), Err(no_certificate())),
        };
        let client_ca = match &config.client_ca_file {
            Some(path) => Pem::client_ca(path).certificates().await,
            None => Ok(Vec::new()),
        };
        let chain = chain.map_err(|error| errors.push(error));
        let key = key.map_err(|error| errors.push(error));
        let client_ca = client_ca.map_err(|error| errors.push(error));
        match (chain, key, client_ca) {
            (Ok(chain), Ok(key), Ok(client_ca)) => Ok(Self { chain, key, client_ca }),
            _ => Err(TlsErrors(errors)),
        }
    }

    /// Fits the parts together.
    pub(super) fn server_config(&self, config: &TlsConfig) -> Result<ServerConfig, TlsErrors> {
        let provider = Arc::new(ring::default_provider());
        let (identity, roots) = (self.identity(config, &provider), self.roots(config));
        let (identity, roots) = match (identity, roots) {
            (Ok(identity), Ok(roots)) => (identity, roots),
            (identity, roots) => {
                return Err(TlsErrors(identity.err().into_iter().chain(roots.err()).collect()));
            }
        };
        let verifier = match roots.is_empty() {
            true => Arc::new(NoClientAuth),
            false => WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
                .build()
                .map_err(|error| rustls::Error::General(error.to_string()))?,
        };
        let mut made = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
        made.alpn_protocols = vec![b"h2".to_vec()];
        Ok(made)
    }

    fn identity(&self, config: &TlsConfig, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let Some(TlsIdentity::Files { cert, key }) = config.identity() else {
            return Ok(CertifiedKey::from_der(self.chain.clone(), self.key.clone_key(), provider)?);
        };
        let signer = provider.key_provider.load_private_key(self.key.clone_key());
        let signer =
            signer.map_err(|_| Pem::key(key).wrong("holds a key of a kind that is not supported"))?;
        let identity = CertifiedKey::new(self.chain.clone(), signer);
        match identity.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(identity),
            Err(rustls::Error::InconsistentKeys(_)) => {
                let wrong = format!("is not the key of the first certificate in \"{}\"", cert.display());
                Err(Pem::key(key).wrong(wrong))
            }
            Err(error) => Err(Pem::cert(cert).wrong(unusable(&error))),
        }
    }

    fn roots(&self, config: &TlsConfig) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in &self.client_ca {
            roots.add(certificate.clone()).map_err(|error| {
                let path = config.client_ca_file.as_deref().unwrap_or(Path::new(""));
                Pem::client_ca(path).wrong(unusable(&error))
            })?;
        }
        Ok(roots)
    }
}

fn unusable(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(why) => format!("holds a certificate that can't be used: {why}"),
        other => format!("holds a certificate that can't be used: {other}"),
    }
}

fn no_certificate() -> TlsError {
    rustls::Error::NoCertificatesPresented.into()
}
