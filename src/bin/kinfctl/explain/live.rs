//! A request over the workers of a running server, by the policies of files.
//!
//! What a worker has cached of the prompt is not known here: it counts as nothing.

use kinference::serve::proto::{ListWorkersRequest, Worker, fleet_client::FleetClient};

use crate::{
    cases::Ran,
    client::Server,
    findings::{Finding, Severity},
    scenario::{Asked, Case, Fleet, Setting, Then, WorkerState, World, decide},
    workers::is_up,
};

/// The request, and the policies that decide over it.
#[derive(clap::Args)]
pub struct Request {
    /// The model that it asks for.
    #[arg(long, requires = "pool", requires = "policies")]
    model: Option<String>,
    /// The pool that it comes to: `name`, or `namespace/name`.
    #[arg(long, requires = "model")]
    pool: Option<String>,
    /// Files of resources, directories or patterns; may be given several times.
    #[arg(long, value_name = "FILE", requires = "model")]
    policies: Vec<String>,
    /// The server's configuration file, TOML, whose profiles predict. Default: the defaults of a profile, and blocks of 16 tokens.
    #[arg(long, value_name = "FILE", requires = "model")]
    config: Option<String>,
    /// Whose request it is. Default: nobody's.
    #[arg(long, requires = "model")]
    tenant: Option<String>,
    /// A tag of it; may be given several times. Default: none.
    #[arg(long, requires = "model")]
    tag: Vec<String>,
    /// Tokens of its prompt. Default: not known, and nothing is predicted of its prefill.
    #[arg(long, value_name = "TOKENS", requires = "model")]
    prompt_tokens: Option<u32>,
}

impl Request {
    /// Whether there is one.
    pub fn is_given(&self) -> bool {
        self.model.is_some()
    }

    fn asked(&self) -> Asked {
        Asked {
            model: self.model.clone().unwrap_or_default(),
            tenant: self.tenant.clone(),
            tags: self.tag.clone(),
            prompt_tokens: self.prompt_tokens,
            ..Asked::default()
        }
    }
}

/// Explains what becomes of it; hands back what keeps it from being decided over.
pub async fn explain(
    request: &Request,
    server: &Server,
    then: &mut dyn FnMut(&Ran<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Finding>> {
    let setting = Setting {
        policies: request.policies.clone(),
        configuration: request.config.clone(),
        pool: request.pool.clone().unwrap_or_default(),
    };
    let world = match World::of("", &setting) {
        Ok(world) => world,
        Err(found) => return Ok(found.into_iter().filter(|one| one.severity == Severity::Error).collect()),
    };
    let mut client = FleetClient::new(server.connect().await?);
    let listed = client.list_workers(ListWorkersRequest::default()).await;
    let listed = listed.map_err(|status| server.refused(&status))?.into_inner();
    let fleet: Fleet =
        listed.workers.into_iter().map(|worker| (worker.worker_id.clone(), state(worker))).collect();
    let case = Case {
        it: "a request over the workers of a running server".to_owned(),
        given: Fleet::new(),
        when: request.asked(),
        then: Then::default(),
    };
    let decision = decide(&world, &fleet, &case.when);
    then(&Ran { place: server.shown(), case: &case, world: &world, decision })?;
    Ok(Vec::new())
}

fn state(worker: Worker) -> WorkerState {
    let load = worker.load.unwrap_or_default();
    WorkerState {
        ready: Some(is_up(&worker)),
        worker_set: Some(worker.worker_set),
        models: Some(worker.models),
        queue: Some(load.queue),
        running: Some(load.running),
        kv_cache_use_percent: Some(load.kv_usage * 100.0),
        in_flight: Some(load.in_flight),
        without_token: Some(load.without_token),
        backlog_ms: Some(load.backlog_ms),
        ..WorkerState::default()
    }
}
