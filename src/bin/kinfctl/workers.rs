//! `kinfctl workers`: the workers that a running server knows, once or as they change.
//!
//! Output: one JSON object a worker or an update on stdout; with `--table`, columns for people.

use anyhow::{anyhow, bail};
use kinference::serve::proto::{
    KvState, ListWorkersRequest, Load, Topology, WatchWorkersRequest, Worker, fleet_client::FleetClient,
    watch_workers_response::Update,
};
use serde_json::{Value, json};

use crate::{
    client::{Connection, Server},
    output::{print, text},
};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: Server,
    /// Only of this worker set.
    #[arg(long, value_name = "NAME", default_value = "")]
    worker_set: String,
    /// Goes on with every change, until interrupted.
    #[arg(long, conflicts_with = "table")]
    watch: bool,
    /// Columns instead of JSON.
    #[arg(long)]
    table: bool,
}

/// Runs the command.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let client = FleetClient::new(args.server.connect().await?);
    if args.watch { watch(client, args.worker_set).await } else { list(client, args).await }
}

async fn list(mut client: FleetClient<Connection>, args: Args) -> anyhow::Result<()> {
    let request = ListWorkersRequest { worker_set: args.worker_set };
    let workers = client.list_workers(request).await.map_err(refused)?.into_inner().workers;
    if args.table {
        return table(&workers).iter().try_for_each(|line| text(line));
    }
    workers.iter().try_for_each(|worker| print(&object(worker)))
}

async fn watch(mut client: FleetClient<Connection>, worker_set: String) -> anyhow::Result<()> {
    let request = WatchWorkersRequest { worker_set };
    let mut updates = client.watch_workers(request).await.map_err(refused)?.into_inner();
    while let Some(message) = updates.message().await.map_err(|status| anyhow!(said(&status)))? {
        match message.update {
            Some(Update::Snapshot(all)) => {
                print(&json!({ "snapshot": all.workers.iter().map(object).collect::<Vec<_>>() }))?;
            }
            Some(Update::Changed(worker)) => print(&json!({ "changed": object(&worker) }))?,
            Some(Update::Removed(name)) => print(&json!({ "removed": name }))?,
            None => {}
        }
    }
    bail!("the server ended the watch")
}

fn said(status: &tonic::Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

/// What the server answered, or why there is no answer. A server that speaks TLS to a caller that does not, or wants a
/// certificate and sees none, only shows in that the connection breaks off.
fn refused(status: tonic::Status) -> anyhow::Error {
    let told = said(&status);
    // What comes of a server has come with headers.
    match status.metadata().is_empty() {
        true => anyhow!(
            "{told}: the connection broke off. Does the server speak TLS (https://, --ca), does it ask for a certificate (--cert)?"
        ),
        false => anyhow!(told),
    }
}

/// A worker with the names of the API; what is not known is left out.
fn object(worker: &Worker) -> Value {
    let mut out = json!({
        "worker_id": worker.worker_id,
        "worker_num": worker.worker_num,
        "worker_set": worker.worker_set,
        "endpoint": worker.endpoint,
        "models": worker.models,
        "engine": worker.engine,
        "kv_state": kv_state(worker),
        "evicted_because": worker.evicted_because,
        "asleep": worker.asleep,
        "terminating": worker.terminating,
        "failing": worker.failing,
        "load": worker.load.as_ref().map(load),
        "gpu_blocks": worker.gpu_blocks,
        "lower_blocks": worker.lower_blocks,
        "topology": worker.topology.as_ref().map(topology),
    });
    drop_unknown(&mut out);
    out
}

fn load(load: &Load) -> Value {
    json!({
        "in_flight": load.in_flight,
        "without_token": load.without_token,
        "backlog_ms": load.backlog_ms,
        "queue": load.queue,
        "running": load.running,
        "kv_usage": load.kv_usage,
    })
}

fn topology(place: &Topology) -> Value {
    let mut out = json!({
        "pod_name": place.pod_name,
        "namespace": place.namespace,
        "node_name": place.node_name,
        "node_ip": place.node_ip,
        "pod_ip": place.pod_ip,
        "availability_zone": place.availability_zone,
        "instance_type": place.instance_type,
    });
    drop_unknown(&mut out);
    out
}

fn drop_unknown(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null() && value != "");
    }
}

/// `synced`, `live_only`, ...
fn kv_state(worker: &Worker) -> String {
    let name = KvState::try_from(worker.kv_state).unwrap_or_default().as_str_name();
    name.trim_start_matches("KV_STATE_").to_lowercase()
}

fn table(workers: &[Worker]) -> Vec<String> {
    let heads =
        ["WORKER", "SET", "ENDPOINT", "STATE", "KV EVENTS", "IN FLIGHT", "QUEUE", "RUNNING", "KV USE"];
    let mut rows = vec![heads.map(str::to_owned)];
    rows.extend(workers.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..heads.len()).map(width).collect();
    let line = |row: &[String; 9]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn row(worker: &Worker) -> [String; 9] {
    let load = worker.load.unwrap_or_default();
    let states = [
        (!worker.evicted_because.is_empty(), "evicted"),
        (worker.terminating, "terminating"),
        (worker.asleep, "asleep"),
        (worker.failing, "failing"),
    ];
    let state = states.iter().find(|(holds, _)| *holds).map_or("up", |(_, name)| name);
    [
        worker.worker_id.clone(),
        worker.worker_set.clone(),
        worker.endpoint.clone(),
        state.to_owned(),
        kv_state(worker),
        load.in_flight.to_string(),
        load.queue.to_string(),
        load.running.to_string(),
        format!("{:.0}%", load.kv_usage * 100.0),
    ]
}
