//! A headless Chromium, driven over WebDriver: the few calls that the tests need.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

/// Names the driver, where it is not where Debian puts it.
const VARIABLE: &str = "KINFERENCE_TEST_CHROMEDRIVER";
const DRIVER: &str = "/usr/bin/chromedriver";
const CHROMIUM: &str = "/usr/bin/chromium";
/// Without the last ones it looks for hosts of its maker at every start.
const ARGUMENTS: [&str; 9] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// A browser; it ends with the test.
pub struct Browser {
    driver: Child,
    _profile: tempfile::TempDir,
    client: reqwest::Client,
    session: String,
}

impl Browser {
    /// `None` after saying that there is none.
    pub async fn start() -> Option<Self> {
        let driver = driver()?;
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Command::new(driver)
            .args(["--port=0", "--allowed-ips=127.0.0.1"])
            // With all that it starts it is ended as a group.
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let said = lines.find(|line| line.contains("started successfully on port")).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        let port = said.trim_end_matches('.').rsplit(' ').next().unwrap();
        let client = reqwest::Client::new();
        let mut arguments: Vec<_> = ARGUMENTS.map(str::to_owned).into();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let options = json!({"args": arguments, "binary": chromium()});
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let base = format!("http://127.0.0.1:{port}/session");
        let made: Value = client.post(&base).json(&wanted).send().await.unwrap().json().await.unwrap();
        let id = made["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{made}"));
        Some(Self { driver, _profile: profile, client, session: format!("{base}/{id}") })
    }

    async fn post(&self, command: &str, body: Value) -> Value {
        let sent = self.client.post(format!("{}/{command}", self.session)).json(&body).send();
        let answer: Value = sent.await.unwrap().json().await.unwrap();
        assert!(answer["value"]["error"].is_null(), "{command} {body}: {answer}");
        answer["value"].clone()
    }

    async fn chromium(&self, command: &str, parameters: Value) {
        self.post("goog/cdp/execute", json!({"cmd": command, "params": parameters})).await;
    }

    pub async fn go(&self, url: &str) {
        self.post("url", json!({"url": url})).await;
    }

    /// The value of a script, which is the body of a function.
    pub async fn run(&self, script: &str) -> Value {
        self.post("execute/sync", json!({"script": script, "args": []})).await
    }

    /// Makes it as wide and high as a device of that size.
    pub async fn size(&self, [width, height]: [u32; 2]) {
        let mobile = width < 500;
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        self.chromium("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// As of a system that prefers `dark` or `light`.
    pub async fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.chromium("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    /// Presses and releases keys, by their code points.
    pub async fn press(&self, keys: &str) {
        let both =
            |key: char| ["keyDown", "keyUp"].map(|what| json!({"type": what, "value": key.to_string()}));
        let actions: Vec<_> = keys.chars().flat_map(both).collect();
        self.post("actions", json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]})).await;
    }

    /// What the console said since it was last asked, but for requests that found nobody.
    pub async fn console(&self) -> Vec<String> {
        let said = self.post("se/log", json!({"type": "browser"})).await;
        let all = said.as_array().unwrap().iter().map(|line| line["message"].as_str().unwrap().to_owned());
        all.filter(|line| !line.contains("net::ERR_CONNECTION_REFUSED")).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = format!("-{}", self.driver.id());
        Command::new("kill").args(["-KILL", "--", &group]).status().ok();
        self.driver.wait().ok();
    }
}

fn driver() -> Option<PathBuf> {
    let named = env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let found = named.or_else(|| Some(DRIVER.into()).filter(|path: &PathBuf| path.is_file()));
    if found.is_none() {
        // Past the test harness, which swallows what `eprintln!` says.
        let line = "SKIPPED: no chromedriver; Debian has it in the packages chromium and chromium-driver\n";
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    found
}

/// The browser, where Debian puts it; else the driver looks for one.
fn chromium() -> Option<&'static Path> {
    Some(Path::new(CHROMIUM)).filter(|path| path.is_file())
}
