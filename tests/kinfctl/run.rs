//! Runs `kinfctl`, and holds what it prints to the files in `snapshots/`.

use std::{
    env,
    fmt::Write,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

/// Set, snapshots are written instead of compared.
const WRITE: &str = "KINFERENCE_TEST_WRITE_SNAPSHOTS";

/// What a run came to.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// All of it, for a snapshot.
    pub fn whole(&self) -> String {
        let mut text = self.out.clone();
        if !self.err.is_empty() {
            write!(text, "--- stderr\n{}", self.err).unwrap();
        }
        writeln!(text, "--- exit code {}", self.code).unwrap();
        text
    }
}

/// Runs it in `tests/kinfctl`, so that paths in what it prints are the same everywhere.
pub fn kinfctl(args: &[&str]) -> Ran {
    with_input(args, "")
}

/// The same, with a standard input.
pub fn with_input(args: &[&str], input: &str) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kinfctl"))
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kinfctl"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end without having read all.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// Holds a text to its file; all that differ are told together.
#[derive(Default)]
pub struct Snapshots {
    stale: Vec<String>,
}

impl Snapshots {
    pub fn hold(&mut self, name: &str, text: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kinfctl/snapshots").join(name);
        if env::var_os(WRITE).is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            return fs::write(path, text).unwrap();
        }
        let wanted = fs::read_to_string(&path).unwrap_or_default();
        if wanted != text {
            self.stale.push(format!("{name}: wanted\n{wanted}\ngot\n{text}"));
        }
    }

    pub fn done(self) {
        let renew = format!("{WRITE}=1 cargo nextest run --test kinfctl writes the snapshots");
        assert!(self.stale.is_empty(), "{}\n{renew}", self.stale.join("\n"));
    }
}

/// One text.
pub fn snapshot(name: &str, text: &str) {
    let mut all = Snapshots::default();
    all.hold(name, text);
    all.done();
}
