//! Builds every room, binds the ports, wires and supervises the tasks, drains on SIGTERM.
//!
//! Long-lived tasks never return: one that does, or panics, ends the process with its name in the log.

mod decisions;
mod kubernetes;
mod open_files;
mod policies;
mod readiness;
mod services;
mod tasks;
mod workers;

use std::{
    convert::Infallible,
    mem,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, anyhow};
use futures::future::OptionFuture;
use tokio::{
    net::TcpListener,
    runtime::Handle,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    admin::{self, Admin, Dashboard},
    cache::CacheIndex,
    config::{Config, Profile, load_workers},
    enforce,
    fleet::Registry,
    kubernetes::Release,
    load::LoadTable,
    observe::{self, Decisions, LogFilter, Metrics},
    policy::manifests::Remark,
    prompt::{Tokenizers, http_client},
    serve::{self, Tls, tls::TlsFiles},
};

pub use self::decisions::unwritable_log;

use self::{
    decisions::Telling,
    kubernetes::Kubernetes,
    services::Optional,
    tasks::{Tasks, never},
};

/// How long requests in flight may go on after SIGTERM.
const DRAIN: Duration = Duration::from_secs(30);
/// How long `/readyz` says no before new streams are refused, so that proxies notice.
const NOT_READY: Duration = Duration::from_millis(500);

type Task = anyhow::Result<Infallible>;

/// Reads a configuration and validates the files that it names with it; warnings are logged.
///
/// # Errors
/// All that is wrong with any of them, in one report.
pub async fn load(path: &Path) -> anyhow::Result<Config> {
    let (config, mut warnings) = Config::load(path)?;
    let mut wrong = Vec::new();
    match load_workers(&config) {
        Ok((_, more)) => warnings.extend(more),
        Err(errors) => wrong.push(errors.to_string()),
    }
    match enforce::check(&config).await {
        Ok(more) => warnings.extend(more.iter().map(Remark::to_string)),
        Err(errors) => wrong.push(errors.to_string()),
    }
    warnings.extend(unwritable_log(&config).map(|warning| format!("{}: {warning}", path.display())));
    wrong.extend(serve::tls::check(&config.tls).await.err().map(|errors| errors.to_string()));
    anyhow::ensure!(wrong.is_empty(), wrong.join("\n"));
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    Ok(config)
}

/// Runs the server until SIGTERM or SIGINT, then drains it; a second signal ends it at once. `log` is what operators may
/// change.
///
/// # Errors
/// Whatever keeps it from starting or ends it early.
pub async fn run(config: Config, log: LogFilter) -> anyhow::Result<()> {
    open_files::raise();
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let app = App::build(config, log).await?;
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    let running = app.run(shutdown);
    tokio::pin!(running);
    loop {
        tokio::select! {
            done = &mut running => return done,
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        anyhow::ensure!(!stop.is_cancelled(), "a second signal came: requests in flight are cut off");
        stop.cancel();
    }
}

/// The server, built and bound, not yet running.
pub struct App {
    config: Config,
    profiles: Vec<Arc<Profile>>,
    /// Its name among the replicas.
    replica: Arc<str>,
    listener: TcpListener,
    admin_listener: Option<TcpListener>,
    metrics: Metrics,
    registry: Arc<Registry>,
    index: Arc<CacheIndex>,
    load: Arc<LoadTable>,
    tokenizers: Arc<Tokenizers>,
    decisions: Arc<Decisions>,
    telling: Telling,
    client: reqwest::Client,
    tls: Option<(Tls, TlsFiles)>,
    kubernetes: Option<Kubernetes>,
    optional: Optional,
    log: LogFilter,
}

impl App {
    /// Builds the rooms, loads the fleet and binds the ports.
    ///
    /// # Errors
    /// TLS files that can't be used, no Kubernetes credentials where a feature needs them, an address that
    /// can't be bound.
    pub async fn build(config: Config, log: LogFilter) -> anyhow::Result<Self> {
        let metrics = Metrics::new();
        observe::register_process(&metrics, Handle::current().metrics());
        let tls = Tls::load(&config.tls, &metrics).await?;
        let client = http_client(&config.tokenize).context("the HTTP client")?;
        let kubernetes = Kubernetes::build(&config, &metrics).await?;
        let optional = Optional::build(&config, &metrics, kubernetes.as_ref().map(|k| &k.client));
        let replica = services::replica();
        let (decisions, telling) = decisions::build(&config, (&metrics, &client, &replica))?;
        let listener = bind(config.listen).await?;
        let admin_listener = match config.admin_listen {
            Some(addr) => Some(bind(addr).await?),
            None => None,
        };
        Ok(Self {
            registry: Arc::default(),
            decisions,
            telling,
            index: CacheIndex::new(&metrics),
            load: LoadTable::new(config.metrics_poll, &metrics),
            tokenizers: Tokenizers::new(config.tokenize.clone(), client.clone(), &metrics),
            profiles: config.profiles.iter().cloned().map(Arc::new).collect(),
            config,
            replica,
            listener,
            admin_listener,
            metrics,
            client,
            tls,
            kubernetes,
            optional,
            log,
        })
    }

    /// Where gRPC is served.
    ///
    /// # Errors
    /// The socket has no address any more.
    pub fn listen_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Where the admin endpoints are served, if anywhere.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_listener.as_ref().and_then(|l| l.local_addr().ok())
    }

    /// What it registers its metrics with: those of some rooms only once it runs.
    pub const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Runs until `shutdown` is cancelled and what was in flight has ended.
    ///
    /// # Errors
    /// A task that must not end has ended.
    pub async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let draining = Arc::new(AtomicBool::new(false));
        let stop_serving = CancellationToken::new();
        let mut tasks = Tasks::new();
        let (desk, release) = self.spawn_statuses(&mut tasks).unzip();
        self.spawn_discovery(desk.clone(), &mut tasks).await?;
        let pipeline = self.pipeline();
        let policies = self.spawn_policies((desk, &pipeline), &mut tasks).await?;
        let in_force = pipeline.policies().clone();
        let calibrations = pipeline.calibrations().clone();
        self.spawn_upkeep(&mut tasks);
        mem::take(&mut self.telling).spawn(&mut tasks);
        let (ready, is_ready) = watch::channel(false);
        tasks.spawn(readiness::follow(
            ready,
            self.registry.clone(),
            (self.config.mock_mode, draining.clone(), policies.clone()),
        ));
        let tls = self.spawn_tls(&mut tasks);
        self.say_where(tls.as_ref())?;
        let services = self.services(pipeline, &mut tasks, &stop_serving);
        let server = serve::Server { services, ready: is_ready, tls };
        let (roster, mut front, told) = (self.roster(), JoinSet::new(), self.decisions.clone());
        roster.clone().register(&self.metrics);
        front.spawn(server.run(self.listener, stop_serving.clone()));
        if let Some(listener) = self.admin_listener {
            let admin = Admin {
                roster,
                decisions: self.decisions,
                calibrations,
                metrics: self.metrics,
                draining: draining.clone(),
                policies_known: policies.known,
                reaches_providers: policies.reach_providers,
                watches: self.kubernetes.map(|kubernetes| kubernetes.watches),
                log: self.log,
                dashboard: Dashboard {
                    replica: self.replica,
                    max_workers: self.config.dashboard_max_workers as usize,
                    policies: in_force,
                    notices: policies.notices,
                    ..Dashboard::default()
                },
            };
            spawn_admin(listener, Arc::new(admin), &mut tasks);
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            Some(ended) = tasks.join_next() => return Err(unexpected(ended)),
            Some(ended) = front.join_next() => {
                return Err(anyhow!("the gRPC server ended: {ended:?}"));
            }
        }
        tracing::info!("shutting down: not ready, requests in flight go on");
        draining.store(true, Ordering::Relaxed);
        let given_up = OptionFuture::from(release.map(Release::give_up));
        tokio::join!(drain(&stop_serving, &mut front), given_up);
        decisions::flush(&told).await;
        Ok(())
    }

    /// What is in force on the gRPC listener, and who may call there.
    fn say_where(&self, tls: Option<&Tls>) -> std::io::Result<()> {
        let grpc = self.listen_addr()?;
        let admin = self.admin_addr().map(|addr| addr.to_string());
        let anybody = !tls.is_some_and(Tls::client_certificates);
        if anybody && !grpc.ip().is_loopback() {
            tracing::warn!(
                %grpc,
                "whoever reaches this listener may call it: it is for a trusted network, unless `tls.client_ca_file` is set"
            );
        }
        tracing::info!(%grpc, admin = admin.as_deref().unwrap_or("off"), tls = tls.is_some(), mtls = !anybody, "listening");
        Ok(())
    }
}

fn spawn_admin(listener: TcpListener, admin: Arc<Admin>, tasks: &mut Tasks) {
    let followed = admin.clone();
    tasks.spawn(async move { ("dashboard", never(admin::follow(followed).await)) });
    tasks.spawn(async move { ("admin", admin::run(listener, admin).await.map_err(Into::into)) });
}

async fn drain<T: 'static>(stop_serving: &CancellationToken, front: &mut JoinSet<T>) {
    tokio::time::sleep(NOT_READY).await;
    stop_serving.cancel();
    if tokio::time::timeout(DRAIN, front.join_next()).await.is_err() {
        tracing::warn!(after = ?DRAIN, "requests were still in flight at the end of the drain");
    }
}

async fn bind(addr: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(addr).await.with_context(|| format!("can't listen on {addr}"))
}

fn unexpected(ended: Result<(&'static str, Task), tokio::task::JoinError>) -> anyhow::Error {
    match ended {
        Ok((name, Err(error))) => error.context(format!("task `{name}` ended")),
        Ok((_, Ok(never))) => match never {},
        Err(error) => anyhow!(error).context("a task panicked"),
    }
}
