//! The objects of one watch, as they were last known.
//!
//! Invariant: an object with the version that we have is no change, whichever way it comes. One that can't be read
//! counts as what it last was. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What a watch keeps: objects of a kind that is known at compile time.
pub trait Watchable: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static {}

impl<K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static> Watchable for K {}

/// Namespace and name.
type Key = (String, String);

/// An object that is not what its kind says.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) why: String,
}

/// Objects by namespace and name.
pub(super) struct Store<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// The versions are of another history: they tell nothing.
    doubted: bool,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), doubted: false }
    }
}

impl<K: Watchable> Store<K> {
    /// In order of namespace and name.
    pub(super) fn all(&self) -> Vec<Arc<K>> {
        self.objects.values().cloned().collect()
    }

    /// An object came or changed. Whether that changes anything.
    pub(super) fn put(&mut self, object: Value) -> Result<bool, Unreadable> {
        let key = key(&object);
        if self.has(&key, &object) {
            return Ok(false);
        }
        let object = read(object, &key)?;
        self.objects.insert(key, Arc::new(object));
        Ok(true)
    }

    /// An object went. Whether that changes anything.
    pub(super) fn remove(&mut self, object: &Value) -> bool {
        self.objects.remove(&key(object)).is_some()
    }

    /// These are all there are. Whether that changes anything, and which of them can't be read.
    pub(super) fn replace(&mut self, listed: Vec<Value>) -> (bool, Vec<Unreadable>) {
        let mut before = std::mem::take(&mut self.objects);
        let (had, mut changed, mut unreadable) = (before.len(), false, Vec::new());
        for object in listed {
            let key = key(&object);
            if let Some(known) = before.remove(&key) {
                self.objects.insert(key, known);
            }
            match self.put(object) {
                Ok(new) => changed |= new,
                Err(error) => unreadable.push(error),
            }
        }
        self.doubted = false;
        (changed || self.objects.len() != had, unreadable)
    }

    /// The next list is of another history: what it has is new, whatever its version.
    pub(super) fn doubt(&mut self) {
        self.doubted = true;
    }

    fn has(&self, key: &Key, object: &Value) -> bool {
        let known = self.objects.get(key).and_then(|known| known.meta().resource_version.as_deref());
        let version = version(object);
        !self.doubted && version.is_some() && known == version
    }
}

/// The version of an object, as the API server has it.
pub(super) fn version(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str()
}

/// Whether a version is certainly of before another. Those of unknown form are not.
pub(super) fn older(version: &str, than: &str) -> bool {
    let number = |text: &str| text.parse::<u128>().ok();
    number(version).zip(number(than)).is_some_and(|(version, than)| version < than)
}

fn key(object: &Value) -> Key {
    let of = |field| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (of("namespace"), of("name"))
}

fn read<K: Watchable>(object: Value, key: &Key) -> Result<K, Unreadable> {
    let mut object: K = serde_json::from_value(object).map_err(|error| Unreadable {
        namespace: key.0.clone(),
        name: key.1.clone(),
        why: error.to_string(),
    })?;
    trim(object.meta_mut());
    Ok(object)
}

/// Most of many objects is this, and nobody here reads it.
fn trim(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pod(name: &str, version: u32) -> Value {
        json!({"metadata": {"namespace": "x", "name": name, "resourceVersion": version.to_string(),
            "managedFields": [{"manager": "m"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"}}})
    }

    fn names(store: &Store<Pod>) -> Vec<String> {
        let name = |pod: &Arc<Pod>| {
            let meta = &pod.metadata;
            format!("{}@{}", meta.name.clone().unwrap(), meta.resource_version.clone().unwrap())
        };
        store.all().iter().map(name).collect()
    }

    #[test]
    fn only_what_is_new_changes_anything() {
        let mut store = Store::<Pod>::default();
        assert!(!store.replace(Vec::new()).0);
        assert!(store.replace(vec![pod("b", 1), pod("a", 2)]).0);
        assert!(!store.replace(vec![pod("a", 2), pod("b", 1)]).0);
        assert!(!store.put(pod("a", 2)).unwrap());
        assert!(store.put(pod("a", 3)).unwrap());
        assert_eq!(names(&store), ["a@3", "b@1"]);
        assert!(store.remove(&pod("a", 3)) && !store.remove(&pod("a", 3)));
        assert!(store.replace(Vec::new()).0);
        assert_eq!(store.all().len(), 0);
    }

    /// A database that was restored gives versions out again.
    #[test]
    fn a_version_of_another_history_tells_nothing() {
        let mut store = Store::<Pod>::default();
        store.put(pod("a", 1)).unwrap();
        store.doubt();
        let mut other = pod("a", 1);
        other["metadata"]["uid"] = json!("other");
        assert!(store.replace(vec![other.clone()]).0);
        assert_eq!(store.all()[0].metadata.uid.as_deref(), Some("other"));
        assert!(!store.replace(vec![other]).0);
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(older("9", "10") && !older("10", "9") && !older("10", "10"));
        assert!(!older("", "10") && !older("9", "") && !older("x", "y"));
    }

    #[test]
    fn what_nobody_reads_is_not_kept() {
        let mut store = Store::<Pod>::default();
        store.put(pod("a", 1)).unwrap();
        let meta = store.all()[0].metadata.clone();
        assert_eq!(meta.managed_fields, None);
        assert_eq!(meta.annotations.unwrap().into_keys().collect::<Vec<_>>(), ["mine"]);
    }

    #[test]
    fn what_cant_be_read_is_what_it_last_was() {
        let mut store = Store::<Pod>::default();
        store.put(pod("a", 1)).unwrap();
        let mut bad = pod("a", 2);
        bad["spec"] = json!({"containers": "none"});
        let error = store.put(bad.clone()).unwrap_err();
        assert_eq!((error.namespace.as_str(), error.name.as_str()), ("x", "a"));
        let (changed, unreadable) = store.replace(vec![bad, pod("b", 3)]);
        assert!(changed && unreadable.len() == 1);
        assert_eq!(names(&store), ["a@1", "b@3"]);
    }

    proptest! {
        /// However it is learned, the store is what the API server has.
        #[test]
        fn a_list_and_events_come_to_the_same(steps in prop::collection::vec((0..5u8, any::<bool>(), any::<bool>()), 0..40)) {
            let (mut store, mut truth) = (Store::<Pod>::default(), BTreeMap::new());
            for (at, (name, put, list)) in (1u32..).zip(steps) {
                let name = name.to_string();
                let before = names(&store);
                let changed = if list {
                    if put { truth.insert(name, at); } else { truth.remove(&name); }
                    store.replace(truth.iter().map(|(name, at)| pod(name, *at)).collect()).0
                } else if put {
                    truth.insert(name.clone(), at);
                    store.put(pod(&name, at)).unwrap()
                } else {
                    truth.remove(&name);
                    store.remove(&pod(&name, at))
                };
                let expected: Vec<_> = truth.iter().map(|(name, at)| format!("{name}@{at}")).collect();
                prop_assert_eq!(names(&store), expected);
                prop_assert_eq!(changed, names(&store) != before);
            }
        }
    }
}
