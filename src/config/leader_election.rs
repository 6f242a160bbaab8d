//! `[leader_election]`: which replica writes the status of resources.
//!
//! Invariant: a lease is renewed before it runs out: `renew_grace` < `lease_duration`. A Lease can say how long it is
//! valid, and a replica that dies is missed for no longer than an hour.

use std::time::Duration;

use super::{
    keys::Keys,
    kind::{Bool, SECS, SECS_OF_AN_HOUR},
    selector::object_name,
};

/// `[leader_election]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElectionConfig {
    /// Contend for the Lease.
    pub enabled: bool,
    /// Its name.
    pub lease_name: String,
    /// Its namespace; unset: inherited.
    pub namespace: Option<String>,
    /// How long it is valid.
    pub lease_duration: Duration,
    /// It is renewed once within this of running out.
    pub renew_grace: Duration,
    /// Pause after a Lease operation that failed.
    pub retry: Duration,
}

impl Default for LeaderElectionConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            lease_name: "bllmp".into(),
            namespace: None,
            lease_duration: Duration::from_secs(15),
            renew_grace: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl LeaderElectionConfig {
    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        keys.key("enabled", Bool, &mut self.enabled);
        keys.key("lease_name", object_name(), &mut self.lease_name);
        keys.optional("namespace", object_name(), &mut self.namespace);
        keys.key("lease_duration_secs", SECS_OF_AN_HOUR, &mut self.lease_duration);
        keys.key("renew_grace_secs", SECS, &mut self.renew_grace);
        keys.key("retry_secs", SECS, &mut self.retry);
    }
}
