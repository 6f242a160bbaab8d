//! A gateway in small: sends one request where Kinference says, over its native API, and tells it how that went.
//!
//! `pick --kinference http://127.0.0.1:9002 --path /v1/chat/completions < body.json` prints the answer as it comes.

#![expect(clippy::print_stderr, reason = "a command-line program: what happened goes to stderr")]

mod proxy;
mod usage;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use kinference::serve::proto::picker_client::PickerClient;
use tokio::io::AsyncReadExt;

use proxy::{Call, Gateway};

#[derive(Parser)]
struct Args {
    /// Kinference's gRPC address.
    #[arg(long, default_value = "http://127.0.0.1:9002")]
    kinference: String,
    /// Path of the request; its JSON body is read from stdin.
    #[arg(long, default_value = "/v1/chat/completions")]
    path: String,
    /// Route by this model, whatever the body names.
    #[arg(long)]
    model: Option<String>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mut body = Vec::new();
    tokio::io::stdin().read_to_end(&mut body).await.context("reading the body from stdin")?;
    let picker = PickerClient::connect(args.kinference).await.context("reaching Kinference")?;
    let mut gateway = Gateway::new(picker);
    let call = Call { path: args.path, model: args.model.unwrap_or_default(), body };
    let done = gateway.proxy(call, &mut tokio::io::stdout()).await?;
    eprintln!("{} by {} ({}), usage {:?}", done.status, done.worker, done.endpoint, done.usage);
    Ok(if done.status < 400 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
