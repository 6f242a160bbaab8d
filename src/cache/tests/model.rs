//! Random histories against a model that knows nothing of trees: it keeps every copy and counts prefixes by walking.
//!
//! Engines of two workers with two ranks each; three groups, three tiers; paths over an alphabet of two.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const RANKS: u64 = 4; // workers 1 and 2, two ranks each

/// Groups 0 and 1 are of full attention.
const KINDS: [&str; 3] = ["full_attention", "mla_attention", "sliding_window"];

fn tier(n: usize) -> Tier {
    [Tier::Gpu, Tier::Cpu, Tier::Other("DISK".into())][n].clone()
}

#[derive(Clone, Debug)]
enum Step {
    Store {
        rank: usize,
        group: usize,
        tier: usize,
        path: Vec<u32>,
        from: usize,
    },
    /// Blocks of a path, tail first.
    Remove {
        rank: usize,
        group: usize,
        tier: usize,
        path: Vec<u32>,
        from: usize,
    },
    Clear(usize),
    /// A new writer; the old one goes on writing in vain.
    Fence(usize),
    RemoveWorker(u64),
    Rebuild,
}

fn path() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(1u32..3, 1..7)
}

/// Mostly what plain engines do, and everything else often enough.
fn step() -> impl Strategy<Value = Step> {
    let place = || {
        (
            0..RANKS as usize,
            prop_oneof![8 => Just(0usize), 1 => 1..3usize],
            prop_oneof![3 => Just(0usize), 1 => 1..3usize],
        )
    };
    let spot =
        || (place(), path(), 0usize..6).prop_map(|(place, path, from)| (place, from % path.len(), path));
    prop_oneof![
        10 => (spot(), any::<bool>()).prop_map(|(((rank, group, tier), from, path), whole)| {
            Step::Store { rank, group, tier, path, from: if whole { 0 } else { from } }
        }),
        8 => spot().prop_map(|((rank, group, tier), from, path)| Step::Remove { rank, group, tier, path, from }),
        1 => (0..RANKS as usize).prop_map(Step::Clear),
        1 => (0..RANKS as usize).prop_map(Step::Fence),
        1 => (1..3u64).prop_map(Step::RemoveWorker),
        1 => Just(Step::Rebuild),
    ]
}

/// Copies of one rank: (group, tier, path) -> how many.
#[derive(Default)]
struct Model {
    copies: BTreeMap<(usize, usize, Vec<u32>), u32>,
    groups: Vec<usize>,
}

impl Model {
    fn has(&self, group: usize, tiers: &[usize], path: &[u32]) -> bool {
        tiers.iter().any(|tier| self.copies.contains_key(&(group, *tier, path.to_vec())))
    }

    fn store(&mut self, (group, tier): (usize, usize), path: &[u32], from: usize) {
        if group < 2 && !self.groups.contains(&group) {
            self.groups.push(group);
        }
        let parent = from == 0 || group == 2 || (0..2).any(|g| self.has(g, &[0, 1, 2], &path[..from]));
        if parent {
            for end in from + 1..=path.len() {
                *self.copies.entry((group, tier, path[..end].to_vec())).or_default() += 1;
            }
        }
    }

    fn remove(&mut self, (group, tier): (usize, usize), path: &[u32]) {
        let key = (group, tier, path.to_vec());
        if let Some(copies) = self.copies.get_mut(&key) {
            *copies -= 1;
            if *copies == 0 {
                self.copies.remove(&key);
            }
        }
    }

    fn leading(&self, tiers: &[usize], path: &[u32]) -> u32 {
        let held = |end: usize| self.groups.iter().all(|group| self.has(*group, tiers, &path[..end]));
        if self.groups.is_empty() {
            return 0;
        }
        (1..=path.len()).take_while(|end| held(*end)).count() as u32
    }

    fn blocks(&self, lower: bool) -> usize {
        let mut paths: Vec<_> = self
            .copies
            .keys()
            .filter(|(group, tier, _)| *group < 2 && (*tier > 0) == lower)
            .map(|k| &k.2)
            .collect();
        paths.sort();
        paths.dedup();
        paths.len()
    }
}

struct World {
    index: Arc<CacheIndex>,
    writers: Vec<CacheWriter>,
    /// Of replaced writers; and of those whose worker is gone until they are written to again.
    models: Vec<Model>,
}

const fn worker_of(rank: usize) -> u64 {
    1 + rank as u64 / 2
}

impl World {
    fn new() -> Self {
        let index = index();
        let writers = (0..RANKS as usize).map(|rank| Self::open(&index, rank)).collect();
        Self { index, writers, models: (0..RANKS).map(|_| Model::default()).collect() }
    }

    fn open(index: &Arc<CacheIndex>, rank: usize) -> CacheWriter {
        index.writer(WorkerId(worker_of(rank)), Rank(rank as u32 % 2), BLOCK)
    }

    fn reopen(&mut self, rank: usize) {
        let new = Self::open(&self.index, rank);
        let mut old = std::mem::replace(&mut self.writers[rank], new);
        assert_eq!(old.apply(&store(&[1, 1, 1], 0)), Applied::Fenced);
        assert_eq!(old.apply(&KvEvent::Cleared), Applied::Fenced);
        self.models[rank] = Model::default();
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Store { rank, group: g, tier: t, path, from } => {
                let event = StoredBlocks {
                    tier: tier(*t),
                    group: group(*g as u32, KINDS[*g]),
                    ..blocks(path, *from)
                };
                self.writers[*rank].apply(&KvEvent::Stored(event));
                self.models[*rank].store((*g, *t), path, *from);
            }
            Step::Remove { rank, group, tier: t, path, from } => {
                let hashes = handles(path, *from).into_iter().rev().collect();
                self.writers[*rank].apply(&KvEvent::Removed {
                    hashes,
                    tier: tier(*t),
                    group: Some(*group as u32),
                });
                for end in *from + 1..=path.len() {
                    self.models[*rank].remove((*group, *t), &path[..end]);
                }
            }
            Step::Clear(rank) => {
                self.writers[*rank].clear();
                self.models[*rank] = Model::default();
            }
            Step::Fence(rank) => self.reopen(*rank),
            Step::RemoveWorker(worker) => {
                self.index.remove_worker(WorkerId(*worker));
                for rank in (0..RANKS as usize).filter(|rank| worker_of(*rank) == *worker) {
                    self.reopen(rank);
                }
            }
            Step::Rebuild => self.index.rebuild().await,
        }
    }

    async fn check(&self, path: &[u32]) {
        let mut want: HashMap<WorkerId, Overlap> = HashMap::new();
        for (rank, model) in self.models.iter().enumerate() {
            let (gpu, any) = (model.leading(&[0], path), model.leading(&[0, 1, 2], path));
            if any > 0 {
                let entry = want.entry(WorkerId(worker_of(rank))).or_default();
                entry.confirmed = entry.confirmed.max(gpu);
                entry.expected = entry.confirmed;
                entry.any_tier = entry.any_tier.max(any);
            }
        }
        assert_eq!(overlaps(&self.index, &prompt(path)).await, want, "of {path:?}");
    }

    fn check_counts(&self) {
        for worker in 1..3 {
            let ranks =
                (0..RANKS as usize).filter(|rank| worker_of(*rank) == worker).map(|rank| &self.models[rank]);
            let (gpu, lower) = ranks.fold((0, 0), |sum, m| (sum.0 + m.blocks(false), sum.1 + m.blocks(true)));
            assert_eq!(self.index.blocks(WorkerId(worker)), crate::cache::BlockCounts { gpu, lower });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn any_history_ends_where_the_model_ends(
        steps in prop::collection::vec(step(), 1..60),
        prompts in prop::collection::vec(path(), 1..12),
        early in 0usize..60,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            for (i, step) in steps.iter().enumerate() {
                world.take(step).await;
                if i == early {
                    world.check(&prompts[0]).await;
                }
            }
            for prompt in &prompts {
                world.check(prompt).await;
            }
            world.check_counts();
        });
    }
}
