//! Holds the configuration to its reference: every default and every constraint, as data. Where a table
//! and the code differ, one of them is wrong; the table is what users were promised.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod check;
mod constraints;
mod defaults;
mod files;
mod properties;
mod workers;

use std::{fmt::Write as _, path::Path};

use kinference::config::{Config, ConfigErrors, Warnings};

/// What the smallest valid file needs, by section. Patches replace lines with the same key.
const MINIMAL: &[(&str, &str)] = &[
    ("", "listen = \"0.0.0.0:9002\""),
    ("[[profile]]", "name = \"p\""),
    ("[profile.tokenize]", ""),
    ("[profile.predictor]", ""),
    ("[profile.picker]", ""),
    ("[[workerset]]", "name = \"s\"\nprofile = \"p\"\nkv_block_size = 16"),
    ("[workerset.discovery]", "workers_file = \"workers.toml\""),
    ("[workerset.discovery.defaults]", ""),
];

/// The minimal file with `lines` added to sections; a line replaces one with the same key, `-key` takes one away.
fn file(patches: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let key = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
    for (section, lines) in MINIMAL {
        let added: Vec<_> =
            patches.iter().filter(|(of, _)| of == section).flat_map(|(_, lines)| lines.lines()).collect();
        let kept =
            lines.lines().filter(|line| !added.iter().any(|a| key(a).trim_start_matches('-') == key(line)));
        let added = added.iter().filter(|line| !line.starts_with('-')).copied();
        writeln!(out, "{section}").unwrap();
        kept.chain(added).for_each(|line| writeln!(out, "{line}").unwrap());
    }
    for (section, lines) in patches.iter().filter(|(of, _)| MINIMAL.iter().all(|(section, _)| section != of))
    {
        writeln!(out, "{section}\n{lines}").unwrap();
    }
    out
}

fn parse(text: &str) -> Result<(Config, Warnings), ConfigErrors> {
    Config::parse(text, Path::new("/etc/kinference"))
}

/// Every error as (path, what it says).
fn errors(text: &str) -> Vec<(String, String)> {
    match parse(text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.errors().iter().map(|e| (e.path.clone(), e.to_string())).collect(),
    }
}
