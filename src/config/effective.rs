//! The pass that writes: the effective configuration as TOML, every key with the value that is in force.
//!
//! Invariant: what is written parses back to the same [`Config`]. Keys without a value are comments.

use toml::Value;

use super::{Config, keys::Keys, kind::Kind};

/// A writing pass, at one table.
#[derive(Default)]
struct Writer {
    out: String,
    path: Vec<&'static str>,
}

impl Config {
    /// All of it as TOML.
    pub fn effective(&self) -> String {
        let mut writer = Writer::default();
        // A pass has mutable slots, for the reader's sake.
        self.clone().keys(&mut writer);
        writer.out
    }
}

impl Writer {
    fn line(&mut self, name: &str, value: &Value) {
        self.out.push_str(&format!("{name} = {value}\n"));
    }

    fn headed(&mut self, name: &'static str, (open, close): (&str, &str), keys: impl FnOnce(&mut Self)) {
        self.path.push(name);
        self.out.push_str(&format!("\n{open}{}{close}\n", self.path.join(".")));
        keys(self);
        self.path.pop();
    }
}

impl Keys for Writer {
    fn key<K: Kind>(&mut self, name: &'static str, kind: K, slot: &mut K::Value) -> bool {
        self.line(name, &kind.show(slot));
        true
    }

    fn required<K: Kind>(&mut self, name: &'static str, kind: K, slot: &mut K::Value) -> bool {
        self.key(name, kind, slot)
    }

    fn maybe<K: Kind>(
        &mut self,
        name: &'static str,
        kind: K,
        (slot, _): (&mut Option<K::Value>, bool),
    ) -> bool {
        match slot {
            Some(value) => self.line(name, &kind.show(value)),
            None => self.out.push_str(&format!("# {name} is unset\n")),
        }
        true
    }

    fn section(&mut self, name: &'static str, keys: impl FnOnce(&mut Self)) {
        self.headed(name, ("[", "]"), keys);
    }

    fn array<T>(
        &mut self,
        name: &'static str,
        (items, _): (&mut Vec<T>, fn() -> T),
        mut keys: impl FnMut(&mut T, &mut Self),
    ) {
        for item in items {
            self.headed(name, ("[[", "]]"), |writer| keys(item, writer));
        }
    }

    fn idle(&mut self, _: &[&str], _: &str) {}
}
