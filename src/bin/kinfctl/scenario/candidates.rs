//! The candidates of a request over a described fleet, each with its prediction, which is `route::predict`'s.

use kinference::{
    policy::eval::{self, Pool, PoolState},
    route::{Cost, assume_worst, predict, predict_provider},
    types::{self, Api, Overlap, Prediction, ProviderTarget, Target, WorkerId, WorkerTarget},
};

use super::{
    fleet::{Fleet, WorkerState},
    test_file::Asked,
    world::World,
};

/// Something that may serve the request.
#[derive(Debug)]
pub struct Candidate {
    /// The worker's or provider's name; of a worker that may serve several models, with the model.
    pub name: String,
    /// Where it is.
    pub source: String,
    /// The model there.
    pub model: String,
    /// Its prediction.
    pub prediction: Prediction,
    pub(super) is_worker: bool,
    pub(super) own_in_flight: u32,
}

/// The state of the ready workers behind a model.
pub(super) fn state(pool: &Pool, model: usize, fleet: &Fleet) -> PoolState {
    let behind = |worker: &&WorkerState| {
        let mut backends = pool.models[model].backends.iter().filter(|backend| backend.provider.is_none());
        worker.is_ready()
            && backends.any(|backend| {
                worker.worker_set.as_deref() == Some(&backend.source) && worker.serves(&backend.model)
            })
    };
    let loads: Vec<_> = fleet.values().filter(behind).map(WorkerState::load).collect();
    PoolState::of(loads.into_iter())
}

/// For people, and for the rules; side by side.
pub(super) fn candidates(
    world: &World,
    fleet: &Fleet,
    (model, asked): (usize, &Asked),
) -> (Vec<Candidate>, Vec<eval::Candidate>) {
    let backends = &world.pool.models[model].backends;
    let api = asked.path.as_deref().and_then(|path| Api::ALL.into_iter().find(|api| api.path() == path));
    let api = api.unwrap_or(Api::ChatCompletions);
    let providers: Vec<_> = world.pool.models[model].providers().map(|(index, _)| index).collect();
    let (mut shown, mut known) = (Vec::new(), Vec::new());
    for (index, backend) in backends.iter().enumerate() {
        let twice = backends.iter().filter(|other| other.source == backend.source).count() > 1;
        let name = |of: &str| if twice { format!("{of}/{}", backend.model) } else { of.to_owned() };
        let of_backend = |name: String, prediction: Prediction, own_in_flight: u32| Candidate {
            name,
            source: backend.source.to_string(),
            model: backend.model.to_string(),
            prediction,
            is_worker: backend.provider.is_none(),
            own_in_flight,
        };
        if let Some(provider) = &backend.provider {
            if provider.serves(api) && providers.contains(&index) {
                let prediction = predict_provider(provider.expected_ttft_ms.into());
                let ttft_ms = prediction.ttft_ms;
                shown.push(of_backend(name(&backend.source), prediction, 0));
                known.push(eval::Candidate { backend: index, ttft_ms, worker: None });
            }
            continue;
        }
        let in_set = fleet.iter().filter(|(_, worker)| worker.worker_set.as_deref() == Some(&backend.source));
        for (worker_name, worker) in
            in_set.filter(|(_, worker)| worker.is_ready() && worker.serves(&backend.model))
        {
            let prediction = predicted(world, (&backend.source, worker), asked);
            shown.push(of_backend(name(worker_name), prediction, worker.in_flight.unwrap_or_default()));
            known.push(eval::Candidate { backend: index, ttft_ms: 0.0, worker: Some(worker.known()) });
        }
    }
    settle(world, &mut shown, &mut known);
    (shown, known)
}

fn predicted(world: &World, (set, worker): (&str, &WorkerState), asked: &Asked) -> Prediction {
    let (profile, block_tokens) = world.profile(set);
    let blocks = asked.prompt_tokens.unwrap_or_default().div_ceil(block_tokens);
    // Only full blocks are cached. A share of them that is a whole number but for its rounding is that number.
    let full = f64::from(asked.prompt_tokens.unwrap_or_default() / block_tokens);
    let cached = (full * worker.cached() + 1e-6).floor() as u32;
    predict(Cost {
        predictor: &profile.predictor,
        inflight_tracking: profile.picker.inflight_tracking,
        blocks: blocks as usize,
        overlap: Overlap { confirmed: cached, any_tier: cached, expected: cached },
        load: &worker.view(world.stale_after_ms()),
    })
}

/// Workers whose load is old are predicted as loaded as the worst; then the rules are told.
fn settle(world: &World, shown: &mut [Candidate], known: &mut [eval::Candidate]) {
    let workers = (0..shown.len()).filter(|n| shown[*n].is_worker);
    let mut routed: Vec<_> = workers.map(|n| routed(n, &shown[n], known[n].worker, world)).collect();
    assume_worst(&mut routed);
    for candidate in routed {
        let Some(n) = index_of(&candidate, shown) else { continue };
        known[n].ttft_ms = candidate.prediction.ttft_ms;
        shown[n].prediction = candidate.prediction;
    }
}

/// The index of what [`routed`] made.
pub(super) fn index_of(candidate: &types::Candidate, shown: &[Candidate]) -> Option<usize> {
    match &candidate.target {
        Target::Worker(worker) => Some(worker.id.0 as usize),
        Target::Provider(provider) => shown.iter().position(|one| {
            !one.is_worker && *one.source == *provider.name && candidate.model.as_deref() == Some(&one.model)
        }),
    }
}

/// As the picker sees it; a worker's id is its index, and all are of one level.
pub(super) fn routed(
    index: usize,
    shown: &Candidate,
    known: Option<eval::WorkerState>,
    world: &World,
) -> types::Candidate {
    let stale = known.is_some_and(|known| known.staleness_ms > world.stale_after_ms());
    let target = if shown.is_worker {
        Target::Worker(WorkerTarget {
            id: WorkerId(index as u64),
            name: shown.name.as_str().into(),
            workerset: shown.source.as_str().into(),
            endpoint: "".into(),
        })
    } else {
        let target = ProviderTarget {
            namespace: world.pool.key.namespace.clone(),
            name: shown.source.as_str().into(),
            authority: "".into(),
            path_prefix: None,
            credential: None,
        };
        Target::Provider(target.into())
    };
    types::Candidate {
        prediction: shown.prediction.clone(),
        waiting: known.map_or(0.0, |known| known.load.queue),
        own_in_flight: shown.own_in_flight,
        degraded: stale.then_some(types::Degradation::StaleMetrics).into_iter().collect(),
        ..types::Candidate::new(target, Some(shown.model.as_str().into()))
    }
}
