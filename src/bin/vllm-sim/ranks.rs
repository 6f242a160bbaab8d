//! The data-parallel ranks of the engine: each with its own scheduler, cache, event stream and replay socket.
//!
//! Owner of how they are built, and of which one a request goes to. Rank 0 is all there is unless more are asked for.

use anyhow::{Context, Result};
use axum::http::HeaderMap;

use crate::{
    args::Args,
    drive::{Driver, Parts},
    engine::{Engine, EngineConfig, sequence::Vocabulary},
    handle::Handle,
    kv_socket::{Publisher, Replay},
    kv_wire::Wire,
    metrics::{EngineMetrics, Shared},
};

/// A request's header that picks its rank.
const PICK: &str = "x-data-parallel-rank";

/// One rank, as the HTTP side sees it.
pub struct Rank {
    /// Its engine.
    pub engine: Handle,
    /// Where its events are served, as bound.
    pub kv_events: Option<String>,
    /// The same of its replays.
    pub replay: Option<String>,
}

/// A rank that is none of the engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// What was asked for.
    pub asked: usize,
    /// The number of ranks.
    pub ranks: usize,
}

/// All ranks, by number.
pub struct Ranks(Vec<Rank>);

impl Ranks {
    /// All of them.
    pub fn all(&self) -> &[Rank] {
        &self.0
    }

    /// The rank for a request: the one that it names, else the least busy one, of equals the first.
    ///
    /// # Errors
    /// It names one that is not there. A header that is no number counts as none, as in vLLM.
    pub fn pick(&self, headers: &HeaderMap) -> Result<&Handle, OutOfRange> {
        let asked =
            headers.get(PICK).and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
        let rank = match asked {
            Some(asked) => self.0.get(asked),
            None => self.0.iter().min_by_key(|rank| rank.engine.open()),
        };
        let error = OutOfRange { asked: asked.unwrap_or_default(), ranks: self.0.len() };
        rank.map(|rank| &rank.engine).ok_or(error)
    }
}

/// What runs behind one rank.
pub struct Work {
    driver: Driver,
    replay: Option<Replay>,
}

impl Work {
    /// Runs until nobody needs the rank any more, or its replay socket fails.
    pub async fn run(self) {
        let replay = async {
            match self.replay {
                Some(replay) => replay.run().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.driver.run() => {}
            () = replay => {}
        }
    }
}

/// Binds the sockets of all ranks and makes their engines.
///
/// # Errors
/// An endpoint that can't be bound.
pub async fn build(
    args: &Args,
    (config, vocabulary): (&EngineConfig, &Vocabulary),
    shared: &Shared,
) -> Result<(Ranks, Vec<Work>)> {
    let (mut ranks, mut work) = (vec![], vec![]);
    for number in 0..args.data_parallel_size {
        let sockets = Sockets::bind(args, number).await?;
        let parts = Parts {
            engine: Engine::new(config.clone(), vocabulary.clone()),
            speedup: args.speedup,
            publisher: sockets.publisher,
            wire: Wire { hash: args.hash, block_size: config.block_size, rank: number.into() },
            metrics: EngineMetrics::new(args, config, (shared, number))?,
        };
        let (driver, engine) = Driver::new(parts);
        work.push(Work { driver, replay: sockets.replay });
        ranks.push(Rank { engine, kv_events: sockets.kv_events, replay: sockets.replay_endpoint });
    }
    Ok((Ranks(ranks), work))
}

/// The KV-event sockets of one rank, as far as they are asked for.
#[derive(Default)]
struct Sockets {
    publisher: Option<Publisher>,
    kv_events: Option<String>,
    replay: Option<Replay>,
    replay_endpoint: Option<String>,
}

impl Sockets {
    async fn bind(args: &Args, rank: u16) -> Result<Self> {
        let Some(endpoint) = &args.kv_events else { return Ok(Self::default()) };
        let (publisher, kv_events) = Publisher::bind(&of_rank(endpoint, rank)?, &args.topic).await?;
        let mut sockets = Self { kv_events: Some(kv_events), ..Self::default() };
        if let Some(endpoint) = &args.replay {
            let (replay, bound) = publisher.bind_replay(&of_rank(endpoint, rank)?).await?;
            (sockets.replay, sockets.replay_endpoint) = (Some(replay), Some(bound));
        }
        sockets.publisher = Some(publisher);
        Ok(sockets)
    }
}

/// The endpoint of a rank: as vLLM does it, the port and the rank added up. Port 0 takes a free one for each.
fn of_rank(endpoint: &str, rank: u16) -> Result<String> {
    if rank == 0 {
        return Ok(endpoint.to_owned());
    }
    let (host, port) = endpoint.rsplit_once(':').with_context(|| format!("{endpoint} has no port"))?;
    let port: u16 = port.parse().with_context(|| format!("the port of {endpoint}"))?;
    let own = if port == 0 { Some(0) } else { port.checked_add(rank) };
    let own = own.with_context(|| format!("the port of {endpoint} and rank {rank} are beyond 65535"))?;
    Ok(format!("{host}:{own}"))
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::engine::hash::Salts;

    #[test]
    fn ports_are_spread_over_ranks() {
        assert_eq!(of_rank("tcp://*:5557", 3).unwrap(), "tcp://*:5560");
        assert_eq!(of_rank("tcp://127.0.0.1:0", 3).unwrap(), "tcp://127.0.0.1:0");
        assert!(of_rank("tcp://*:65535", 1).is_err());
        assert_eq!(of_rank("ipc:///tmp/x", 0).unwrap(), "ipc:///tmp/x");
    }

    #[test]
    fn a_request_goes_to_its_rank_or_to_the_least_busy_one() {
        let (sender, _commands) = unbounded_channel();
        let rank = || Rank { engine: Handle::new(sender.clone()), kv_events: None, replay: None };
        let ranks = Ranks(vec![rank(), rank(), rank()]);
        let picked = |headers: &HeaderMap| {
            let picked = ranks.pick(headers)?;
            Ok(ranks.all().iter().position(|rank| std::ptr::eq(&rank.engine, picked)))
        };
        let none = HeaderMap::new();
        let header =
            |value: &'static str| HeaderMap::from_iter([(PICK.parse().unwrap(), value.parse().unwrap())]);
        assert_eq!(picked(&none), Ok(Some(0)));
        assert_eq!(picked(&header("2")), Ok(Some(2)));
        assert_eq!(picked(&header("two")), Ok(Some(0)));
        assert_eq!(picked(&header("3")), Err(OutOfRange { asked: 3, ranks: 3 }));
        let submit = |rank: usize| ranks.all()[rank].engine.submit(vec![vec![1]], 1, &Salts::default());
        let first = submit(0);
        let _second = submit(1);
        assert_eq!(picked(&none), Ok(Some(2)));
        let _third = submit(2);
        drop(first);
        assert_eq!(picked(&none), Ok(Some(0)), "what has ended counts no more");
    }
}
