//! What a request is about: the model, the prompt, and what about it can't be known.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use crate::{
    prompt::{Declared, ParsedRequest, Splice, name_model, named_model, parse, spliced},
    types::{Api, Degradation, ErrorKind, Rejection, RequestKind, is_json},
};

use super::{
    Incoming, IncomingBody, Rewrite,
    decode::{Decoded, Decoding, Undecoded},
    off_thread::off_thread,
    wording::Original,
};

/// A request, read.
#[derive(Debug, Default)]
pub(super) struct Subject {
    /// The model that it names.
    pub model: Option<Arc<str>>,
    /// Its body, where its prompt is to be tokenized.
    pub parsed: Option<Arc<ParsedRequest>>,
    /// The client wants a streamed answer.
    pub stream: bool,
    /// Its first token is certain to be seen, once there is one.
    pub token_is_seen: bool,
    /// The front door demands the model.
    pub demanded: bool,
    /// Its body, where that can be made to name another model.
    pub original: Option<Original>,
    /// What has to change in its body for it to name the model.
    pub rewrite: Option<Rewrite>,
    /// What its body says of it.
    pub declared: Declared,
    /// The stored response that it goes on from or asks for.
    pub made_before: Option<Arc<str>>,
    /// What is not known of it.
    pub degraded: Vec<Degradation>,
    /// The room that what was made of its body takes.
    held: Option<OwnedSemaphorePermit>,
}

impl Subject {
    fn load_only(why: Degradation) -> Self {
        Self { degraded: vec![why], ..Self::default() }
    }

    /// An inference call whose model nobody serves is answered 404; of other calls the engines know better.
    pub(super) fn must_name_a_served_model(&self) -> bool {
        self.demanded || self.parsed.is_some() || self.made_before.is_some()
    }

    /// Holds room for more that is made of its body.
    pub(super) fn hold(&mut self, room: OwnedSemaphorePermit) {
        hold(&mut self.held, room);
    }

    /// Notes what is not known, once.
    pub(super) fn lacks(&mut self, why: Degradation) {
        if !self.degraded.contains(&why) {
            self.degraded.push(why);
        }
    }
}

/// What of an inference call whose model nobody names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nameless {
    /// It can't be placed.
    Refused,
    /// It is not to be placed yet.
    Fine,
}

/// How a request is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub nameless: Nameless,
    /// There are policies, and with them pools.
    pub pools: bool,
}

/// Reads a request.
///
/// # Errors
/// A body that is not what its path and content type say, or that there is no room to decode.
pub(super) async fn read(
    incoming: &Incoming,
    room: (&Decoding, Instant),
    reading: Reading,
) -> Result<Subject, Rejection> {
    let mut subject = content(incoming, room, reading).await?;
    subject.token_is_seen = subject.stream && incoming.sees_response;
    if let Some(model) = &incoming.model {
        (subject.model, subject.demanded) = (Some(model.clone()), true);
    }
    Ok(subject)
}

async fn content(
    incoming: &Incoming,
    (decoding, deadline): (&Decoding, Instant),
    Reading { nameless, pools }: Reading,
) -> Result<Subject, Rejection> {
    let content_type = incoming.content_type.as_deref().filter(|value| !value.trim().is_empty());
    // What can't be read would get around a pool's names, tenants and rules, unless its model is told otherwise.
    let gets_around = pools && incoming.pool.is_some() && incoming.model.is_none();
    let api = match &incoming.kind {
        // An inference call that does not say what it sends is taken for JSON.
        RequestKind::Inference(api) if content_type.is_none_or(is_json) => *api,
        RequestKind::StoredResponse(id) => {
            return Ok(Subject { made_before: Some(id.as_str().into()), ..Subject::default() });
        }
        RequestKind::Other if content_type.is_some_and(is_json) => {
            return Ok(other_call(incoming, decoding, deadline).await);
        }
        RequestKind::Inference(_) if gets_around => {
            return Err(unreadable("its content type is not JSON"));
        }
        RequestKind::Inference(_) | RequestKind::Models(_) | RequestKind::Other => {
            return Ok(Subject::load_only(Degradation::NotInference));
        }
    };
    let body = match &incoming.body {
        IncomingBody::Unseen => return Ok(Subject::load_only(Degradation::BodyUnseen)),
        IncomingBody::Empty => Bytes::new(),
        IncomingBody::Full(body) => body.clone(),
    };
    let encoding = incoming.content_encoding.as_deref();
    let decoded = decoding.run(encoding, body, deadline).await;
    let Decoded { body, mut held } = match decoded {
        Ok(decoded) => decoded,
        Err(Undecoded::Unknown) if gets_around => {
            return Err(unreadable("its content encoding is not known"));
        }
        Err(Undecoded::Unknown) => return Ok(Subject::load_only(Degradation::UnknownEncoding)),
        Err(Undecoded::Rejected(rejection)) => return Err(rejection),
    };
    let model = incoming.model.clone();
    if model.is_some() {
        // A copy that names it may be made.
        hold(&mut held, decoding.room(body.len(), deadline).await?);
    }
    let call = Call { api, nameless, encoded: encoding.is_some() };
    let original = Original { body: body.clone(), encoded: call.encoded };
    let (parsed, rewrite) = off_thread(body, move |body| call.read(body, model.as_deref()))
        .await
        .unwrap_or_else(|| Err(Rejection::new(ErrorKind::Internal, "The request could not be read.")))?;
    let mut subject = Subject {
        rewrite,
        model: parsed.model.clone(),
        stream: parsed.stream,
        declared: parsed.declared.clone(),
        made_before: parsed.previous_response_id.clone(),
        original: Some(original),
        held,
        ..Subject::default()
    };
    if incoming.pool.is_some() && !pools {
        // Pools are a matter of policies, which are off: the documented behaviour is a pick on load alone.
        subject.lacks(Degradation::PoolUnknown);
    } else if subject.made_before.is_none() {
        subject.parsed = Some(Arc::new(parsed));
    }
    Ok(subject)
}

fn hold(held: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match held {
        Some(held) => held.merge(more),
        None => *held = Some(more),
    }
}

fn unreadable(why: &str) -> Rejection {
    Rejection::new(ErrorKind::BadRequest, format!("The request body can't be read: {why}."))
}

/// How an inference call is read.
#[derive(Clone, Copy)]
struct Call {
    api: Api,
    nameless: Nameless,
    encoded: bool,
}

impl Call {
    /// Parses a decoded body, where a model is given as one that names it.
    fn read(self, body: &Bytes, model: Option<&str>) -> Result<(ParsedRequest, Option<Rewrite>), Rejection> {
        let Some(model) = model else {
            let parse = if self.nameless == Nameless::Fine { ParsedRequest::read } else { parse };
            return Ok((parse(self.api, body)?, None));
        };
        let (body, rewrite) = renamed(body, model, self.encoded);
        Ok((ParsedRequest::read(self.api, &body)?, rewrite))
    }
}

/// A decoded body as one that names the model, and what of the body as it came has to change for that.
fn renamed(body: &Bytes, model: &str, encoded: bool) -> (Bytes, Option<Rewrite>) {
    let splices: Vec<Splice> = name_model(body, model).unwrap_or_default();
    if splices.is_empty() {
        return (body.clone(), None);
    }
    let body = spliced(body, &splices);
    let rewrite = if encoded { Rewrite::Whole(body.clone()) } else { Rewrite::Splices(splices) };
    (body, Some(rewrite))
}

/// A call that we know nothing of but that it is JSON: where it names a model, only who serves it will do. What is
/// wrong with it the engine says.
async fn other_call(incoming: &Incoming, decoding: &Decoding, deadline: Instant) -> Subject {
    let mut subject = Subject::load_only(Degradation::NotInference);
    if let IncomingBody::Full(body) = &incoming.body
        && let Ok(decoded) = decoding.run(incoming.content_encoding.as_deref(), body.clone(), deadline).await
    {
        let (model, encoded) = (incoming.model.clone(), incoming.content_encoding.is_some());
        subject.original = Some(Original { body: decoded.body.clone(), encoded });
        subject.held = decoded.held;
        let named = off_thread(decoded.body, move |body| match model {
            Some(model) => (None, renamed(body, &model, encoded).1),
            None => (named_model(body), None),
        });
        (subject.model, subject.rewrite) = named.await.unwrap_or_default();
    }
    subject
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            exclude: Vec::new(),
            model: None,
            sees_response: true,
            began: Instant::now(),
            traceparent: None,
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
            let deadline = Instant::now() + Duration::from_secs(5);
            let decoding = Decoding::new(crate::config::BodyLimits::default());
            let reading = Reading { nameless: Nameless::Refused, pools: false };
            let subject =
                read(&embeddings(content_type, body), (&decoding, deadline), reading).await.unwrap();
            assert_eq!(subject.model.as_deref(), model, "{body}");
            assert_eq!(subject.degraded, [Degradation::NotInference]);
            assert!(!subject.must_name_a_served_model());
        }
    }
}
