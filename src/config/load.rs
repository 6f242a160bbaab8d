//! From files to a [`Config`] and to worker entries, with all errors in one report.
//!
//! Paths in the file are resolved against the directory that the file is in.

use std::{fs, path::Path};

use toml::Table;

use super::{
    Config, ConfigErrors, Discovery, WorkerEntry, WorkerSetConfig, checks,
    checks::TakenIds,
    keys::Keys,
    reader::Reader,
    report::{Loaded, Problem, Report, named, shortened},
};

impl Config {
    /// Validates the text of a configuration file; relative paths are resolved against `dir`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str, dir: &Path) -> Loaded<Self> {
        let (config, report) = read_config(text, dir);
        report.done(config)
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(path: &Path) -> Loaded<Self> {
        let dir = path.parent().unwrap_or(Path::new(""));
        // Without a working directory relative paths stay as they are.
        let dir = if dir.as_os_str().is_empty() { std::env::current_dir() } else { std::path::absolute(dir) };
        let loaded = read_file(path).and_then(|text| {
            let (config, report) = read_config(&text, &dir.unwrap_or_default());
            report.done(config)
        });
        in_file(loaded, path)
    }

    fn resolve(&mut self, dir: &Path) {
        for set in &mut self.workersets {
            if let Discovery::Static { workers_file } = &mut set.discovery {
                *workers_file = dir.join(&workers_file);
            }
        }
        self.tls.resolve(dir);
        self.policy.resolve(dir);
        self.decision_log.resolve(dir);
        self.tokenize.mount_dir = self.tokenize.mount_dir.take().map(|mount| dir.join(mount));
    }
}

/// Validates the text of a workers file. In mock mode `zmq_endpoint` is optional. Uniqueness of ids is checked within
/// the file only; see [`load_workers`].
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse_workers(text: &str, mock_mode: bool) -> Loaded<Vec<WorkerEntry>> {
    let root = match parse_toml(text) {
        Ok(root) => root,
        Err(report) => return report.done(Vec::new()),
    };
    let mut workers = Vec::new();
    let mut reader = Reader::new(&root);
    reader.array("workers", (&mut workers, WorkerEntry::blank), |worker, keys| worker.keys(keys, mock_mode));
    let mut report = reader.ignore_unknown();
    if !root.contains_key("workers") {
        // An empty file is rather one that is being written than a fleet without workers.
        let accepted = "`[[workers]]` tables, or `workers = []` for none".into();
        report.push("workers", Problem::Missing { accepted });
    }
    TakenIds::default().take(&workers, |index| format!("workers[{index}]"), &mut report);
    report.done(workers)
}

/// Reads the workers files of all static worker sets; ids must be unique across them. Workers are in the order of
/// their sets, each with its set.
///
/// # Errors
/// Everything that is wrong with all of the files.
pub fn load_workers(config: &Config) -> Loaded<Vec<(&WorkerSetConfig, Vec<WorkerEntry>)>> {
    let (mut report, mut sets, mut taken) = (Report::default(), Vec::new(), TakenIds::default());
    for set in &config.workersets {
        let Discovery::Static { workers_file } = &set.discovery else { continue };
        let loaded = read_file(workers_file).and_then(|text| parse_workers(&text, config.mock_mode));
        let checked = loaded.and_then(|(workers, warnings)| {
            let mut of_file = Report::default();
            of_file.warnings = warnings;
            taken.take(&workers, |_| format!("worker set `{}`", set.name), &mut of_file);
            of_file.done(workers)
        });
        match in_file(checked, workers_file) {
            Ok((workers, warnings)) => {
                report.warnings.extend(warnings);
                sets.push((set, workers));
            }
            Err(errors) => report.merge(errors),
        }
    }
    report.done(sets)
}

fn read_config(text: &str, dir: &Path) -> (Config, Report) {
    let mut config = Config::blank();
    let root = match parse_toml(text) {
        Ok(root) => root,
        Err(report) => return (config, report),
    };
    let mut reader = Reader::new(&root);
    config.keys(&mut reader);
    let mut report = reader.refuse_unknown();
    checks::config(&config, &mut report);
    config.resolve(dir);
    (config, report)
}

fn in_file<T>(loaded: Loaded<T>, file: &Path) -> Loaded<T> {
    let (value, warnings) = loaded.map_err(|errors| errors.in_file(file))?;
    Ok((value, named(file, warnings)))
}

fn read_file(path: &Path) -> Result<String, ConfigErrors> {
    let failed = |problem| {
        let mut report = Report::default();
        report.push("", problem);
        report.done(String::new()).map(|(text, _)| text)
    };
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return failed(Problem::Unreadable(error.to_string())),
    };
    String::from_utf8(bytes).or_else(|error| {
        let valid =
            String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned();
        failed(syntax(&valid, valid.len(), "not UTF-8"))
    })
}

fn parse_toml(text: &str) -> Result<Table, Report> {
    text.parse::<Table>().map_err(|error| {
        let mut report = Report::default();
        report.push("", syntax(text, error.span().map_or(0, |span| span.start), error.message()));
        report
    })
}

fn syntax(text: &str, offset: usize, message: &str) -> Problem {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
    Problem::Syntax { line, column, message: shortened(&message.lines().collect::<Vec<_>>().join("; ")) }
}
