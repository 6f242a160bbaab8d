//! One pass over the keys of the configuration, for whoever makes it: the reader fills the slots from a
//! TOML table, the printer writes them out.
//!
//! Invariant: a section lists its scalar keys before its tables, as TOML wants them written.

use super::kind::Kind;

/// A pass over keys. The functions say `false` when the key was there but did not do: what depends on it can't be judged then.
pub(super) trait Keys {
    /// A key with a default: what is in `slot`.
    fn key<K: Kind>(&mut self, name: &'static str, kind: K, slot: &mut K::Value) -> bool;

    /// A key without a default; its slot holds a placeholder that an error keeps from getting out.
    fn required<K: Kind>(&mut self, name: &'static str, kind: K, slot: &mut K::Value) -> bool;

    /// A key that may be unset, unless it is due: `slot.1`.
    fn maybe<K: Kind>(&mut self, name: &'static str, kind: K, slot: (&mut Option<K::Value>, bool)) -> bool;

    /// A table inside this one.
    fn section(&mut self, name: &'static str, keys: impl FnOnce(&mut Self));

    /// An array of tables, `list.0`; each starts from what `list.1` makes.
    fn array<T>(
        &mut self,
        name: &'static str,
        list: (&mut Vec<T>, fn() -> T),
        keys: impl FnMut(&mut T, &mut Self),
    );

    /// Keys just gone through that have no effect here; `why` follows "has no effect".
    fn idle(&mut self, names: &[&str], why: &str);

    /// A key that may be unset.
    fn optional<K: Kind>(&mut self, name: &'static str, kind: K, slot: &mut Option<K::Value>) -> bool {
        self.maybe(name, kind, (slot, false))
    }
}
