//! Static discovery on real files: every way in which an editor or Kubernetes changes a file, and every way
//! in which a file can be no good.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kinference::{
    config::Profile,
    discovery::{FleetWriter, StaticError, StaticFile},
    files,
    fleet::{Registry, WorkerSet},
    observe::Metrics,
    types::WorkerId,
};
use tempfile::TempDir;
use tokio::task::JoinSet;

const DEADLINE: Duration = Duration::from_secs(20);

struct Site {
    dir: TempDir,
    registry: Arc<Registry>,
    metrics: Metrics,
    writer: FleetWriter,
    tasks: JoinSet<()>,
}

impl Site {
    fn new() -> Self {
        let (registry, metrics) = (Arc::new(Registry::default()), Metrics::new());
        let writer = FleetWriter::new(registry.clone(), &metrics);
        Self { dir: TempDir::new().unwrap(), registry, metrics, writer, tasks: JoinSet::new() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("workers.toml")
    }

    fn file(&self, set: &str, path: PathBuf) -> StaticFile {
        let set = WorkerSet {
            name: set.into(),
            profile: Arc::new(Profile::default()),
            kv_block_size: 16,
            render_url: None,
        };
        StaticFile::new(Arc::new(set), (path, false), self.writer.clone())
    }

    /// Loads `workers.toml` and follows it.
    async fn follow(&mut self, path: PathBuf) {
        let mut file = self.file("set", path);
        file.load_once().await.unwrap();
        self.tasks.spawn(async move { match files::follow(file).await {} });
    }

    fn names(&self) -> Vec<String> {
        self.registry.snapshot().values().map(|m| m.worker.name.to_string()).collect()
    }

    async fn wait_for(&self, want: &[&str]) {
        let mut changes = self.registry.watch();
        let arrived = async {
            while self.names() != want {
                changes.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(DEADLINE, arrived).await.is_err() {
            panic!("wanted {want:?}, have {:?}", self.names());
        }
    }

    async fn wait_for_refusals(&self, want: u32) {
        let line = format!("kinference_fleet_changes_total{{change=\"refused\"}} {want}\n");
        let counted = async {
            while !self.metrics.render().contains(&line) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, counted).await.is_ok(), "no refusal number {want}");
    }
}

fn entry(id: u64, name: &str) -> String {
    format!(
        "[[workers]]\nworker_id_num = {id}\nworker_id_str = \"{name}\"\nmodel_name = \"m\"\n\
         zmq_endpoint = \"tcp://127.0.0.1:5557\"\nendpoint = \"127.0.0.1:{id}\"\n"
    )
}

fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

#[tokio::test]
async fn workers_come_stay_alter_and_go() {
    let mut site = Site::new();
    fs::write(site.path(), entry(1, "a") + &entry(2, "b")).unwrap();
    site.follow(site.path()).await;
    assert_eq!(site.names(), ["a", "b"]);
    let generation = |id| site.registry.get(WorkerId(id)).unwrap().generation;
    let (first, second) = (generation(1), generation(2));
    // Written in place.
    fs::write(site.path(), entry(1, "a") + &entry(3, "c")).unwrap();
    site.wait_for(&["a", "c"]).await;
    assert_eq!(generation(1), first, "one that is unchanged stays who it is");
    // Taken out of new picks, and put back.
    let cordoned = || site.registry.get(WorkerId(1)).unwrap().cordoned();
    let mut changes = site.registry.watch();
    for (line, want) in [("cordoned = true\n", true), ("", false)] {
        fs::write(site.path(), entry(1, "a") + line + &entry(3, "c")).unwrap();
        let told = async {
            while cordoned() != want {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(DEADLINE, told).await.unwrap();
        assert_eq!(generation(1), first, "and what is known of it stays");
    }
    // Replaced, as editors do.
    replace(&site.path(), &(entry(2, "b") + &entry(3, "d")));
    site.wait_for(&["b", "d"]).await;
    assert!(generation(2) > second, "one that comes back is new");
    fs::write(site.path(), "workers = []").unwrap();
    site.wait_for(&[]).await;
}

#[tokio::test]
async fn a_swapped_symlink_is_seen() {
    let mut site = Site::new();
    let root = site.dir.path().to_owned();
    for (version, text) in [("v1", entry(1, "a")), ("v2", entry(2, "b"))] {
        fs::create_dir(root.join(version)).unwrap();
        fs::write(root.join(version).join("workers.toml"), text).unwrap();
    }
    symlink("v1", root.join("data")).unwrap();
    symlink("data/workers.toml", site.path()).unwrap();
    site.follow(site.path()).await;
    symlink("v2", root.join("data.new")).unwrap();
    fs::rename(root.join("data.new"), root.join("data")).unwrap();
    site.wait_for(&["b"]).await;
}

#[tokio::test]
async fn a_broken_edit_is_refused_once_and_the_fleet_stays() {
    let mut site = Site::new();
    fs::write(site.path(), entry(1, "a")).unwrap();
    site.follow(site.path()).await;
    fs::write(site.path(), "[[workers]]\nworker_id_num = ").unwrap();
    site.wait_for_refusals(1).await;
    assert_eq!(site.names(), ["a"]);
    // The same text again is looked at again (the removal shows that it was) but not reported again.
    replace(&site.path(), "[[workers]]\nworker_id_num = ");
    fs::remove_file(site.path()).unwrap();
    site.wait_for_refusals(2).await;
    assert_eq!(site.names(), ["a"]);
    fs::write(site.path(), entry(1, "a") + &entry(2, "b")).unwrap();
    site.wait_for(&["a", "b"]).await;
    assert!(site.metrics.render().contains("change=\"refused\"} 2\n"));
}

#[tokio::test]
async fn an_id_of_another_set_is_refused_until_it_is_free() {
    let mut site = Site::new();
    let other = site.dir.path().join("other.toml");
    fs::write(&other, entry(2, "b")).unwrap();
    fs::write(site.path(), entry(1, "a")).unwrap();
    let mut owner = site.file("other", other.clone());
    owner.load_once().await.unwrap();
    site.follow(site.path()).await;
    fs::write(site.path(), entry(1, "a") + &entry(2, "c")).unwrap();
    site.wait_for_refusals(1).await;
    assert_eq!(site.names(), ["a", "b"]);
    fs::write(&other, "workers = []").unwrap();
    owner.load_once().await.unwrap();
    // The refused file is as it was, and is tried again.
    site.wait_for(&["a", "c"]).await;
}

#[tokio::test]
async fn a_first_load_that_fails_says_why() {
    let site = Site::new();
    let error = site.file("set", site.path()).load_once().await.unwrap_err();
    assert!(matches!(error, StaticError::Read { .. }), "{error}");
    assert!(error.to_string().contains("workers.toml"), "{error}");
    for text in ["", "[[workers]]\n", "workers = 5", "\u{feff}["] {
        fs::write(site.path(), text).unwrap();
        let error = site.file("set", site.path()).load_once().await.unwrap_err();
        assert!(matches!(error, StaticError::Invalid(_)), "{text:?}: {error}");
        assert!(error.to_string().contains("workers.toml"), "{error}");
    }
    fs::write(site.path(), b"\xff\xfe").unwrap();
    assert!(matches!(site.file("set", site.path()).load_once().await, Err(StaticError::Read { .. })));
    fs::write(site.path(), entry(1, "a")).unwrap();
    site.file("one", site.path()).load_once().await.unwrap();
    let error = site.file("two", site.path()).load_once().await.unwrap_err();
    assert!(matches!(&error, StaticError::Taken(taken) if taken.taken_by == "one"), "{error}");
}
