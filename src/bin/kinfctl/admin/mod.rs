//! What is changed on a running server, over its admin listener. It takes changes from its own machine only.

pub mod cordon;
pub mod log;

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use kinference::admin::{CHANGE_HEADER, Refused};
use reqwest::{Client, Method, RequestBuilder, Url};
use serde::de::DeserializeOwned;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Where the admin listener is.
#[derive(clap::Args)]
pub struct Admin {
    /// Its admin listener: `http://host:port` or `host:port`. On the machine itself, or a port that is forwarded to it.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9003")]
    admin: String,
}

impl Admin {
    /// What the server answers, or why it does not do it.
    ///
    /// # Errors
    /// It is not reached, or says no.
    pub async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> anyhow::Result<T> {
        let answer = request.send().await.map_err(|error| unanswered(&self.admin, error))?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(|error| unanswered(&self.admin, error))?;
        if status.is_success() {
            let told = || format!("--admin {}: the answer can't be read", self.admin);
            return serde_json::from_slice(&body).with_context(told);
        }
        match serde_json::from_slice::<Refused>(&body) {
            Ok(refused) => bail!(refused.error),
            Err(_) => {
                bail!("--admin {} answers {status}: is it the admin listener of a Kinference?", self.admin)
            }
        }
    }

    /// A request for that path, of these segments.
    ///
    /// # Errors
    /// The address does not do.
    pub fn request(&self, method: Method, path: &[&str]) -> anyhow::Result<RequestBuilder> {
        let told = || format!("--admin {}", self.admin);
        let text = match self.admin.split_once("://") {
            None => format!("http://{}", self.admin),
            Some(("http", _)) => self.admin.clone(),
            Some(_) => bail!("{}: the admin listener speaks http:// only", told()),
        };
        let url = under(&text.parse().with_context(told)?, path);
        // A proxy of the environment is no way to this machine.
        let client = Client::builder().no_proxy().timeout(TIMEOUT).build()?;
        Ok(client.request(method, url).header(CHANGE_HEADER, "1"))
    }
}

/// The address of a path of these segments, whatever is in them: of a URL, `.` and `..` would be steps.
pub fn under(url: &Url, path: &[&str]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~');
    let byte = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    let segment = |segment: &&str| format!("/{}", segment.bytes().map(byte).collect::<String>());
    format!("{}{}", url.as_str().trim_end_matches('/'), path.iter().map(segment).collect::<String>())
}

/// Why nobody answers at `--admin` as an admin listener does.
pub fn unanswered(admin: &str, error: reqwest::Error) -> anyhow::Error {
    let what = match error.is_connect() || error.is_timeout() {
        true => "is not reached. It is `admin_listen` of a server's configuration, or a port forwarded to it",
        false => {
            "answers, but not in HTTP. Is this where the server listens for gRPC? `admin_listen` is meant"
        }
    };
    anyhow!("--admin {admin} {what}: {:#}", anyhow::Error::from(error.without_url()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_segment_is_a_step_or_several() {
        let url = "http://127.0.0.1:9003/".parse().unwrap();
        let of = |id| under(&url, &["api", "decisions", id]);
        for (id, want) in
            [("..", "%2E%2E"), ("a/b c", "a%2Fb%20c"), ("\u{e9}\n", "%C3%A9%0A"), ("r-1_~", "r-1_~")]
        {
            assert_eq!(of(id), format!("http://127.0.0.1:9003/api/decisions/{want}"));
        }
    }
}
