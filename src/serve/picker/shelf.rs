//! Things kept for a while, by token. Pure: time is passed in.
//!
//! Invariant: at most `capacity` things; each leaves when nobody has touched it for `ttl`. All have the same `ttl`, so the
//! order in which they were touched is the order in which they leave.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use super::ids::Token;

/// The shelf.
pub struct Shelf<T> {
    ttl: Duration,
    capacity: usize,
    items: HashMap<Token, (u64, T)>,
    /// The longest untouched first: since when, and which.
    order: BTreeMap<u64, (Instant, Token)>,
    next: u64,
}

impl<T> Shelf<T> {
    /// An empty one.
    pub fn new(ttl: Duration, capacity: usize) -> Self {
        Self { ttl, capacity, items: HashMap::new(), order: BTreeMap::new(), next: 0 }
    }

    /// Puts a thing there. Where it is one too many, the longest untouched one falls off.
    pub fn put(&mut self, token: Token, item: T, now: Instant) -> Option<T> {
        let place = self.place(token, now);
        self.items.insert(token, (place, item));
        if self.items.len() > self.capacity { self.pop() } else { None }
    }

    /// Takes a thing away.
    pub fn take(&mut self, token: Token) -> Option<T> {
        let (place, item) = self.items.remove(&token)?;
        self.order.remove(&place);
        Some(item)
    }

    /// A thing there, whose time starts anew.
    pub fn touch(&mut self, token: Token, now: Instant) -> Option<&mut T> {
        let old = self.items.get(&token)?.0;
        self.order.remove(&old);
        let new = self.place(token, now);
        let (place, item) = self.items.get_mut(&token)?;
        *place = new;
        Some(item)
    }

    /// Whether there is such a thing.
    pub fn has(&self, token: Token) -> bool {
        self.items.contains_key(&token)
    }

    /// Takes away what has been there for too long.
    pub fn expire(&mut self, now: Instant) -> Vec<T> {
        let mut gone = Vec::new();
        while self.order.first_key_value().is_some_and(|(_, (since, _))| *since + self.ttl <= now) {
            gone.extend(self.pop());
        }
        gone
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    fn place(&mut self, token: Token, now: Instant) -> u64 {
        let place = self.next;
        self.next += 1;
        self.order.insert(place, (now, token));
        place
    }

    fn pop(&mut self) -> Option<T> {
        let (_, (_, token)) = self.order.pop_first()?;
        self.items.remove(&token).map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Put(u8),
        Take(u8),
        Touch(u8),
        Pass(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..12u8).prop_map(Op::Put),
            (0..12u8).prop_map(Op::Take),
            (0..12u8).prop_map(Op::Touch),
            (0..6u64).prop_map(Op::Pass),
        ]
    }

    proptest! {
        #[test]
        fn a_shelf_is_a_list_of_what_was_touched_lately(ops in prop::collection::vec(op(), 0..80)) {
            const TTL: Duration = Duration::from_secs(10);
            let mut now = Instant::now();
            let mut shelf = Shelf::new(TTL, 5);
            let mut model: Vec<(u8, Instant)> = Vec::new();
            for op in ops {
                match op {
                    Op::Put(n) if model.iter().all(|(m, _)| *m != n) => {
                        model.push((n, now));
                        let fallen = (model.len() > 5).then(|| model.remove(0).0);
                        prop_assert_eq!(shelf.put(n.into(), n, now), fallen);
                    }
                    Op::Put(_) => {}
                    Op::Take(n) => {
                        let at = model.iter().position(|(m, _)| *m == n);
                        prop_assert_eq!(shelf.take(n.into()), at.map(|at| model.remove(at).0));
                    }
                    Op::Touch(n) => {
                        let at = model.iter().position(|(m, _)| *m == n);
                        at.into_iter().for_each(|at| { model.remove(at); model.push((n, now)); });
                        prop_assert_eq!(shelf.touch(n.into(), now).copied(), at.map(|_| n));
                    }
                    Op::Pass(secs) => {
                        now += Duration::from_secs(secs);
                        let gone = model.iter().take_while(|(_, since)| *since + TTL <= now).count();
                        let gone: Vec<u8> = model.drain(..gone).map(|(n, _)| n).collect();
                        prop_assert_eq!(shelf.expire(now), gone);
                    }
                }
                prop_assert_eq!(shelf.len(), model.len());
                prop_assert_eq!(shelf.order.len(), model.len());
                prop_assert!((0..12u8).all(|n| shelf.has(n.into()) == model.iter().any(|(m, _)| *m == n)));
            }
        }
    }
}
