//! `/v1/models` of a pool: the names that its tenant may ask for, in the shape of either API.

use std::sync::Arc;

use serde_json::{Value, json};

use super::unknown_model;
use crate::{
    policy::eval::Pool,
    types::{ErrorShape, Rejection},
};

/// Who is said to own a published model.
const OWNER: &str = "kinference";
/// When published models are said to have been made: nobody knows.
const MADE: (u64, &str) = (0, "1970-01-01T00:00:00Z");

/// All of them, or the one of that name or alias.
///
/// # Errors
/// There is none of that name for the tenant.
pub(super) fn listing(
    pool: &Pool,
    (tenant, only): (Option<&str>, Option<&str>),
    shape: ErrorShape,
) -> Result<Value, Rejection> {
    let Some(name) = only else {
        let names: Vec<_> = pool.names(tenant).cloned().collect();
        return Ok(list(&names, shape));
    };
    match pool.find(name, tenant) {
        Some(_) => Ok(one(name, shape)),
        None => Err(unknown_model(name)),
    }
}

fn list(names: &[Arc<str>], shape: ErrorShape) -> Value {
    let data: Vec<_> = names.iter().map(|name| one(name, shape)).collect();
    match shape {
        ErrorShape::OpenAi => json!({"object": "list", "data": data}),
        ErrorShape::Anthropic => {
            json!({"data": data, "has_more": false, "first_id": names.first(), "last_id": names.last()})
        }
    }
}

fn one(name: &str, shape: ErrorShape) -> Value {
    match shape {
        ErrorShape::OpenAi => json!({"id": name, "object": "model", "created": MADE.0, "owned_by": OWNER}),
        ErrorShape::Anthropic => {
            json!({"type": "model", "id": name, "display_name": name, "created_at": MADE.1})
        }
    }
}
