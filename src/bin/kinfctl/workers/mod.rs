//! `kinfctl workers`: the workers that a running server knows, once or as they change.

mod show;

pub use show::{is_up, kv_use, state, why};

use anyhow::bail;
use kinference::serve::proto::{
    ListWorkersRequest, WatchWorkersRequest, Worker, fleet_client::FleetClient,
    watch_workers_response::Update,
};
use serde_json::json;

use crate::{
    client::{Connection, Server},
    output::{Cell, Output, Stream, list, object},
};
use show::{CHANGES, WORKERS};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    output: Output,
    /// Only of this worker set. Default: all.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    worker_set: String,
    /// Go on with every change, until interrupted.
    #[arg(long)]
    watch: bool,
}

/// Runs the command.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let mut client = FleetClient::new(args.server.connect().await?);
    if args.watch {
        return watch(client, args).await;
    }
    let request = ListWorkersRequest { worker_set: args.worker_set };
    let listed = client.list_workers(request).await.map_err(|status| args.server.refused(&status))?;
    list(args.output.format(), &listed.into_inner().workers, &WORKERS)
}

async fn watch(mut client: FleetClient<Connection>, args: Args) -> anyhow::Result<()> {
    let request = WatchWorkersRequest { worker_set: args.worker_set };
    let updates = client.watch_workers(request).await;
    let mut updates = updates.map_err(|status| args.server.refused(&status))?.into_inner();
    let format = args.output.format();
    let mut lines = Stream::new(format, CHANGES);
    let row = |change: &str, worker: &Worker| {
        let cells = (WORKERS.row)(worker);
        [Cell::from(change)].into_iter().chain(cells).collect()
    };
    while let Some(message) = updates.message().await.map_err(|status| args.server.ended(&status))? {
        match message.update {
            Some(Update::Snapshot(all)) => {
                let objects: Vec<_> = all.workers.iter().map(WORKERS.object).collect();
                if !lines.is_table() {
                    object(format, &json!({ "snapshot": objects }))?;
                    continue;
                }
                for worker in &all.workers {
                    lines.record(&json!(null), || row("there", worker))?;
                }
            }
            Some(Update::Changed(worker)) => {
                let fields = json!({ "changed": (WORKERS.object)(&worker) });
                lines.record(&fields, || row("changed", &worker))?;
            }
            Some(Update::Removed(name)) => {
                lines.record(&json!({ "removed": name }), || vec!["removed".into(), name.clone().into()])?;
            }
            None => {}
        }
    }
    bail!("the server ended the watch")
}
