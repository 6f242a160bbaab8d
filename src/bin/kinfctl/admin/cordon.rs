//! `kinfctl cordon` and `kinfctl uncordon`: take a worker out of new picks, and put it back.

use kinference::admin::Cordon;
use reqwest::Method;

use super::Admin;
use crate::output;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The worker, as `kinfctl workers` names it.
    worker: String,
    #[command(flatten)]
    admin: Admin,
}

/// Runs the command: the first takes the worker out, the second puts it back.
pub async fn run(args: Args, cordon: bool) -> anyhow::Result<()> {
    let method = if cordon { Method::PUT } else { Method::DELETE };
    let request = args.admin.request(method, &["api", "workers", &args.worker, "cordon"])?;
    let now: Cordon = args.admin.answer(request).await?;
    output::text(&match now.cordoned {
        true => format!("{}: cordoned", now.worker),
        false => format!("{}: not cordoned", now.worker),
    })
}
