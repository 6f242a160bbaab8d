//! Places -> engines: which ports a place serves on, and what is asked where. Pure.
//!
//! A named port of the place comes first, then the default; an engine of several data-parallel ranks publishes those
//! of rank N on the port plus N, as vLLM does.

use std::net::SocketAddr;

use super::{
    nodes::Nodes,
    places::{Place, Places, Refused},
};
use crate::{
    config::PortDefaults,
    discovery::Found,
    fleet::{KvSockets, KvSource},
    policy::crd::PortNames,
    types::Rank,
};

/// How the engines of a worker set are reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Engines {
    /// The model that they serve; empty: as they say.
    pub model_name: String,
    /// Where they serve.
    pub ports: Ports,
    /// Ports that nothing else says.
    pub defaults: PortDefaults,
    /// How their KV events are found.
    pub kv: Kv,
}

/// Where engines serve.
#[derive(Clone, Debug, PartialEq)]
pub enum Ports {
    /// On the defaults alone.
    Defaults,
    /// On ports of those names.
    Named(PortNames),
    /// Several engines at each place, on these HTTP ports: the data-parallel ranks of one model, in order.
    Numbers(Vec<u16>),
}

/// How KV events are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kv {
    /// On ports, for so many ranks of each engine.
    Ports {
        /// At least 1.
        ranks: u32,
    },
    /// The engine is asked.
    Engine,
}

/// The most KV-event sockets of one worker set: each is two connections, with what they hold.
const MAX_SOCKETS: usize = 4096;

/// One engine at a place.
struct At {
    http: u16,
    events: Option<u16>,
    replay: Option<u16>,
}

impl Engines {
    /// The engines at these places, and what was left out.
    pub fn at(&self, places: &Places, nodes: &Nodes) -> (Vec<Found>, Refused) {
        let mut refused = places.refused.clone();
        let mut found: Vec<Found> = Vec::new();
        let mut sockets = 0;
        for place in &places.found {
            for at in self.engines_at(place) {
                match self.found(place, &at) {
                    Some(engine) if sockets + engine.kv.sockets() > MAX_SOCKETS => {
                        refused.add(|| {
                            format!("{}: a worker set has at most {MAX_SOCKETS} KV-event sockets", place.name)
                        });
                    }
                    Some(engine) => {
                        sockets += engine.kv.sockets();
                        found.push(engine);
                    }
                    None => refused.add(|| format!("{}: a KV-event port beyond 65535", place.name)),
                }
            }
        }
        found.iter_mut().for_each(|engine| nodes.complete(&mut engine.topology));
        (found, refused)
    }

    /// Port names that were chosen and that places do not have, and what is used instead, in words.
    pub fn missing_ports(&self, places: &Places) -> Option<String> {
        let Ports::Named(names) = &self.ports else { return None };
        let (usual, defaults) = (PortNames::default(), &self.defaults);
        let mut asked = vec![(&names.http, &usual.http, Some(defaults.http_port))];
        if matches!(self.kv, Kv::Ports { .. }) {
            asked.push((&names.kv_events, &usual.kv_events, Some(defaults.zmq_port)));
            asked.push((&names.replay, &usual.replay, defaults.replay_port));
        }
        let all = places.found.len();
        let missing =
            asked.into_iter().filter(|(name, usual, _)| name != usual).filter_map(|(name, _, used)| {
                let without = places.found.iter().filter(|place| !place.ports.contains_key(name)).count();
                let at = if without < all { format!(" at {without} of {all} places") } else { String::new() };
                let used = used.map_or("none is used".to_owned(), |port| format!("{port} is used"));
                (without > 0).then(|| format!("no port is named `{name}`{at}: {used}"))
            });
        let missing: Vec<_> = missing.collect();
        (!missing.is_empty()).then(|| missing.join("; "))
    }

    fn engines_at(&self, place: &Place) -> Vec<At> {
        let defaults = &self.defaults;
        match &self.ports {
            Ports::Defaults => vec![At {
                http: defaults.http_port,
                events: Some(defaults.zmq_port),
                replay: defaults.replay_port,
            }],
            Ports::Named(names) => {
                let named = |name: &str| place.ports.get(name).copied();
                vec![At {
                    http: named(&names.http).unwrap_or(defaults.http_port),
                    events: named(&names.kv_events).or(Some(defaults.zmq_port)),
                    replay: named(&names.replay).or(defaults.replay_port),
                }]
            }
            Ports::Numbers(numbers) => {
                let of_rank = |(rank, http): (usize, &u16)| At {
                    http: *http,
                    events: plus(defaults.zmq_port, rank),
                    replay: defaults.replay_port.and_then(|port| plus(port, rank)),
                };
                numbers.iter().enumerate().map(of_rank).collect()
            }
        }
    }

    fn found(&self, place: &Place, at: &At) -> Option<Found> {
        let socket = |port: u16| SocketAddr::new(place.address, port);
        let base = format!("http://{}", socket(at.http));
        let several = matches!(&self.ports, Ports::Numbers(numbers) if numbers.len() > 1);
        let kv = match self.kv {
            Kv::Engine => KvSource::Engine,
            Kv::Ports { ranks } => {
                KvSource::Sockets(sockets(at, ranks, |port| format!("tcp://{}", socket(port)))?)
            }
        };
        Some(Found {
            key: format!("{}:{}", place.key, at.http),
            name: if several { format!("{}:{}", place.name, at.http) } else { place.name.clone() },
            model_name: self.model_name.as_str().into(),
            kv,
            metrics_url: format!("{base}/metrics"),
            http_url: base,
            endpoint: socket(at.http).to_string(),
            topology: place.topology.clone(),
            availability: place.availability,
        })
    }
}

fn sockets(at: &At, ranks: u32, url: impl Fn(u16) -> String) -> Option<Vec<KvSockets>> {
    let one = |rank: u32| {
        let events = plus(at.events?, rank as usize)?;
        // A rank whose replay port does not exist is followed live only.
        let replay = at.replay.and_then(|port| plus(port, rank as usize));
        Some(KvSockets { rank: Rank(rank), events: url(events), replay: replay.map(&url) })
    };
    (0..ranks.max(1)).map(one).collect()
}

fn plus(port: u16, rank: usize) -> Option<u16> {
    usize::from(port).checked_add(rank).and_then(|port| u16::try_from(port).ok())
}
