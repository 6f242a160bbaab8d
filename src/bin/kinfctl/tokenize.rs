//! `kinfctl tokenize`: prints the token ids of a request as the router's local tokenizer sees them.

use std::{io::Read, path::PathBuf};

use anyhow::Context;
use bytes::Bytes;
use kinference::{
    prompt::{LocalModel, ParsedRequest},
    types::Api,
};
use serde_json::json;

use crate::output::{Column, Output, Shape, list};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Directory with the model's tokenizer.json and chat template.
    #[arg(long)]
    model_dir: PathBuf,
    /// Path that the request goes to, `/v1/...`. Default: told from the request's fields.
    #[arg(long)]
    path: Option<String>,
    #[command(flatten)]
    output: Output,
    /// JSON body of the request; `-` reads standard input.
    request: PathBuf,
}

/// Runs the command.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let mut body = Vec::new();
    if args.request.as_os_str() == "-" {
        std::io::stdin().read_to_end(&mut body).context("standard input")?;
    } else {
        body = std::fs::read(&args.request).with_context(|| args.request.display().to_string())?;
    }
    let api = match &args.path {
        Some(path) => api_of_path(path).with_context(|| format!("{path}: no path of an inference API"))?,
        None => api_of_body(&body),
    };
    let request = ParsedRequest::read(api, &Bytes::from(body))?;
    let model = LocalModel::open(&args.model_dir).map_err(anyhow::Error::msg)?;
    let tokens = model.tokenize(&request)?;
    list(args.output.format(), &[tokens.ids.to_vec()], &TOKENS)
}

/// One record: a request.
const TOKENS: Shape<Vec<u32>> = Shape {
    columns: &[Column::right("COUNT"), Column::left("TOKENS")],
    row: |ids| {
        let words: Vec<_> = ids.iter().map(u32::to_string).collect();
        vec![ids.len().into(), words.join(" ").into()]
    },
    object: |ids| json!({ "tokens": ids, "count": ids.len() }),
};

/// An API's path, with or without what render appends to it.
fn api_of_path(path: &str) -> Option<Api> {
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix("/render").unwrap_or(path);
    Api::ALL.into_iter().find(|api| api.path() == path)
}

/// By the field that holds the prompt. Anthropic's messages look like a chat: they need their path.
fn api_of_body(body: &[u8]) -> Api {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    if body.get("messages").is_some() {
        Api::ChatCompletions
    } else if body.get("input").is_some() {
        Api::Responses
    } else {
        Api::Completions
    }
}
