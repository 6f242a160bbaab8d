//! The pass that reads: slots are filled from a TOML table, what does not do is reported, what nobody asked
//! for is an error at the top level of the configuration and a warning everywhere else.

use std::mem;

use toml::{Table, Value};

use super::{
    keys::Keys,
    kind::Kind,
    report::{Problem, Report, did_you_mean, nearest, shown_key},
};

/// What is said of a table that was written as something else.
fn array_of_tables(name: &str) -> String {
    format!("an array of tables: write `[[{name}]]` instead of `[{name}]`")
}

/// A reading pass, at one table.
pub(super) struct Reader<'t> {
    /// `None`: the table is not there, its keys have their defaults.
    table: Option<&'t Table>,
    path: String,
    known: Vec<&'static str>,
    pub(super) report: Report,
}

impl<'t> Reader<'t> {
    pub(super) fn new(root: &'t Table) -> Self {
        Self { table: Some(root), path: String::new(), known: Vec::new(), report: Report::default() }
    }

    /// Unknown keys of the root are errors.
    pub(super) fn refuse_unknown(mut self) -> Report {
        for (key, nearest) in self.unknown() {
            let mut accepted = self.known.clone();
            accepted.sort_unstable();
            let accepted = accepted.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            self.report.push(key, Problem::Unknown { accepted, nearest: nearest.map(Into::into) });
        }
        self.report
    }

    /// Unknown keys of the root are warnings.
    pub(super) fn ignore_unknown(mut self) -> Report {
        self.warn_unknown();
        self.report
    }

    fn warn_unknown(&mut self) {
        for (key, nearest) in self.unknown() {
            let warning =
                format!("`{}` is no known key and is ignored{}", self.at(&key), did_you_mean(nearest));
            self.report.warnings.push(warning);
        }
    }

    fn unknown(&self) -> Vec<(String, Option<&'static str>)> {
        let keys = self.table.into_iter().flat_map(Table::keys);
        let unknown = keys.filter(|key| !self.known.contains(&key.as_str()));
        unknown.map(|key| (shown_key(key), nearest(key, &self.known))).collect()
    }

    fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn raw(&mut self, name: &'static str) -> Option<&'t Value> {
        self.known.push(name);
        self.table?.get(name)
    }

    fn read<K: Kind>(&mut self, name: &str, kind: &K, raw: &Value) -> Option<K::Value> {
        let value = kind.read(raw);
        if value.is_none() {
            let path = self.at(name);
            self.report.reject(path, raw, kind.accepted());
        }
        value
    }

    fn missing(&mut self, name: &str, accepted: String) {
        let path = self.at(name);
        self.report.push(path, Problem::Missing { accepted });
    }

    /// Runs `keys` at an inner table.
    fn inside(&mut self, path: String, table: Option<&'t Table>, keys: impl FnOnce(&mut Self)) {
        let outer = (
            mem::replace(&mut self.path, path),
            mem::replace(&mut self.table, table),
            mem::take(&mut self.known),
        );
        keys(self);
        self.warn_unknown();
        (self.path, self.table, self.known) = outer;
    }
}

impl Keys for Reader<'_> {
    fn key<K: Kind>(&mut self, name: &'static str, kind: K, slot: &mut K::Value) -> bool {
        let Some(raw) = self.raw(name) else { return true };
        self.read(name, &kind, raw).map(|value| *slot = value).is_some()
    }

    fn required<K: Kind>(&mut self, name: &'static str, kind: K, slot: &mut K::Value) -> bool {
        let mut found = None;
        let ok = self.maybe(name, kind, (&mut found, true));
        found.into_iter().for_each(|value| *slot = value);
        ok
    }

    fn maybe<K: Kind>(
        &mut self,
        name: &'static str,
        kind: K,
        (slot, due): (&mut Option<K::Value>, bool),
    ) -> bool {
        match self.raw(name) {
            Some(raw) => {
                *slot = self.read(name, &kind, raw);
                slot.is_some()
            }
            None if due => {
                self.missing(name, kind.accepted());
                false
            }
            None => true,
        }
    }

    fn section(&mut self, name: &'static str, keys: impl FnOnce(&mut Self)) {
        let path = self.at(name);
        match self.raw(name) {
            None => self.inside(path, None, keys),
            Some(Value::Table(table)) => self.inside(path, Some(table), keys),
            Some(other) => {
                self.report.reject(path, other, format!("a table: write `[{}]`", self.header(name)));
            }
        }
    }

    fn array<T>(
        &mut self,
        name: &'static str,
        (items, blank): (&mut Vec<T>, fn() -> T),
        mut keys: impl FnMut(&mut T, &mut Self),
    ) {
        let path = self.at(name);
        match self.raw(name) {
            None => {}
            Some(Value::Array(elements)) => {
                for (index, element) in elements.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    let Value::Table(table) = element else {
                        self.report.reject(path, element, "a table");
                        continue;
                    };
                    let mut item = blank();
                    self.inside(path, Some(table), |reader| keys(&mut item, reader));
                    items.push(item);
                }
            }
            Some(other) => self.report.reject(path, other, array_of_tables(name)),
        }
    }

    fn idle(&mut self, names: &[&str], why: &str) {
        for name in names.iter().filter(|name| self.table.is_some_and(|table| table.contains_key(**name))) {
            self.report.warnings.push(format!("`{}` has no effect {why}", self.at(name)));
        }
    }
}

impl Reader<'_> {
    /// The header of the inner table `name`: the path without indexes.
    fn header(&self, name: &str) -> String {
        let whole = self.at(name);
        whole.split('.').map(|step| step.split('[').next().unwrap_or(step)).collect::<Vec<_>>().join(".")
    }
}
