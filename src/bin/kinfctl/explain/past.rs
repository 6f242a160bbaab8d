//! A request that a running server has decided over, by its id: the server remembers the latest ones.

use anyhow::{Context, bail, ensure};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    admin::{unanswered, under},
    output::{self, Format},
};

use super::story::{Story, lines};

/// Which request, and who decided.
#[derive(clap::Args)]
pub struct Past {
    /// Its id: the `x-request-id` that the gateway sends on and logs. With `explain_headers` the answer has it in `x-kinference-request-id`. Of several requests with one id, all are explained, the latest first.
    #[arg(long, value_name = "ID", allow_hyphen_values = true, conflicts_with = "model")]
    pub request_id: Option<String>,
    /// The server's admin listener.
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:9003",
        requires = "request_id",
        conflicts_with_all = ["files", "model"]
    )]
    admin: Url,
}

/// What the server answers.
#[derive(Deserialize)]
struct Answer {
    decisions: Vec<Value>,
    kept: usize,
    oldest: Option<String>,
}

/// Explains all decisions over requests of that id.
pub async fn explain(id: &str, request: &Past, format: Format) -> anyhow::Result<()> {
    let Answer { decisions, kept, oldest } = ask(id, &request.admin).await?;
    if decisions.is_empty() {
        let Some(oldest) = oldest else { bail!("the server has not decided over any request yet") };
        bail!(
            "no request {id:?} is remembered: the server's memory of {kept} decisions reaches back to {oldest}"
        );
    }
    for decision in decisions {
        if format != Format::Table {
            output::object(format, &decision)?;
            continue;
        }
        let story: Story =
            serde_json::from_value(decision).context("the server answers in an unknown form")?;
        lines(&story, output::colours()).iter().try_for_each(|line| output::text(line))?;
        output::text("")?;
    }
    Ok(())
}

async fn ask(id: &str, admin: &Url) -> anyhow::Result<Answer> {
    ensure!(!id.is_empty(), "--request-id is empty");
    ensure!(matches!(admin.scheme(), "http" | "https"), "--admin {admin}: neither http:// nor https://");
    let url = under(admin, &["api", "decisions", id]);
    let failed = |error| unanswered(admin.as_str(), error);
    let answer = reqwest::get(url).await.map_err(failed)?;
    let status = answer.status();
    let body = answer.bytes().await.map_err(failed)?;
    ensure!(matches!(status, StatusCode::OK | StatusCode::NOT_FOUND), "{admin} answers with {status}");
    serde_json::from_slice(&body)
        .with_context(|| format!("{admin} is no admin listener of a server that remembers decisions"))
}
