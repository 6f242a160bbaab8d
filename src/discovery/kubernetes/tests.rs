//! EndpointSlices, pods and nodes as the API server writes them -> engines.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    discovery::v1::EndpointSlice,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    address::Addresses,
    engines::{Engines, Kv, Ports},
    nodes::Nodes,
    places::{MAX_PLACES, Places},
    pods, slices,
};
use crate::{
    config::PortDefaults,
    discovery::Found,
    fleet::{Availability, KvSockets, KvSource},
    policy::crd::PortNames,
    types::Rank,
};

fn addresses() -> Addresses {
    Addresses::for_listener(SocketAddr::from(([0, 0, 0, 0], 9002)))
}

fn slice(name: &str, family: &str, ports: &Value, endpoints: &[Value]) -> Arc<EndpointSlice> {
    let slice = json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"kubernetes.io/service-name": "vllm"}},
        "addressType": family, "ports": ports, "endpoints": endpoints,
    });
    Arc::new(serde_json::from_value(slice).unwrap())
}

fn endpoint(pod: &str, address: &str, conditions: &Value) -> Value {
    json!({"addresses": [address], "conditions": conditions, "nodeName": "node-1", "zone": "zone-a",
        "targetRef": {"kind": "Pod", "namespace": "ns", "name": pod, "uid": format!("uid-{pod}")}})
}

fn of_slices(slices: &[Arc<EndpointSlice>]) -> Places {
    slices::places(slices, addresses())
}

fn engines() -> Engines {
    let defaults = PortDefaults { http_port: 8000, zmq_port: 5557, replay_port: Some(5600) };
    let ports = Ports::Named(PortNames::default());
    Engines { model_name: "m".into(), ports, defaults, kv: Kv::Ports { ranks: 1 } }
}

fn found(places: &Places) -> Vec<Found> {
    engines().at(places, &Nodes::default()).0
}

/// name endpoint availability
fn shown(places: &Places) -> Vec<String> {
    let show = |f: &Found| format!("{} {} {:?}", f.name, f.endpoint, f.availability);
    found(places).iter().map(show).collect()
}

#[test]
fn conditions_are_read_as_the_api_defines_them() {
    let table = [
        (json!({}), Availability::Ready),
        (json!(null), Availability::Ready),
        (json!({"ready": true, "serving": true, "terminating": false}), Availability::Ready),
        (json!({"ready": false, "serving": false, "terminating": false}), Availability::NotReady),
        (json!({"serving": false}), Availability::NotReady),
        (json!({"ready": false, "serving": true, "terminating": true}), Availability::Terminating),
        // Of a Service that publishes addresses that are not ready.
        (json!({"ready": true, "serving": false, "terminating": true}), Availability::Terminating),
    ];
    for (conditions, wanted) in table {
        let places = of_slices(&[slice("s", "IPv4", &json!([]), &[endpoint("p", "10.0.0.1", &conditions)])]);
        assert_eq!(places.found[0].availability, wanted, "{conditions}");
    }
}

#[test]
fn a_slice_says_all_that_is_known_of_an_engine() {
    let ports = json!([{"name": "http", "port": 8080}, {"name": "kv-events", "port": 6000, "protocol": "TCP"},
        {"name": "kv-replay", "port": 6100, "protocol": "UDP"}, {"port": 1}, {"name": "any"}]);
    let places = of_slices(&[slice("s", "IPv4", &ports, &[endpoint("p", "10.0.0.1", &json!({}))])]);
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "node-1", "labels": {"topology.kubernetes.io/zone": "zone-of-node",
            "node.kubernetes.io/instance-type": "gpu.large"}},
        "status": {"addresses": [{"type": "Hostname", "address": "node-1"},
            {"type": "InternalIP", "address": "192.168.1.1"}]}
    }))
    .unwrap();
    let (found, refused) = engines().at(&places, &Nodes::of(&[Arc::new(node)]));
    assert_eq!(refused.tell(), None);
    let [engine] = &found[..] else { panic!("{found:?}") };
    assert_eq!((engine.key.as_str(), engine.name.as_str()), ("uid-p:8080", "p"));
    assert_eq!(engine.endpoint, "10.0.0.1:8080");
    assert_eq!(engine.http_url, "http://10.0.0.1:8080");
    assert_eq!(engine.metrics_url, "http://10.0.0.1:8080/metrics");
    let sockets = KvSockets {
        rank: Rank(0),
        events: "tcp://10.0.0.1:6000".into(),
        // The port of that name is no TCP port: the default.
        replay: Some("tcp://10.0.0.1:5600".into()),
    };
    assert_eq!(engine.kv, KvSource::Sockets(vec![sockets]));
    let place = serde_json::to_value(&engine.topology).unwrap();
    let wanted = json!({"pod_name": "p", "namespace": "ns", "node_name": "node-1", "node_ip": "192.168.1.1",
        "pod_ip": "10.0.0.1", "availability_zone": "zone-a", "instance_type": "gpu.large"});
    assert_eq!(place, wanted);
}

#[test]
fn a_pod_in_two_slices_is_one_engine() {
    let (ready, not, gone) =
        (json!({"ready": true}), json!({"ready": false}), json!({"terminating": true, "ready": false}));
    let both = |a: &Value, b: &Value| {
        let port = |name: &str, port: u16| json!([{"name": name, "port": port}]);
        let one = slice("one", "IPv4", &port("http", 8001), &[endpoint("p", "10.0.0.1", a)]);
        let two = slice("two", "IPv4", &port("kv-events", 9), &[endpoint("p", "10.0.0.1", b)]);
        let (there, back) = (of_slices(&[one.clone(), two.clone()]), of_slices(&[two, one]));
        assert_eq!(there, back);
        assert!(format!("{:?}", found(&there)[0].kv).contains("10.0.0.1:9\""));
        shown(&there)
    };
    assert_eq!(both(&ready, &not), ["p 10.0.0.1:8001 Ready"]);
    assert_eq!(both(&ready, &gone), ["p 10.0.0.1:8001 Terminating"]);
    assert_eq!(both(&not, &not), ["p 10.0.0.1:8001 NotReady"]);
}

#[test]
fn a_dual_stack_service_is_reached_by_ipv4() {
    let v4 = slice("v4", "IPv4", &json!([]), &[endpoint("p", "10.0.0.1", &json!({}))]);
    let v6 = slice(
        "v6",
        "IPv6",
        &json!([]),
        &[endpoint("p", "fd00::1", &json!({})), endpoint("q", "fd00::2", &json!({}))],
    );
    let names = slice("names", "FQDN", &json!([]), &[json!({"addresses": ["a.example"]})]);
    let places = of_slices(&[v6.clone(), v4, names.clone()]);
    assert_eq!(shown(&places), ["p 10.0.0.1:8000 Ready"]);
    assert_eq!(places.refused.tell().unwrap(), "q: no IPv4 address, which others have");
    let only = of_slices(&[v6, names]);
    assert_eq!(shown(&only), ["p [fd00::1]:8000 Ready", "q [fd00::2]:8000 Ready"]);
    assert_eq!(found(&only)[0].http_url, "http://[fd00::1]:8000");
    assert_eq!(only.refused.tell(), None);
}

#[test]
fn a_pod_replaced_at_the_same_address_is_another_engine() {
    let with_uid = |uid: &str| {
        let mut endpoint = endpoint("vllm-0", "10.0.0.1", &json!({}));
        endpoint["targetRef"]["uid"] = json!(uid);
        found(&of_slices(&[slice("s", "IPv4", &json!([]), &[endpoint])])).remove(0)
    };
    let (a, b) = (with_uid("a"), with_uid("b"));
    assert_eq!((&a.name, &a.endpoint), (&b.name, &b.endpoint));
    assert_ne!(a.key, b.key);
}

#[test]
fn what_is_listed_by_hand_is_known_by_its_address() {
    let endpoints = [
        json!({"addresses": ["10.9.9.9", "10.8.8.8"]}),
        json!({"addresses": ["10.9.9.8"], "targetRef": {"kind": "Node", "uid": "u", "name": "n"}}),
    ];
    let places = of_slices(&[slice("s", "IPv4", &json!(null), &endpoints)]);
    let keys: Vec<_> = found(&places).into_iter().map(|f| (f.key, f.name)).collect();
    let wanted = |address: &str| (format!("ns/vllm/{address}:8000"), address.to_owned());
    assert_eq!(keys, [wanted("10.9.9.8"), wanted("10.9.9.9")]);
}

#[test]
fn hostile_slices_cost_little() {
    let ports = json!([{"name": "http", "port": 0}, {"name": "kv-events", "port": 70000}]);
    let bad = [
        "127.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "nonsense\n\u{202e}",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
    ];
    let mut endpoints: Vec<_> = bad.iter().map(|address| endpoint(address, address, &json!({}))).collect();
    endpoints.push(json!({"addresses": []}));
    let many = (0..MAX_PLACES + 10)
        .map(|n| endpoint(&format!("p{n:05}"), &format!("10.1.{}.{}", n / 250, n % 250 + 1), &json!({})));
    endpoints.extend(many);
    let places = of_slices(&[slice("s", "IPv4", &ports, &endpoints)]);
    assert_eq!(places.found.len(), MAX_PLACES);
    assert_eq!(found(&places)[0].endpoint, "10.1.0.1:8000", "a port that is none is not one");
    let told = places.refused.tell().unwrap();
    assert!(told.contains("127.0.0.1: loopback (2 times); 169") && told.ends_with("and 11 more"), "{told}");
    assert!(!told.contains(['\n', '\u{202e}']), "{told:?}");
}

fn pod(name: &str, status: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"nodeName": "node-1", "containers": [
            {"name": "a", "ports": [{"name": "metrics", "containerPort": 9090}]},
            {"name": "b", "ports": [{"name": "http", "containerPort": 8080}]}]},
        "status": status})
}

fn of_pods(pods: &[Value]) -> Places {
    let pods: Vec<Arc<Pod>> =
        pods.iter().map(|pod| Arc::new(serde_json::from_value(pod.clone()).unwrap())).collect();
    pods::places(&pods, addresses())
}

#[test]
fn selected_pods_are_engines_from_their_address_to_their_end() {
    let ready = json!([{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]);
    let running = |ip: &str| json!({"phase": "Running", "podIP": ip, "conditions": ready});
    let mut ending = pod("ending", &running("10.0.0.3"));
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let both = json!({"phase": "Running", "podIP": "fd00::5", "conditions": ready,
        "podIPs": [{"ip": "fd00::5"}, {"ip": "10.0.0.5"}]});
    let places = of_pods(&[
        pod("a", &running("10.0.0.1")),
        pod("b-starts", &json!({"phase": "Running", "podIP": "10.0.0.2"})),
        ending,
        pod("both", &both),
        pod("no-address", &json!({"phase": "Pending"})),
        pod("done", &json!({"phase": "Succeeded", "podIP": "10.0.0.6"})),
        pod("failed", &json!({"phase": "Failed", "podIP": "10.0.0.7"})),
    ]);
    let wanted = [
        "a 10.0.0.1:8080 Ready",
        "b-starts 10.0.0.2:8080 NotReady",
        "both 10.0.0.5:8080 Ready",
        "ending 10.0.0.3:8080 Terminating",
    ];
    assert_eq!(shown(&places), wanted);
    assert_eq!(places.refused.tell(), None, "the other address of a pod is not refused");
    assert_eq!(found(&places)[0].key, "uid-a:8080");
}

#[test]
fn ranks_and_several_ports_each_have_their_sockets() {
    let places = of_pods(&[pod("p", &json!({"podIP": "10.0.0.1"}))]);
    let sockets = |engines: Engines| -> Vec<(String, KvSource)> {
        engines.at(&places, &Nodes::default()).0.into_iter().map(|f| (f.name, f.kv)).collect()
    };
    let of = |rank, events: u16, replay: Option<u16>| KvSockets {
        rank: Rank(rank),
        events: format!("tcp://10.0.0.1:{events}"),
        replay: replay.map(|port| format!("tcp://10.0.0.1:{port}")),
    };
    let ranks = sockets(Engines { kv: Kv::Ports { ranks: 2 }, ..engines() });
    let both = vec![of(0, 5557, Some(5600)), of(1, 5558, Some(5601))];
    assert_eq!(ranks, [("p".to_owned(), KvSource::Sockets(both))]);

    let several = Engines { ports: Ports::Numbers(vec![8000, 8001]), ..engines() };
    let one = |name: &str, events, replay| (name.to_owned(), KvSource::Sockets(vec![of(0, events, replay)]));
    assert_eq!(sockets(several), [one("p:8000", 5557, Some(5600)), one("p:8001", 5558, Some(5601))]);
    let asked = sockets(Engines { kv: Kv::Engine, ports: Ports::Defaults, ..engines() });
    assert_eq!(asked, [("p".to_owned(), KvSource::Engine)]);

    let defaults = PortDefaults { zmq_port: 65_535, ..engines().defaults };
    let beyond = Engines { kv: Kv::Ports { ranks: 2 }, defaults, ..engines() };
    let (found, refused) = beyond.at(&places, &Nodes::default());
    assert!(found.is_empty() && refused.tell().unwrap().contains("beyond 65535"));
}

#[test]
fn a_port_name_that_nothing_has_is_told_of_if_somebody_chose_it() {
    let places = of_pods(&[pod("p", &json!({"podIP": "10.0.0.1"})), pod("q", &json!({"podIP": "10.0.0.2"}))]);
    let missing = |names: Value, kv: Kv| {
        let ports = Ports::Named(serde_json::from_value(names).unwrap());
        Engines { ports, kv, ..engines() }.missing_ports(&places)
    };
    let ranks = Kv::Ports { ranks: 1 };
    assert_eq!(missing(json!({}), ranks), None, "nothing has kv-events, and nobody asked for it");
    assert_eq!(missing(json!({"http": "metrics"}), ranks), None);
    assert_eq!(missing(json!({"http": "web"}), ranks).unwrap(), "no port is named `web`: 8000 is used");
    let both = json!({"kvEvents": "zmq", "replay": "again"});
    assert_eq!(
        missing(both.clone(), ranks).unwrap(),
        "no port is named `zmq`: 5557 is used; no port is named `again`: 5600 is used"
    );
    assert_eq!(missing(both, Kv::Engine), None, "these are not looked for");
    let mut some = places.clone();
    some.found[0].ports.insert("web".into(), 1);
    let engines = Engines {
        ports: Ports::Named(PortNames { http: "web".into(), ..PortNames::default() }),
        ..engines()
    };
    assert_eq!(
        engines.missing_ports(&some).unwrap(),
        "no port is named `web` at 1 of 2 places: 8000 is used"
    );
}

proptest! {
    #[test]
    fn every_order_of_slices_is_the_same_fleet(
        listed in proptest::collection::vec((0..8u8, 0..3u8, any::<bool>(), any::<Option<bool>>()), 0..24),
        turn in any::<prop::sample::Index>(),
    ) {
        let slice_of = |(pod, at, v6, ready): &(u8, u8, bool, Option<bool>)| {
            let address = if *v6 { format!("fd00::{pod}") } else { format!("10.0.0.{}", pod + 1) };
            let endpoint = endpoint(&format!("p{pod}"), &address, &json!({"ready": ready}));
            let address_type = if *v6 { "IPv6" } else { "IPv4" };
            slice(&format!("s{at}"), address_type, &json!([{"name": "http", "port": 8000}]), &[endpoint])
        };
        let mut slices: Vec<_> = listed.iter().map(slice_of).collect();
        let places = of_slices(&slices);
        let keys: BTreeSet<_> = places.found.iter().map(|place| place.key.clone()).collect();
        prop_assert_eq!(keys.len(), places.found.len());
        if !slices.is_empty() {
            let at = turn.index(slices.len());
            slices.rotate_left(at);
        }
        let again = of_slices(&slices);
        prop_assert_eq!(&again.found, &places.found);
        let families: BTreeSet<_> = again.found.iter().map(|place| place.address.is_ipv6()).collect();
        prop_assert!(families.len() <= 1);
    }
}
