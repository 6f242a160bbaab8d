//! What rules match on: the request, and the state of the workers behind its model.

/// What is known of a request before anything is predicted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The model that it names, alias or not.
    pub model: &'a str,
    /// Who sent it, where known.
    pub tenant: Option<&'a str>,
    /// Its tags.
    pub tags: &'a [String],
    /// Tokens of its prompt, where known.
    pub prompt_tokens: Option<u64>,
    /// Tokens that its answer may have at most, where it says so.
    pub output_tokens: Option<u64>,
}

/// The load of a worker that rules and steps look at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests that wait.
    pub queue: f64,
    /// Requests that run.
    pub running: f64,
    /// Use of the KV cache, in percent.
    pub kv_use_percent: f64,
}

/// Least, mean and most of a value over workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The most.
    pub max: f64,
}

/// The state of the workers behind a model. Of no workers there is no spread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolState {
    /// Workers that take new requests.
    pub ready_workers: u32,
    /// Requests that wait at a worker.
    pub queue: Option<Spread>,
    /// Requests that run on a worker.
    pub running: Option<Spread>,
    /// Use of a worker's KV cache, in percent.
    pub kv_use_percent: Option<Spread>,
}

impl PoolState {
    /// Of workers that take new requests, with these loads.
    pub fn of(loads: impl Iterator<Item = Load> + Clone) -> Self {
        let count = loads.clone().count();
        let spread = |value: fn(&Load) -> f64| {
            let (mut min, mut sum, mut max) = (f64::INFINITY, 0.0, 0.0_f64);
            for value in loads.clone().map(|load| value(&load)) {
                (min, sum, max) = (min.min(value), sum + value, max.max(value));
            }
            (count > 0).then(|| Spread { min, mean: sum / count as f64, max })
        };
        Self {
            ready_workers: u32::try_from(count).unwrap_or(u32::MAX),
            queue: spread(|load| load.queue),
            running: spread(|load| load.running),
            kv_use_percent: spread(|load| load.kv_use_percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_over_the_workers_there_are() {
        let loads = [1.0, 2.0, 6.0].map(|queue| Load { queue, ..Load::default() });
        let state = PoolState::of(loads.into_iter());
        assert_eq!((state.ready_workers, state.queue), (3, Some(Spread { min: 1.0, mean: 3.0, max: 6.0 })));
        assert_eq!(state.running, Some(Spread::default()));
        assert_eq!(PoolState::of(std::iter::empty()), PoolState::default());
    }
}
