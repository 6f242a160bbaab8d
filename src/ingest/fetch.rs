//! One HTTP GET of an engine under a time limit and a size limit: the whole body or an error.
//!
//! Invariant: never holds more than the limit plus one chunk, whatever the engine sends or claims.

use std::time::Duration;

use reqwest::Client;

/// What a GET may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// From dialling to the last byte.
    pub(super) timeout: Duration,
    /// Of the body.
    pub(super) bytes: usize,
}

/// Why there is no body.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// It took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// Dialling, sending or reading failed.
    #[error("{}", root(.0))]
    Transport(#[from] reqwest::Error),
    /// An answer without success.
    #[error("status {0}")]
    Status(u16),
    /// The body is larger than the limit.
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
}

/// What lies beneath an error: by itself it says only that sending failed, and the URL once more.
fn root(error: &reqwest::Error) -> String {
    let mut root: &dyn std::error::Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

/// GETs `url`.
///
/// # Errors
/// As [`FetchError`] says; a status other than 2xx is one.
pub(super) async fn get(client: &Client, url: &str, limits: Limits) -> Result<Vec<u8>, FetchError> {
    tokio::time::timeout(limits.timeout, read(client, url, limits.bytes))
        .await
        .unwrap_or(Err(FetchError::Timeout(limits.timeout)))
}

async fn read(client: &Client, url: &str, most: usize) -> Result<Vec<u8>, FetchError> {
    let mut response = client.get(url).send().await?;
    if !response.status().is_success() {
        return Err(FetchError::Status(response.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > most {
            return Err(FetchError::TooLarge(most));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
