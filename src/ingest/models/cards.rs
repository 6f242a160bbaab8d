//! The answer of `/v1/models` as cards. Pure; a card that makes no sense costs itself only.

use std::sync::Arc;

use serde_json::Value;

use crate::fleet::ModelCard;

/// More cards than any engine has adapters for: what comes after them is left out.
const MAX_CARDS: usize = 1024;
/// Longest model name, in bytes.
const MAX_NAME: usize = 512;

/// An answer that is no list of models.
#[derive(Debug, thiserror::Error)]
pub enum BadModels {
    /// It is no JSON.
    #[error("no JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// There is no `data` array.
    #[error("no `data` array")]
    NoData,
}

/// Reads the body of `/v1/models`. An adapter without a length of its own has its base's.
///
/// # Errors
/// A body that is no JSON object with a `data` array.
pub fn parse(body: &[u8]) -> Result<Vec<ModelCard>, BadModels> {
    let answer: Value = serde_json::from_slice(body)?;
    let data = answer.get("data").and_then(Value::as_array).ok_or(BadModels::NoData)?;
    let own: Vec<_> = data.iter().filter_map(card).take(MAX_CARDS).collect();
    let length = |id: &Arc<str>| own.iter().find(|card| card.id == *id)?.max_model_len;
    let inherit = |card: &ModelCard| ModelCard {
        max_model_len: card.max_model_len.or_else(|| card.parent.as_ref().and_then(length)),
        ..card.clone()
    };
    Ok(own.iter().map(inherit).collect())
}

fn card(value: &Value) -> Option<ModelCard> {
    let name = |key| value.get(key).and_then(Value::as_str).filter(|s| !s.is_empty() && s.len() <= MAX_NAME);
    let max_model_len = value.get("max_model_len").and_then(Value::as_u64).filter(|len| *len > 0);
    Some(ModelCard {
        id: name("id")?.into(),
        parent: name("parent").map(Arc::from),
        max_model_len: max_model_len.and_then(|len| usize::try_from(len).ok()),
        owned_by: name("owned_by").unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> Vec<ModelCard> {
        let path = format!("{}/tests/fixtures/vllm-0.32/http/{name}.json", env!("CARGO_MANIFEST_DIR"));
        parse(&std::fs::read(path).unwrap()).unwrap()
    }

    fn made(id: &str, parent: Option<&str>, max_model_len: Option<usize>) -> ModelCard {
        ModelCard { id: id.into(), parent: parent.map(Arc::from), max_model_len, owned_by: "vllm".into() }
    }

    #[test]
    fn recordings_of_an_engine_are_read() {
        assert_eq!(read("v1_models"), [made("tiny", None, Some(4096))]);
        let want = [
            made("tiny", None, Some(4096)),
            made("adapter-a", Some("tiny"), Some(4096)),
            made("adapter-b", Some("tiny"), Some(4096)),
        ];
        assert_eq!(read("v1_models_lora"), want);
    }

    #[test]
    fn senseless_cards_cost_only_themselves() {
        let body = br#"{"data": [1, null, {}, {"id": 5}, {"id": ""},
            {"id": "a", "max_model_len": -3, "parent": "a", "owned_by": 7},
            {"id": "b", "max_model_len": 1e99, "parent": "gone"}, {"id": "c", "max_model_len": 0, "parent": null}]}"#;
        let cards = parse(body).unwrap();
        let seen: Vec<_> = cards.iter().map(|c| (&*c.id, c.max_model_len, &*c.owned_by)).collect();
        assert_eq!(seen, [("a", None, ""), ("b", None, ""), ("c", None, "")]);
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        for body in ["", "nope", "[]", "{}", r#"{"data": {}}"#, r#"{"error": {"code": 401}}"#] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
        assert_eq!(parse(br#"{"data": []}"#).unwrap(), []);
    }
}
