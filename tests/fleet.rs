//! The Fleet service and endpoint discovery on a real socket, as `kinfctl` and proxies use them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{process::Stdio, sync::Arc, time::Duration};

use envoy_types::pb::envoy::service::{
    discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient,
};
use futures::StreamExt;
use kinference::{
    cache::CacheIndex,
    config::{Profile, Topology},
    fleet::{Availability, KvSource, Registry, Worker, WorkerSet},
    load::LoadTable,
    observe::Metrics,
    roster::Roster,
    serve::{
        eds::Endpoints,
        fleet::Fleet,
        proto::{
            ListWorkersRequest, WatchWorkersRequest, fleet_client::FleetClient,
            watch_workers_response::Update,
        },
    },
    types::WorkerId,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::Command,
    task::JoinSet,
    time::timeout,
};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{
    Code,
    transport::{Certificate, Channel, Identity, Server, ServerTlsConfig},
};

const DEADLINE: Duration = Duration::from_secs(20);

fn workers(ids: &[u64]) -> Vec<Worker> {
    let set = Arc::new(WorkerSet {
        name: "set".into(),
        profile: Arc::new(Profile::default()),
        kv_block_size: 16,
        render_url: None,
    });
    let worker = |id: &u64| Worker {
        id: WorkerId(*id),
        name: format!("w{id}").into(),
        set: set.clone(),
        model_name: "m".into(),
        kv: KvSource::Unknown,
        metrics_url: None,
        http_url: None,
        endpoint: format!("10.0.0.1:{id}").into(),
        topology: Topology { availability_zone: Some("z".into()), ..Topology::default() },
        availability: Availability::Ready,
    };
    ids.iter().map(worker).collect()
}

struct Site {
    registry: Arc<Registry>,
    metrics: Metrics,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    address: String,
}

impl Site {
    async fn start(tls: Option<ServerTlsConfig>) -> Self {
        let (metrics, registry, shutdown) =
            (Metrics::new(), Arc::new(Registry::default()), CancellationToken::new());
        let roster = Roster {
            registry: registry.clone(),
            index: CacheIndex::new(&metrics),
            load: LoadTable::new(Duration::from_secs(1), &metrics),
            mock: false,
        };
        let fleet = Fleet::new(roster, shutdown.clone());
        registry.await_set(&"later".into());
        let endpoints = Endpoints::new(registry.clone(), &metrics, shutdown.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).unwrap();
        }
        let server =
            server.add_service(fleet.clone().into_server()).add_service(endpoints.clone().into_server());
        let (mut tasks, stop) = (JoinSet::new(), shutdown.clone());
        tasks.spawn(async move { match fleet.run().await {} });
        tasks.spawn(async move { match endpoints.run().await {} });
        tasks.spawn(async move {
            let incoming = TcpListenerStream::new(listener);
            server.serve_with_incoming_shutdown(incoming, stop.cancelled_owned()).await.unwrap();
        });
        registry.replace_set("set", workers(&[1, 2])).unwrap();
        Self { registry, metrics, shutdown, tasks, address }
    }

    async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    fn kinfctl(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kinfctl"));
        command.arg("workers");
        if !args.contains(&"--server") {
            command.args(["--server", &self.address]);
        }
        command.args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.unwrap()
}

#[tokio::test]
async fn the_fleet_is_listed_and_watched() {
    let mut site = Site::start(None).await;
    let mut client = FleetClient::new(site.channel().await);
    let listed = client.list_workers(ListWorkersRequest::default()).await.unwrap().into_inner().workers;
    assert_eq!(listed.iter().map(|w| w.worker_id.as_str()).collect::<Vec<_>>(), ["w1", "w2"]);
    assert_eq!(listed[0].topology.as_ref().unwrap().availability_zone, "z");
    let other = ListWorkersRequest { worker_set: "other".into() };
    assert!(client.list_workers(other).await.unwrap().into_inner().workers.is_empty());

    let watch = client.watch_workers(WatchWorkersRequest { worker_set: "set".into() });
    let mut updates = watch.await.unwrap().into_inner();
    let mut next = async || soon(updates.message()).await.unwrap().and_then(|message| message.update);
    let Some(Update::Snapshot(all)) = next().await else { panic!("a snapshot comes first") };
    assert_eq!(all.workers, listed);
    site.registry.replace_set("set", workers(&[2, 3])).unwrap();
    assert_eq!(next().await, Some(Update::Removed("w1".into())));
    assert!(matches!(next().await, Some(Update::Changed(worker)) if worker.worker_id == "w3"));
    // Changes that nobody announces are seen as well.
    site.registry.get(WorkerId(2)).unwrap().status.asleep.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(next().await, Some(Update::Changed(worker)) if worker.asleep));
    // The server does not wait for those who watch.
    site.shutdown.cancel();
    assert_eq!(next().await, None);
    drop(client);
    assert!(soon(site.tasks.join_next()).await.is_some());
}

#[tokio::test]
async fn proxies_are_told_their_clusters() {
    let site = Site::start(None).await;
    let mut client = EndpointDiscoveryServiceClient::new(site.channel().await);
    let asked = vec!["kinference/set".to_owned()];
    let request = DiscoveryRequest { resource_names: asked.clone(), ..Default::default() };
    let requests = futures::stream::iter([request]).chain(futures::stream::pending());
    let mut sotw = client.stream_endpoints(requests).await.unwrap().into_inner();
    let delta = DeltaDiscoveryRequest { resource_names_subscribe: asked, ..Default::default() };
    let requests = futures::stream::iter([delta]).chain(futures::stream::pending());
    let mut delta = client.delta_endpoints(requests).await.unwrap().into_inner();
    for _ in 0..2 {
        let by_sotw = soon(sotw.message()).await.unwrap().unwrap().resources;
        let by_delta = soon(delta.message()).await.unwrap().unwrap().resources;
        assert_eq!(by_sotw[0], by_delta[0].resource.clone().unwrap());
        site.registry.replace_set("set", workers(&[3])).unwrap();
    }
    assert!(site.metrics.render().contains("kinference_eds_responses_total{variant=\"delta\"} 2\n"));
    let other = DiscoveryRequest { type_url: "type.googleapis.com/x".into(), ..Default::default() };
    let mut refused = client.stream_endpoints(futures::stream::iter([other])).await.unwrap().into_inner();
    assert_eq!(soon(refused.message()).await.unwrap_err().code(), Code::InvalidArgument);
    site.shutdown.cancel();
    assert!(soon(sotw.message()).await.unwrap().is_none() && soon(delta.message()).await.unwrap().is_none());
}

#[tokio::test]
async fn kinfctl_shows_workers() {
    let site = Site::start(None).await;
    let output = soon(site.kinfctl(&[]).output()).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[1]["worker_id"]), (2, &"w2".into()));
    assert_eq!(
        (&lines[0]["kv_state"], &lines[0]["topology"]["availability_zone"]),
        (&"unknown".into(), &"z".into())
    );
    let table = soon(site.kinfctl(&["--output", "table"]).output()).await.unwrap().stdout;
    let table = String::from_utf8(table).unwrap();
    assert!(table.starts_with("WORKER  SET  ENDPOINT") && table.lines().count() == 3, "{table}");

    let mut watching = site.kinfctl(&["--watch"]).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut next =
        async || serde_json::from_str::<Value>(&soon(lines.next_line()).await.unwrap().unwrap()).unwrap();
    assert_eq!(next().await["snapshot"][0]["worker_id"], "w1");
    site.registry.replace_set("set", workers(&[2])).unwrap();
    assert_eq!(next().await["removed"], "w1");
    site.shutdown.cancel();
    assert_eq!(soon(watching.wait()).await.unwrap().code(), Some(1));
}

/// A certificate authority's certificate, and what it issued for the server and for a client.
struct Issued {
    ca: String,
    server: (String, String),
    client: (String, String),
}

fn issue() -> Issued {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let leaf = || {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        (params.signed_by(&key, &ca).unwrap().pem(), key.serialize_pem())
    };
    Issued { ca: ca.pem(), server: leaf(), client: leaf() }
}

#[tokio::test]
async fn kinfctl_proves_who_it_is() {
    let issued = issue();
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(&issued.server.0, &issued.server.1))
        .client_ca_root(Certificate::from_pem(&issued.ca));
    let site = Site::start(Some(tls)).await;
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (ca, cert, key) =
        (file("ca", &issued.ca), file("cert", &issued.client.0), file("key", &issued.client.1));
    let run = async |args: &[&str]| soon(site.kinfctl(args).output()).await.unwrap();
    let known = run(&["--ca", &ca, "--cert", &cert, "--key", &key, "--token", "t"]).await;
    assert!(known.status.success(), "{}", String::from_utf8_lossy(&known.stderr));
    for (args, what) in [(&["--ca", &ca][..], "a stranger"), (&[], "no TLS")] {
        let refused = run(args).await;
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("--cert"), "{what}: {said}");
    }
    let said = run(&["--ca", &key]).await.stderr;
    assert!(String::from_utf8_lossy(&said).contains("holds no certificate"));
    let missing = dir.path().join("missing");
    let said = run(&["--ca", missing.to_str().unwrap()]).await.stderr;
    assert!(String::from_utf8_lossy(&said).contains(missing.to_str().unwrap()));
    let said = run(&["--server", "http://10.255.255.1:1", "--token", "t"]).await.stderr;
    assert!(String::from_utf8_lossy(&said).contains("over TLS only"));
}
