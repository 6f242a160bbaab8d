//! The connection to a running server: its address, TLS, and who we are. Shared by all commands that ask one.
//!
//! Invariant: a token leaves this machine over TLS only.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use http::Uri;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

/// How tonic begins to tell of an answer over HTTP that is none of gRPC.
const NO_GRPC: &str = "grpc-status header missing";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the server is, and how to speak with it.
#[derive(clap::Args)]
pub struct Server {
    /// Address: `host:port`, `http://host:port`, or `https://host:port` for TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9002")]
    server: String,
    /// PEM file of the certificate authority that signed the server's certificate; means TLS. Default: the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// PEM file of our own certificate, for servers that ask for one. Default: none.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// PEM file of the private key of `--cert`.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Bearer token, for gateways in front of the server that ask for one. Sent over TLS, or to this machine. Default: none.
    #[arg(long)]
    token: Option<String>,
}

/// A connection that says who we are.
pub type Connection = InterceptedService<Channel, Bearer>;

/// Adds the token, if there is one, to every call.
#[derive(Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

impl Server {
    /// Its address, as it was given.
    pub fn shown(&self) -> String {
        self.server.clone()
    }

    /// Connects.
    ///
    /// # Errors
    /// Flags that contradict each other, files that can't be used, a server that can't be reached.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let address = self.address()?;
        let tls = address.scheme_str() == Some("https");
        let local = matches!(address.host(), Some("localhost" | "[::1]"))
            || address.host().is_some_and(|host| host.starts_with("127."));
        if self.token.is_some() && !tls && !local {
            bail!("a token is sent over TLS only: use https:// or --ca");
        }
        let mut endpoint = Endpoint::from(address).connect_timeout(CONNECT_TIMEOUT);
        if tls {
            endpoint = endpoint.tls_config(self.tls()?).context("the TLS files can't be used")?;
        }
        let channel = endpoint.connect().await.with_context(|| {
            format!(
                "can't connect to {} (--server: where a server listens for gRPC, or a port forwarded to it)",
                self.server
            )
        })?;
        let token = self.token.as_ref().map(|token| format!("Bearer {token}").parse());
        let mut token: Option<MetadataValue<Ascii>> = token.transpose().context("--token")?;
        if let Some(value) = &mut token {
            value.set_sensitive(true);
        }
        Ok(InterceptedService::new(channel, Bearer(token)))
    }

    /// What the server answered, or why there is no answer. A server that speaks TLS to a caller that does not, or wants a
    /// certificate and sees none, only shows in that the connection breaks off.
    pub fn refused(&self, status: &Status) -> anyhow::Error {
        // What comes of a server has come with headers.
        match status.metadata().is_empty() && !is_no_grpc(status) {
            true => anyhow!(
                "{}: {}: the connection broke off. Does the server speak TLS (https://, --ca), does it ask for a certificate (--cert), does it speak gRPC at all?",
                self.server,
                said(status)
            ),
            false => self.ended(status),
        }
    }

    /// What ended an answer that had begun.
    pub fn ended(&self, status: &Status) -> anyhow::Error {
        let (server, told) = (&self.server, said(status));
        match is_no_grpc(status) {
            true => anyhow!(
                "{server} answers, but not in gRPC ({told}): --server is where a server listens for gRPC. Is this its admin listener?"
            ),
            false => anyhow!(told),
        }
    }

    fn address(&self) -> anyhow::Result<Uri> {
        let asked = self.ca.is_some() || self.cert.is_some();
        let text = match self.server.split_once("://") {
            None if asked => format!("https://{}", self.server),
            None => format!("http://{}", self.server),
            Some(("http", _)) if asked => bail!("--ca and --cert need an https:// address"),
            Some(("http" | "https", _)) => self.server.clone(),
            Some(_) => bail!("--server {}: neither http:// nor https://", self.server),
        };
        text.parse().with_context(|| format!("--server {}", self.server))
    }

    fn tls(&self) -> anyhow::Result<ClientTlsConfig> {
        let mut tls = match &self.ca {
            Some(file) => {
                let pem = read(file)?;
                // One without any would be taken for an authority that signed nothing.
                if CertificateDer::pem_slice_iter(&pem).next().is_none_or(|first| first.is_err()) {
                    bail!("{}: holds no certificate in PEM", file.display());
                }
                ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
            }
            None => ClientTlsConfig::new().with_native_roots(),
        };
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        Ok(tls)
    }
}

fn is_no_grpc(status: &Status) -> bool {
    status.message().starts_with(NO_GRPC)
}

/// What a server said.
fn said(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(file).with_context(|| file.display().to_string())
}
