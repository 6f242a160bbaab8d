//! What a request is about: the model, the prompt, and what about it can't be known.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    prompt::{DecodeError, ParsedRequest, decoded, model_named, parse},
    types::{Api, Degradation, ErrorKind, Rejection, RequestKind},
};

use super::{Incoming, IncomingBody};

/// Bodies above this are parsed off the async threads.
const PARSE_INLINE: usize = 64 * 1024;

/// A request, read.
#[derive(Debug, Default)]
pub(super) struct Subject {
    /// The model that it names.
    pub model: Option<Arc<str>>,
    /// Its body, where its prompt is to be tokenized.
    pub parsed: Option<Arc<ParsedRequest>>,
    /// The client wants a streamed answer.
    pub stream: bool,
    /// The stored response that it goes on from or asks for.
    pub made_before: Option<Arc<str>>,
    /// What is not known of it.
    pub degraded: Vec<Degradation>,
}

impl Subject {
    fn load_only(why: Degradation) -> Self {
        Self { degraded: vec![why], ..Self::default() }
    }

    /// An inference call whose model nobody serves is answered 404.
    pub(super) fn must_name_a_served_model(&self) -> bool {
        self.parsed.is_some() || self.made_before.is_some()
    }
}

/// Reads a request.
///
/// # Errors
/// A body that is not what its path and content type say.
pub(super) async fn read(incoming: &Incoming, cap: usize) -> Result<Subject, Rejection> {
    let api = match &incoming.kind {
        RequestKind::Inference(api) => *api,
        RequestKind::StoredResponse(id) => {
            return Ok(Subject { made_before: Some(id.as_str().into()), ..Subject::default() });
        }
        RequestKind::Other => {
            let model = other_model(incoming, cap).await;
            return Ok(Subject { model, ..Subject::load_only(Degradation::NotInference) });
        }
    };
    let body = match &incoming.body {
        _ if !is_json(incoming.content_type.as_deref()) => {
            return Ok(Subject::load_only(Degradation::NotInference));
        }
        IncomingBody::Unseen => return Ok(Subject::load_only(Degradation::BodyUnseen)),
        IncomingBody::Empty => Bytes::new(),
        IncomingBody::Full(body) => body.clone(),
    };
    let body = match decoded(incoming.content_encoding.as_deref(), body, cap).await {
        Ok(body) => body,
        Err(DecodeError::UnknownEncoding) => return Ok(Subject::load_only(Degradation::UnknownEncoding)),
        Err(DecodeError::Corrupt) => {
            return Err(Rejection::new(
                ErrorKind::BadRequest,
                "The body does not decode as its content-encoding says.",
            ));
        }
        Err(DecodeError::TooLarge) => {
            return Err(Rejection::new(ErrorKind::BodyTooLarge, "The decoded body is too large."));
        }
    };
    let parsed = parse_off_thread(api, body).await?;
    let mut subject = Subject {
        model: parsed.model.clone(),
        stream: parsed.stream,
        made_before: parsed.previous_response_id.clone(),
        ..Subject::default()
    };
    if subject.made_before.is_none() {
        subject.parsed = Some(Arc::new(parsed));
    }
    if incoming.pool.is_some() {
        // Pools are a matter of policies, which are off: the documented behaviour is a pick on load alone.
        subject.parsed = None;
        subject.degraded.push(Degradation::PoolUnknown);
    }
    Ok(subject)
}

/// The model that a JSON body of another call names: only who serves it can answer. What can't be read is the
/// engine's to refuse.
async fn other_model(incoming: &Incoming, cap: usize) -> Option<Arc<str>> {
    let IncomingBody::Full(body) = &incoming.body else { return None };
    if !is_json(incoming.content_type.as_deref()) {
        return None;
    }
    let body = decoded(incoming.content_encoding.as_deref(), body.clone(), cap).await.ok()?;
    if body.len() <= PARSE_INLINE {
        return model_named(&body);
    }
    tokio::task::spawn_blocking(move || model_named(&body)).await.ok()?
}

async fn parse_off_thread(api: Api, body: Bytes) -> Result<ParsedRequest, Rejection> {
    if body.len() <= PARSE_INLINE {
        return parse(api, &body);
    }
    match tokio::task::spawn_blocking(move || parse(api, &body)).await {
        Ok(parsed) => parsed,
        Err(error) => {
            tracing::error!(%error, "parsing a body panicked");
            Err(Rejection::new(ErrorKind::Internal, "The request could not be read."))
        }
    }
}

/// JSON by content type; an inference path without a content type is taken for JSON.
fn is_json(content_type: Option<&str>) -> bool {
    let Some(value) = content_type else { return true };
    let essence = value.split(';').next().unwrap_or(value).trim().to_ascii_lowercase();
    essence.is_empty()
        || essence == "application/json"
        || essence.ends_with("+json")
        || essence == "text/json"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embeddings(content_type: Option<&str>, body: &'static str) -> Incoming {
        Incoming {
            request_id: "r".into(),
            kind: RequestKind::of("POST", "/v1/embeddings"),
            content_type: content_type.map(str::to_owned),
            content_encoding: None,
            tenant: None,
            tags: Vec::new(),
            pool: None,
            subset: None,
            body: IncomingBody::Full(Bytes::from_static(body.as_bytes())),
        }
    }

    #[tokio::test]
    async fn another_call_is_load_only_but_goes_where_its_model_is() {
        let json = Some("application/json");
        let table = [
            (json, r#"{"model":"e","input":"x"}"#, Some("e")),
            (json, r#"{"model":"#, None),
            (Some("text/plain"), r#"{"model":"e"}"#, None),
        ];
        for (content_type, body, model) in table {
            let subject = read(&embeddings(content_type, body), 1024).await.unwrap();
            assert_eq!(subject.model.as_deref(), model, "{body}");
            assert_eq!(subject.degraded, [Degradation::NotInference]);
            assert!(!subject.must_name_a_served_model());
        }
    }
}
