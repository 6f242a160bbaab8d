//! What a request's pool publishes: which model it asks for, what serves that, and which names its tenant may use.
//!
//! The pool is named by a trusted source, so one that is not there is no fault of the client's.

use std::sync::Arc;

use crate::{
    policy::{
        compile::Policies,
        eval::{Backend, Pool, Provider},
    },
    types::{ErrorKind, Rejection},
};

use super::{Incoming, field::Backing};

/// A request's pool.
pub(super) struct InPool {
    pub pool: Arc<Pool>,
    /// Index of the model that it asks for; `None`: it names none.
    pub model: Option<usize>,
}

/// The pool that a request names; `None`: it names none.
///
/// # Errors
/// It is not there, or its name is of several.
pub(super) fn named(policies: &Policies, incoming: &Incoming) -> Result<Option<Arc<Pool>>, Rejection> {
    let Some(name) = incoming.pool.as_deref() else { return Ok(None) };
    let found = policies.pool(name).map_err(|why| {
        // By the request: it is counted as refused, and the client is told.
        tracing::debug!(pool = name, %why, "a request names an InferencePool that is not there");
        Rejection::new(ErrorKind::PoolNotFound, "The route of this request has no models at the moment.")
    })?;
    Ok(Some(found.clone()))
}

impl InPool {
    /// What the request asks for of that pool.
    ///
    /// # Errors
    /// The pool does not publish the model, or not for the request's tenant.
    pub fn of(pool: Arc<Pool>, model: Option<&str>, tenant: Option<&str>) -> Result<Self, Rejection> {
        let index = match model {
            None => None,
            Some(name) => Some(pool.find(name, tenant).ok_or_else(|| not_published(&pool, name, tenant))?),
        };
        Ok(Self { pool, model: index })
    }

    /// The workers behind the model; without one, those behind any that the tenant may ask for.
    pub fn backings(&self, tenant: Option<&str>) -> Vec<Backing> {
        let Some(index) = self.model else {
            let admitted = self.pool.models.iter().filter(|model| model.admits(tenant));
            // A provider has to be told which model.
            let workers = admitted.flat_map(|model| &model.backends).filter(|one| one.provider.is_none());
            let backing = |set: &Arc<str>| Backing { set: Some(set.clone()), ..Backing::anyone(None) };
            return workers.map(|backend| backing(&backend.source)).collect();
        };
        let backends = self.pool.models[index].backends.iter().enumerate();
        let workers = backends.filter(|(_, backend)| backend.provider.is_none());
        let backing = |(index, backend): (usize, &Backend)| Backing {
            set: Some(backend.source.clone()),
            model: Some(backend.model.clone()),
            backend: index,
        };
        workers.map(backing).collect()
    }

    /// The providers behind the model, each with the index of its backend; without one, none.
    pub fn providers(&self) -> impl Iterator<Item = (usize, &Arc<Provider>)> {
        self.model.into_iter().flat_map(|index| self.pool.models[index].providers())
    }
}

fn not_published(pool: &Pool, model: &str, tenant: Option<&str>) -> Rejection {
    Rejection::new(ErrorKind::ModelNotFound, pool.unpublished(model, tenant))
}
