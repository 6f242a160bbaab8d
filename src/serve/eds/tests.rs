//! The view of a fleet, and both protocol variants against a client that keeps what it is told.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::{
    envoy::config::{core::v3::HealthStatus, endpoint::v3::ClusterLoadAssignment},
    google::rpc,
};
use proptest::{collection::vec, prelude::*};
use prost::Message;

use super::{view::cluster_name, *};
use crate::{
    config::{Profile, Topology},
    fleet::{Availability, FAILURES_TO_FAIL, KvSource, KvState, Worker, WorkerSet},
    types::WorkerId,
};

fn worker(set: &str, id: u64, endpoint: &str) -> Worker {
    let set = WorkerSet {
        name: set.into(),
        profile: Arc::new(Profile::default()),
        kv_block_size: 16,
        render_url: None,
    };
    let zone = endpoint.starts_with("10.").then(|| "z".to_owned());
    Worker {
        id: WorkerId(id),
        name: format!("w{id}").into(),
        set: Arc::new(set),
        model_name: "m".into(),
        kv: KvSource::Unknown,
        metrics_url: None,
        http_url: None,
        endpoint: endpoint.into(),
        topology: Topology { availability_zone: zone, ..Topology::default() },
        availability: Availability::Ready,
    }
}

fn view(registry: &Registry, awaited: &[Arc<str>]) -> View {
    awaited.iter().for_each(|set| registry.await_set(set));
    View::of(&registry.snapshot(), &registry.described())
}

/// (zone, port, healthy) of each endpoint.
fn decoded(value: &[u8]) -> Vec<(String, u32, bool)> {
    let assignment = ClusterLoadAssignment::decode(value).unwrap();
    let mut out = Vec::new();
    for locality in assignment.endpoints {
        let zone = locality.locality.map(|l| l.zone).unwrap_or_default();
        assert_eq!(locality.load_balancing_weight.unwrap().value as usize, locality.lb_endpoints.len());
        for endpoint in locality.lb_endpoints {
            let healthy = endpoint.health_status == i32::from(HealthStatus::Healthy);
            let text = format!("{:?}", endpoint.host_identifier);
            let port = text.split("PortValue(").nth(1).unwrap().split(')').next().unwrap().parse().unwrap();
            out.push((zone.clone(), port, healthy));
        }
    }
    out
}

#[test]
fn a_cluster_holds_its_live_workers_with_health_and_zone() {
    let registry = Registry::default();
    let mut workers: Vec<_> = (0..8).map(|id| worker("a", id, &format!("10.0.0.1:{}", 8000 + id))).collect();
    workers[1].availability = Availability::Terminating;
    workers[2].endpoint = "engine.local:8002".into();
    workers[3].endpoint = "[::1]:8003".into();
    workers[3].topology = Topology::default();
    workers[6].endpoint = "10.0.0.1:8000".into();
    registry.replace_set("a", workers).unwrap();
    let status = |id| registry.get(WorkerId(id)).unwrap();
    status(4).status.kv.store(Arc::new(KvState::Evicted("why".into())));
    status(5).status.asleep.store(true, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..FAILURES_TO_FAIL {
        status(6).status.record(true);
    }
    status(7).status.cordoned.store(true, std::sync::atomic::Ordering::Relaxed);
    let view = view(&registry, &["a".into(), "later".into()]);
    assert_eq!(view.pending, BTreeSet::from([cluster_name("later")]));
    let cluster = &view.clusters["kinference/a"];
    let zone = "z".to_owned();
    let wanted = [
        (String::new(), 8003, true),
        (zone.clone(), 8000, true),
        (zone.clone(), 8005, false),
        (zone, 8007, false),
    ];
    assert_eq!(decoded(&cluster.body.value), wanted);
}

#[test]
fn nothing_is_said_of_a_cluster_that_may_yet_come() {
    let registry = Registry::default();
    registry.await_more(true);
    let mut machine = Sotw::default();
    let asked = ask("", &["kinference/dynamic"]);
    assert!(machine.request(asked, &view(&registry, &[])).unwrap().reply.is_none());
    registry.await_set(&"dynamic".into());
    registry.await_more(false);
    assert!(machine.changed(&view(&registry, &[])).is_none());
    registry.remove_set("dynamic");
    assert_eq!(
        machine.changed(&view(&registry, &[])).unwrap().resources.len(),
        1,
        "empty, since it is not there"
    );
}

#[test]
fn versions_follow_the_content_alone() {
    let (one, two) = (Registry::default(), Registry::default());
    one.replace_set("a", vec![worker("a", 1, "10.0.0.1:1"), worker("a", 2, "10.0.0.1:2")]).unwrap();
    two.replace_set("a", vec![]).unwrap();
    assert!(decoded(&view(&two, &[]).clusters["kinference/a"].body.value).is_empty(), "described as empty");
    two.replace_set("a", vec![worker("a", 9, "10.0.0.1:2"), worker("a", 8, "10.0.0.1:1")]).unwrap();
    assert_eq!(view(&one, &[]), view(&two, &[]));
    one.replace_set("a", vec![worker("a", 1, "10.0.0.1:1")]).unwrap();
    assert_ne!(view(&one, &[]), view(&two, &[]));
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

fn ask(nonce: &str, resource_names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        response_nonce: nonce.into(),
        resource_names: names(resource_names),
        type_url: view::type_url(),
        ..Default::default()
    }
}

/// A view with one endpoint in cluster `a` at that port, and an empty cluster `b`.
fn at_port(port: u16) -> View {
    let registry = Registry::default();
    registry.replace_set("a", vec![worker("a", 1, &format!("10.0.0.1:{port}"))]).unwrap();
    registry.replace_set("b", vec![]).unwrap();
    view(&registry, &["later".into()])
}

#[test]
fn sotw_sends_news_once_and_empties_what_is_unknown() {
    let mut machine = Sotw::default();
    assert!(machine.changed(&at_port(1)).is_none(), "nothing was asked for");
    let asked = ["kinference/a", "kinference/none", "kinference/later"];
    let first = machine.request(ask("", &asked), &at_port(1)).unwrap().reply.unwrap();
    let content: Vec<_> = first.resources.iter().map(|r| decoded(&r.value).len()).collect();
    assert_eq!((content.as_slice(), first.nonce.as_str()), (&[1, 0][..], "1"));
    assert!(machine.request(ask("1", &asked), &at_port(1)).unwrap().reply.is_none(), "acknowledged");
    assert!(machine.changed(&at_port(1)).is_none());
    let second = machine.changed(&at_port(2)).unwrap();
    assert_eq!((second.resources.len(), second.nonce.as_str()), (1, "2"));
    assert_ne!(second.version_info, first.version_info);
    // An answer to the first comes late: it says nothing of the second.
    let late = machine.request(ask("1", &["kinference/b"]), &at_port(2)).unwrap();
    assert!(late.reply.is_none());
    // What was refused is not sent again before it changes.
    let detail = Some(rpc::Status { message: "no".into(), ..Default::default() });
    let refusal = DiscoveryRequest { error_detail: detail, ..ask("2", &asked) };
    let step = machine.request(refusal, &at_port(2)).unwrap();
    assert!(step.reply.is_none() && step.refused.as_deref() == Some("no"));
    assert!(machine.changed(&at_port(2)).is_none());
    assert!(machine.changed(&at_port(3)).is_some());
    // What is dropped and asked for again is sent again.
    assert!(machine.request(ask("3", &[]), &at_port(3)).unwrap().reply.is_none());
    assert!(machine.changed(&at_port(4)).is_none());
    let again = machine.request(ask("3", &["kinference/a"]), &at_port(4)).unwrap().reply;
    assert_eq!(again.unwrap().resources.len(), 1);
}

#[test]
fn delta_tells_versions_and_removals() {
    let subscribe =
        |all: &[&str]| DeltaDiscoveryRequest { resource_names_subscribe: names(all), ..Default::default() };
    let mut machine = Delta::default();
    let asked = ["kinference/a", "kinference/none", "kinference/later"];
    let first = machine.request(subscribe(&asked), &at_port(1)).unwrap().reply.unwrap();
    assert_eq!((first.resources.len(), first.removed_resources), (1, names(&["kinference/none"])));
    assert!(machine.changed(&at_port(1)).is_none());
    // Asked for again, it is sent again.
    let again = machine.request(subscribe(&["kinference/a"]), &at_port(1)).unwrap().reply;
    assert_eq!(again.unwrap().resources[0].version, first.resources[0].version);
    let ended =
        DeltaDiscoveryRequest { resource_names_unsubscribe: names(&["kinference/a"]), ..Default::default() };
    assert!(machine.request(ended, &at_port(2)).unwrap().reply.is_none());
    // A client that comes back with what it has is sent what is news.
    let back = |port| {
        let versions = [("kinference/a".to_owned(), first.resources[0].version.clone())];
        let request = DeltaDiscoveryRequest {
            initial_resource_versions: versions.into(),
            ..subscribe(&["kinference/a"])
        };
        Delta::default().request(request, &at_port(port)).unwrap().reply
    };
    assert!(back(1).is_none() && back(2).is_some());
}

#[test]
fn what_is_not_served_ends_the_stream() {
    let other = DiscoveryRequest { type_url: "type.googleapis.com/x".into(), ..Default::default() };
    assert_eq!(Sotw::default().request(other, &View::default()).unwrap_err(), Wrong::Type);
    let many: Vec<_> = (0..=MAX_NAMES).map(|i| i.to_string()).collect();
    let sotw = DiscoveryRequest { resource_names: many.clone(), ..Default::default() };
    assert_eq!(Sotw::default().request(sotw, &View::default()).unwrap_err(), Wrong::Names);
    let delta = DeltaDiscoveryRequest { resource_names_subscribe: many, ..Default::default() };
    assert_eq!(Delta::default().request(delta, &View::default()).unwrap_err(), Wrong::Names);
}

#[derive(Clone, Debug)]
enum Move {
    Subscribe(usize),
    Unsubscribe(usize),
    Change(u16),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        (0..3usize).prop_map(Move::Subscribe),
        (0..3usize).prop_map(Move::Unsubscribe),
        (1..4u16).prop_map(Move::Change),
    ];
    vec(one, 1..30)
}

const CLUSTERS: [&str; 3] = ["kinference/a", "kinference/b", "kinference/none"];

/// What a client that wants those must hold of the view; unknown ones are empty.
fn truth(wanted: &BTreeSet<usize>, view: &View) -> BTreeMap<String, Vec<(String, u32, bool)>> {
    let content = |name: &str| view.clusters.get(name).map(|c| decoded(&c.body.value)).unwrap_or_default();
    wanted.iter().map(|i| (CLUSTERS[*i].to_owned(), content(CLUSTERS[*i]))).collect()
}

proptest! {
    /// Whatever a client asks for in whichever order, it holds the truth about that after each answer.
    #[test]
    fn both_variants_tell_the_truth(moves in moves()) {
        let (mut sotw, mut delta) = (Sotw::default(), Delta::default());
        let (mut view, mut wanted, mut nonce) = (at_port(1), BTreeSet::from([0]), String::new());
        let (mut by_sotw, mut by_delta) = (BTreeMap::new(), BTreeMap::new());
        for (i, step) in std::iter::once(Move::Subscribe(0)).chain(moves).enumerate() {
            let mut request = DeltaDiscoveryRequest::default();
            match step {
                Move::Change(port) => view = at_port(port),
                Move::Subscribe(at) => {
                    wanted.insert(at);
                    request.resource_names_subscribe.push(CLUSTERS[at].into());
                }
                // An empty first list would mean all of them.
                Move::Unsubscribe(at) => {
                    wanted.remove(&at);
                    by_sotw.remove(CLUSTERS[at]);
                    by_delta.remove(CLUSTERS[at]);
                    request.resource_names_unsubscribe.push(CLUSTERS[at].into());
                }
            }
            let (told, changes) = if matches!(step, Move::Change(_)) && i > 0 {
                (sotw.changed(&view), delta.changed(&view))
            } else {
                let asked: Vec<_> = wanted.iter().map(|at| CLUSTERS[*at]).collect();
                let told = sotw.request(ask(&nonce, &asked), &view).unwrap().reply;
                (told, delta.request(request, &view).unwrap().reply)
            };
            if let Some(reply) = told {
                nonce = reply.nonce;
                for resource in reply.resources {
                    let name = ClusterLoadAssignment::decode(&*resource.value).unwrap().cluster_name;
                    by_sotw.insert(name, decoded(&resource.value));
                }
            }
            if let Some(reply) = changes {
                for resource in reply.resources {
                    by_delta.insert(resource.name, decoded(&resource.resource.unwrap().value));
                }
                for name in reply.removed_resources {
                    by_delta.insert(name, Vec::new());
                }
            }
            prop_assert_eq!(&by_sotw, &truth(&wanted, &view));
            prop_assert_eq!(&by_delta, &truth(&wanted, &view));
        }
    }
}
