//! `[decision_log]` (own addition): whether decisions are written down, where, and how many of them.

use std::path::{Path, PathBuf};

use super::{
    keys::Keys,
    kind::{Choice, FRACTION, FilePath, Whole, count, whole},
};

/// Megabytes of a file.
const MEGABYTES: Whole<u64> = whole(1, 1_048_576);

/// `[decision_log]`
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionLogConfig {
    /// Where to.
    pub output: DecisionOutput,
    /// The file, with [`DecisionOutput::File`]; set then.
    pub file: Option<PathBuf>,
    /// Megabytes of 1,000,000 bytes from which another file is begun.
    pub max_size_mb: u64,
    /// Full files that are kept.
    pub max_files: u32,
    /// Share of requests, 0 to 1.
    pub sample: f64,
}

/// Where decisions are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionOutput {
    /// Nowhere.
    Off,
    /// To standard output.
    Stdout,
    /// To a file.
    File,
}

const OUTPUTS: Choice<DecisionOutput> = Choice(&[
    ("off", DecisionOutput::Off),
    ("stdout", DecisionOutput::Stdout),
    ("file", DecisionOutput::File),
]);

impl Default for DecisionLogConfig {
    fn default() -> Self {
        Self { output: DecisionOutput::Off, file: None, max_size_mb: 100, max_files: 5, sample: 1.0 }
    }
}

impl DecisionLogConfig {
    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        let sure = keys.key("output", OUTPUTS, &mut self.output);
        let to_file = self.output == DecisionOutput::File;
        keys.maybe("file", FilePath, (&mut self.file, sure && to_file));
        keys.key("max_size_mb", MEGABYTES, &mut self.max_size_mb);
        keys.key("max_files", count(1), &mut self.max_files);
        keys.key("sample", FRACTION, &mut self.sample);
        // What is printed as it is in force has all keys: defaults are no mistake.
        let plain = Self::default();
        for (key, set) in [
            ("file", self.file.is_some()),
            ("max_size_mb", self.max_size_mb != plain.max_size_mb),
            ("max_files", self.max_files != plain.max_files),
        ] {
            if set && sure && !to_file {
                keys.idle(&[key], "without `output = \"file\"`");
            }
        }
    }

    pub(super) fn resolve(&mut self, dir: &Path) {
        self.file = self.file.take().map(|file| dir.join(file));
    }
}
