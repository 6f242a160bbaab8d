//! What is logged of where resources stand: each word once, when it is new.

use std::collections::BTreeMap;

use super::{
    files::Declared,
    instruments::{Change, Instruments},
};
use crate::policy::{FieldPath, Problem, Standing, in_one_line};

/// What has been told.
#[derive(Default)]
pub(super) struct News {
    /// By what a resource is called, and whether it is of a file: the cluster may have one of the same name.
    told: BTreeMap<(bool, String), Words>,
}

#[derive(Clone, Default, PartialEq)]
struct Words {
    rejected: String,
    unresolved: String,
}

impl News {
    /// Tells what is new; the first `of_files` are of files.
    pub(super) fn tell(&mut self, (standings, of_files): (&[Standing], usize), instruments: &Instruments) {
        let before = std::mem::take(&mut self.told);
        for (index, standing) in standings.iter().enumerate() {
            let resource = format!("{} {}", standing.kind, standing.key);
            let words = Words {
                rejected: in_one_line(&standing.rejected),
                unresolved: in_one_line(&standing.unresolved),
            };
            let of_file = index < of_files;
            let known = before.get(&(of_file, resource.clone()));
            let known = known.cloned().unwrap_or_default();
            if !words.rejected.is_empty() && words.rejected != known.rejected {
                instruments.count(Change::Refused);
                let (why, active) = (&words.rejected, standing.active);
                tracing::error!(resource, why, active, "a resource is not accepted");
            }
            if !words.unresolved.is_empty() && words.unresolved != known.unresolved {
                tracing::warn!(resource, why = words.unresolved, "a resource names what is not there");
            }
            if words == Words::default() && words != known {
                tracing::info!(resource, "the resource is in force, and all that it names exists");
            }
            self.told.insert((of_file, resource), words);
        }
    }
}

/// Where an object of the cluster has the name of a resource of a file, it is told which.
pub(super) fn name_places(standings: &mut [Standing], declared: &[Declared]) {
    let (of_files, objects) = standings.split_at_mut(declared.len());
    for object in objects {
        let same = |one: &Standing| (one.kind, &one.key) == (object.kind, &object.key);
        let Some(index) = of_files.iter().position(same) else { continue };
        let (name, place) = (&object.key.name, &declared[index].place);
        let message = format!("is {:?}, as of the {} in {place}, which is in force", &**name, object.kind);
        object.rejected = vec![Problem::new(FieldPath::of("metadata.name"), message)];
        object.active = None;
    }
}
