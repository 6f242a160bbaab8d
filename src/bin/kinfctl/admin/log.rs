//! `kinfctl log`: what a running server logs, shown or changed.

use kinference::admin::Logged;
use reqwest::Method;

use super::Admin;
use crate::output;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// What is to be logged from now on, as the variable RUST_LOG has it: levels and `target=level`, separated by
    /// commas. A level alone is for our own lines; of others is logged what is by default. Default: as it is.
    filter: Option<String>,
    #[command(flatten)]
    admin: Admin,
}

/// Runs the command: prints what is logged then.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let path = ["api", "log"];
    let request = match args.filter {
        Some(filter) => args.admin.request(Method::PUT, &path)?.json(&Logged { filter }),
        None => args.admin.request(Method::GET, &path)?,
    };
    let now: Logged = args.admin.answer(request).await?;
    output::text(&now.filter)
}
