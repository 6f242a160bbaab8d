//! Which inference API a request speaks, decided by its path alone.

/// An inference API whose prompts we can parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `POST /v1/chat/completions`
    ChatCompletions,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/messages`, Anthropic's
    Messages,
}

impl Api {
    /// The request path that the engines serve this API on.
    pub const fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    /// The word in metrics, logs and traces.
    pub const fn label(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }

    /// All of them.
    pub const ALL: [Self; 4] = [Self::ChatCompletions, Self::Completions, Self::Responses, Self::Messages];
}

/// What a request is, by method and path, before its body is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A call of an inference API: its body is parsed and tokenized.
    Inference(Api),
    /// `GET|POST /v1/responses/{id}...`: belongs to the worker that made the response.
    StoredResponse(String),
    /// `GET /v1/models[/{id}]`: what a pool publishes; without one, like anything else.
    Models(Option<String>),
    /// Anything else: routed on load alone, bytes untouched.
    Other,
}

impl RequestKind {
    /// The word in logs and traces.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Inference(api) => api.label(),
            Self::StoredResponse(_) => "stored_response",
            Self::Models(_) => "models",
            Self::Other => "other",
        }
    }

    /// Reads the path of a request; a query string and a trailing slash are ignored.
    pub fn of(method: &str, path: &str) -> Self {
        let path = path.split(['?', '#']).next().unwrap_or(path).trim_end_matches('/');
        if let Some(rest) = path.strip_prefix("/v1/responses/") {
            let id = rest.split('/').next().unwrap_or(rest);
            return Self::StoredResponse(id.to_owned());
        }
        if let Some(rest) = path.strip_prefix("/v1/models").filter(|_| method.eq_ignore_ascii_case("GET")) {
            match rest.strip_prefix('/') {
                Some(id) => {
                    return Self::Models(Some(unescaped(id)));
                }
                None if rest.is_empty() => return Self::Models(None),
                None => {}
            }
        }
        match Api::ALL.into_iter().find(|api| api.path() == path) {
            Some(api) if method.eq_ignore_ascii_case("POST") => Self::Inference(api),
            _ => Self::Other,
        }
    }
}

/// A part of a path without its `%XX` escapes. What is no escape stays.
fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = (*first == b'%').then(|| std::str::from_utf8(after.get(..2)?).ok()).flatten();
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether a `content-type` says JSON; its parameters and case do not matter.
pub fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or(content_type).trim().to_ascii_lowercase();
    matches!(essence.as_str(), "application/json" | "text/json") || essence.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_known_by_its_type() {
        for yes in
            ["application/json", "Application/JSON; charset=utf-8", "text/json", "application/vnd.api+json"]
        {
            assert!(is_json(yes), "{yes}");
        }
        for no in [
            "",
            "text/plain",
            "multipart/form-data; boundary=json",
            "application/jsonl",
            "text/plain; a=+json",
        ] {
            assert!(!is_json(no), "{no}");
        }
    }

    #[test]
    fn kinds_follow_method_and_path() {
        let table = [
            ("POST", "/v1/chat/completions", RequestKind::Inference(Api::ChatCompletions)),
            ("POST", "/v1/completions/?x=1", RequestKind::Inference(Api::Completions)),
            ("post", "/v1/messages", RequestKind::Inference(Api::Messages)),
            ("GET", "/v1/chat/completions", RequestKind::Other),
            ("GET", "/v1/models", RequestKind::Models(None)),
            ("get", "/v1/models/?limit=5", RequestKind::Models(None)),
            ("GET", "/v1/models/org%2Fm", RequestKind::Models(Some("org/m".into()))),
            ("GET", "/v1/models/50%%2", RequestKind::Models(Some("50%%2".into()))),
            ("GET", "/v1/models/org/m", RequestKind::Models(Some("org/m".into()))),
            ("POST", "/v1/models", RequestKind::Other),
            ("GET", "/v1/modelsx", RequestKind::Other),
            ("POST", "/v1/responses", RequestKind::Inference(Api::Responses)),
            ("GET", "/v1/responses/resp_1?stream=true", RequestKind::StoredResponse("resp_1".into())),
            ("POST", "/v1/responses/resp_1/cancel", RequestKind::StoredResponse("resp_1".into())),
            ("POST", "/v1/chat/completions/render", RequestKind::Other),
        ];
        for (method, path, want) in table {
            assert_eq!(RequestKind::of(method, path), want, "{method} {path}");
        }
    }
}
