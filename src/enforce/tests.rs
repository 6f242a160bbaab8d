//! Files that change: what is in force, and what is not taken over.

use std::{fs, io, path::Path, time::Duration};

use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::*;
use crate::{
    files::follow,
    policy::{NoSecret, Secret},
};

/// How soon an edit has to be in force.
const SOON: Duration = Duration::from_secs(1);

struct Site {
    dir: tempfile::TempDir,
    to: PoliciesInForce,
    registry: Arc<Registry>,
    secrets: Secrets,
    reaches_providers: Arc<AtomicBool>,
    metrics: Metrics,
    notices: Notices,
    _tasks: JoinSet<Infallible>,
}

fn config(dir: &Path, more: &str) -> Config {
    let text = format!(
        "listen = \"127.0.0.1:0\"\n{more}\n[policy]\nenabled = true\nfiles = [\"*.yaml\", \"a.yaml\"]\n\
         [[profile]]\nname = \"p\"\n[[workerset]]\nname = \"s\"\nprofile = \"p\"\nkv_block_size = 16\n\
         [workerset.discovery]\nworkers_file = \"w\"\n"
    );
    Config::parse(&text, dir).unwrap().0
}

fn pool(name: &str, model: &str) -> String {
    format!(
        "apiVersion: kinference.buoyant.io/v1alpha1\nkind: InferencePool\nmetadata:\n  name: {name}\nspec:\n  models:\n  \
         - name: {model}\n    backends:\n    - workerSet: {{name: s}}\n"
    )
}

impl Site {
    async fn start(a: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), a).unwrap();
        let (to, registry, metrics) =
            (PoliciesInForce::default(), Arc::<Registry>::default(), Metrics::new());
        registry.await_set(&"s".into());
        let config = config(dir.path(), "");
        let (declarations, files) = Declarations::load(&config, &metrics).await.unwrap();
        let (secrets, providers) = (Secrets::default(), Providers::new(&metrics));
        let realm = Realm { registry: registry.clone(), secrets: secrets.clone(), providers, to: to.clone() };
        let enforcer = Enforcer::new(declarations, None, realm);
        let reaches_providers = enforcer.reaches_providers();
        assert!(enforcer.known().load(Ordering::Relaxed));
        let notices = enforcer.notices();
        let mut tasks = JoinSet::new();
        tasks.spawn(follow(files));
        tasks.spawn(enforcer.run());
        Self { dir, to, registry, secrets, reaches_providers, metrics, notices, _tasks: tasks }
    }

    fn models(&self) -> Vec<String> {
        let policies = self.to.load_full().unwrap();
        policies.pools().flat_map(|pool| pool.names(None)).map(ToString::to_string).collect()
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.dir.path().join(file), text).unwrap();
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Duration {
        let started = Instant::now();
        let waited = timeout(Duration::from_secs(10), async {
            while !holds(self) {
                sleep(Duration::from_millis(5)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("not in time: {what}\n{}", self.metrics.render()));
        started.elapsed()
    }

    fn metric(&self, line: &str) -> bool {
        self.metrics.render().contains(&format!("{line}\n"))
    }
}

#[tokio::test]
async fn an_edit_is_in_force_soon_and_a_broken_one_never() {
    let site = Site::start(&pool("a", "old")).await;
    assert_eq!(site.models(), ["old"], "in force from the start");
    site.write("a.yaml", &pool("a", "new"));
    let took = site.until("the edit", |site| site.models() == ["new"]).await;
    assert!(took < SOON, "{took:?}");
    site.write("b.yaml", &pool("b", "more"));
    site.until("a new file that fits", |site| site.models() == ["new", "more"]).await;

    site.write("a.yaml", "kind: [");
    site.until("the refusal", |site| site.metric("kinference_policy_changes_total{outcome=\"refused\"} 1"))
        .await;
    assert_eq!(site.models(), ["new", "more"]);
    let refused = site.notices.refused().unwrap();
    assert!(refused.contains("a.yaml:1:"), "{refused}");
    site.write("a.yaml", &pool("a", "newer"));
    site.until("it is sound again", |site| site.models() == ["newer", "more"]).await;
    site.until("no refusal is left", |site| site.notices.refused().is_none()).await;
    let stands: Vec<_> = site.notices.standings().iter().map(|one| one.key.name.to_string()).collect();
    assert_eq!(stands, ["a", "b"]);
    fs::remove_file(site.dir.path().join("b.yaml")).unwrap();
    site.until("a file that went", |site| site.models() == ["newer"]).await;
    assert!(site.metric("kinference_policy_resources{kind=\"InferencePool\",standing=\"in_force\"} 1"));
    assert!(site.metric("kinference_policy_resources{kind=\"InferencePolicy\",standing=\"rejected\"} 0"));
    assert!(site.metric("kinference_policy_changes_total{outcome=\"applied\"} 5"));
}

#[tokio::test]
async fn what_changes_nothing_of_policies_is_no_change() {
    let site = Site::start(&pool("a", "old")).await;
    let before = site.to.load_full().unwrap();
    site.registry.replace_set("s", Vec::new()).unwrap();
    site.registry.await_set(&"t".into());
    let applied = |count: usize| format!("kinference_policy_changes_total{{outcome=\"applied\"}} {count}");
    site.until("another worker set", |site| site.metric(&applied(2))).await;
    assert!(!Arc::ptr_eq(&before, &site.to.load_full().unwrap()));
    site.registry.replace_set("t", Vec::new()).unwrap();
    site.write("a.yaml", &pool("a", "new"));
    site.until("the edit", |site| site.models() == ["new"]).await;
    assert!(site.metric(&applied(3)), "members of a worker set are nothing to policies");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_is_mended_to_what_it_was_is_told_of_once() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _logged = tracing::subscriber::set_default(lines);
    let told = || String::from_utf8_lossy(&log.0.lock()).matches("the policy files are valid again").count();
    let site = Site::start(&pool("a", "old")).await;
    for (mended, times) in [("old", 1), ("new", 1), ("new", 2)] {
        site.write("a.yaml", "kind: [");
        site.until("the refusal", |site| site.notices.refused().is_some()).await;
        site.write("a.yaml", &pool("a", mended));
        site.until("it is sound again", |site| site.notices.refused().is_none()).await;
        assert_eq!(told(), times, "{mended}");
    }
}

#[tokio::test]
async fn a_provider_is_reached_once_its_credential_is_known() {
    let provider = "apiVersion: kinference.buoyant.io/v1alpha1\nkind: InferenceProvider\nmetadata:\n  name: cloud\nspec:\n  \
                    api: OpenAI\n  host: h\n  models:\n  - name: m\n  credentials:\n    mode: Header\n    \
                    secretRef: {name: keys, key: cloud}\n";
    let behind = pool("a", "m").replace("workerSet: {name: s}", "provider: {name: cloud}");
    let site = Site::start(&format!("{behind}---\n{provider}")).await;
    let stand = |standing: &str| {
        format!("kinference_policy_resources{{kind=\"InferenceProvider\",standing=\"{standing}\"}} 1")
    };
    let wanted: Vec<_> = site.secrets.wanted().borrow().iter().cloned().collect();
    let [key] = &wanted[..] else { panic!("{wanted:?}") };
    assert_eq!(key.to_string(), "key `cloud` of Secret default/keys");
    let say = |found| site.secrets.replace([(key.clone(), found)].into());
    say(Err(NoSecret::Absent));
    site.until("nobody has it", |site| site.metric(&stand("unresolved"))).await;
    assert!(!site.reaches_providers.load(Ordering::Relaxed));
    say(Secret::read(b"k"));
    site.until("it is there", |site| site.metric(&stand("in_force"))).await;
    assert!(site.reaches_providers.load(Ordering::Relaxed));
    assert!(site.metric("kinference_policy_changes_total{outcome=\"applied\"} 1"), "no policy changed");
    site.write("a.yaml", &pool("a", "m"));
    site.until("no pool has it any more", |site| !site.reaches_providers.load(Ordering::Relaxed)).await;
}

#[tokio::test]
async fn everything_wrong_is_said_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let said = async |more: &str| {
        let refused = check(&config(dir.path(), more)).await.err();
        refused
            .map(|errors| errors.to_string().replace(&format!("{}/", dir.path().display()), ""))
            .unwrap_or_default()
    };
    assert!(said("").await.starts_with("a.yaml: error: cannot be read: "));
    fs::write(dir.path().join("a.yaml"), pool("a", "no name")).unwrap();
    fs::write(dir.path().join("b.yaml"), pool("b", "m").replace("{name: s}", "{name: t}")).unwrap();
    fs::write(dir.path().join("c.yaml"), pool("b", "m")).unwrap();
    let all = said("").await;
    let lines: Vec<_> = all.lines().collect();
    assert_eq!(lines.len(), 3, "{all}");
    assert!(lines[0].starts_with("a.yaml:7:5: error: InferencePool a: `spec.models[0].name` "), "{all}");
    assert!(lines[1].starts_with("b.yaml:9:"), "{all}");
    assert!(lines[1].contains("which is no worker set; there are: `s`"), "{all}");
    assert!(lines[2].starts_with("c.yaml:4:"), "{all}");
    // What is not in the files may be in the cluster.
    fs::remove_file(dir.path().join("a.yaml")).unwrap();
    fs::write(dir.path().join("c.yaml"), "").unwrap();
    fs::write(dir.path().join("a.yaml"), pool("a", "m")).unwrap();
    assert_eq!(said("kubernetes.enabled = true").await, "");
    assert!(said("").await.contains("is no worker set"));
}

#[tokio::test]
async fn without_policies_no_file_is_read() {
    let mut config = config(Path::new("/nowhere"), "");
    config.policy.enabled = false;
    assert_eq!(check(&config).await.unwrap(), []);
}

#[tokio::test]
async fn a_pattern_that_matches_nothing_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), "");
    config.policy.files.truncate(1);
    let told = check(&config).await.unwrap();
    assert!(told[0].to_string().contains("*.yaml"), "{}", told[0]);
    assert!(told[0].to_string().contains("matches no file"), "{}", told[0]);
    fs::write(dir.path().join("a.yaml"), pool("chat", "m")).unwrap();
    assert_eq!(check(&config).await.unwrap(), []);
}
