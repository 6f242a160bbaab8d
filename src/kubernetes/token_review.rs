//! One TokenReview: a question to the API server and what its answer means.
//!
//! The API server's answer repeats the token, so no text of it gets into an error or a log.

use std::collections::BTreeMap;

use http::{Request, header::CONTENT_TYPE};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::{Client, Error};

use super::client::chain;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// A bearer token: not empty, and shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// `None` for an empty one.
    pub fn parse(token: String) -> Option<Self> {
        (!token.is_empty()).then_some(Self(token))
    }

    /// The token itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What is asked: whose token is it, and is it meant for one of these audiences?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    token: Token,
    audiences: Vec<String>,
}

impl Question {
    /// The order of the audiences, and naming one twice, makes no difference. None: the API server's own.
    pub fn new(token: Token, mut audiences: Vec<String>) -> Self {
        audiences.sort_unstable();
        audiences.dedup();
        Self { token, audiences }
    }

    /// The token.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Sorted, each once.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }
}

/// Whose token it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub username: String,
    /// Unique id.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Audiences that the token is valid for.
    pub audiences: Vec<String>,
    /// Anything else that the authenticator says.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The API server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The token is valid.
    Authenticated(User),
    /// It is not, and why.
    Denied(String),
}

/// Why there is no answer. The texts are for our log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// It did not come in time.
    #[error("the API server does not answer in time")]
    TimedOut,
    /// The API server is not reached, or fails.
    #[error("the API server is not reached: {0}")]
    Unreachable(String),
    /// It does not let us ask.
    #[error(
        "the API server refuses us (Kinference needs `create` on tokenreviews in authentication.k8s.io): {0}"
    )]
    Refused(String),
    /// Its answer is no TokenReview.
    #[error("the API server's answer is no TokenReview: line {line}, column {column}")]
    Unreadable {
        /// Line of the answer, from 1.
        line: usize,
        /// Column of that line.
        column: usize,
    },
}

/// Asks the API server. For how long is the caller's to bound.
///
/// # Errors
/// There is no answer.
pub async fn review(client: Client, question: Question) -> Result<Verdict, ReviewError> {
    let request = request(&question).map_err(|error| ReviewError::Unreachable(error.to_string()))?;
    // Not `Client::request`: it logs an answer that it can't read.
    let text = client.request_text(request).await.map_err(refusal)?;
    let answer: TokenReview = serde_json::from_str(&text)
        .map_err(|e| ReviewError::Unreadable { line: e.line(), column: e.column() })?;
    Ok(verdict(answer.status.unwrap_or_default(), question.audiences()))
}

fn request(question: &Question) -> Result<Request<Vec<u8>>, Box<dyn std::error::Error>> {
    let audiences = (!question.audiences.is_empty()).then(|| question.audiences.clone());
    let spec = TokenReviewSpec { audiences, token: Some(question.token.0.clone()) };
    let body = serde_json::to_vec(&TokenReview { spec, ..TokenReview::default() })?;
    Ok(Request::post(PATH).header(CONTENT_TYPE, "application/json").body(body)?)
}

fn refusal(error: Error) -> ReviewError {
    match error {
        Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => {
            ReviewError::Refused(format!("{} {}", status.code, status.message))
        }
        Error::Api(status) => ReviewError::Unreachable(format!("{} {}", status.code, status.message)),
        error => ReviewError::Unreachable(chain(&error)),
    }
}

/// An API server that knows no audiences authenticates a token for itself and names none: that is a no to
/// whoever asked for others.
fn verdict(status: TokenReviewStatus, asked: &[String]) -> Verdict {
    if !status.authenticated.unwrap_or_default() {
        let why = status.error.filter(|why| !why.is_empty());
        return Verdict::Denied(why.unwrap_or_else(|| "the token is not valid".into()));
    }
    let audiences = status.audiences.unwrap_or_default();
    if !asked.is_empty() && !audiences.iter().any(|audience| asked.contains(audience)) {
        return Verdict::Denied("the token is valid, but for none of the audiences asked for".into());
    }
    let user = status.user.unwrap_or_default();
    Verdict::Authenticated(User {
        username: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        audiences,
        extra: user.extra.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authenticated(audiences: &[&str]) -> TokenReviewStatus {
        TokenReviewStatus {
            authenticated: Some(true),
            audiences: Some(audiences.iter().map(|a| (*a).into()).collect()),
            ..TokenReviewStatus::default()
        }
    }

    #[test]
    fn a_yes_must_be_for_an_audience_that_was_asked_for() {
        let asked = ["a".to_owned(), "b".to_owned()];
        assert!(matches!(verdict(authenticated(&["b"]), &asked), Verdict::Authenticated(_)));
        assert!(matches!(verdict(authenticated(&["c"]), &asked), Verdict::Denied(_)));
        assert!(matches!(verdict(authenticated(&[]), &asked), Verdict::Denied(_)));
        assert!(matches!(verdict(authenticated(&[]), &[]), Verdict::Authenticated(_)));
    }

    #[test]
    fn a_no_always_says_why() {
        let no = |error: Option<&str>| TokenReviewStatus {
            error: error.map(Into::into),
            ..TokenReviewStatus::default()
        };
        assert_eq!(verdict(no(Some("expired")), &[]), Verdict::Denied("expired".into()));
        assert_eq!(verdict(no(Some("")), &[]), verdict(no(None), &[]));
        assert!(matches!(verdict(no(None), &[]), Verdict::Denied(why) if !why.is_empty()));
    }

    #[test]
    fn the_token_is_sent_and_not_shown() {
        let question = |audiences: &[&str]| {
            let audiences = audiences.iter().map(|a| (*a).into()).collect();
            Question::new(Token::parse("s3cret".into()).unwrap(), audiences)
        };
        assert!(!format!("{:?}", question(&["a"])).contains("s3cret"));
        assert_eq!(question(&["b", "a", "b"]), question(&["a", "b"]));
        let body = request(&question(&[])).unwrap().into_body();
        assert_eq!(
            serde_json::from_slice::<serde_json::Value>(&body).unwrap(),
            serde_json::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {},
                "spec": {"token": "s3cret"}})
        );
        assert_eq!(Token::parse(String::new()), None);
    }

    #[test]
    fn only_what_the_server_says_of_us_is_a_refusal() {
        let of =
            |code: u16| refusal(Error::Api(kube::core::Status::failure("no", "why").with_code(code).boxed()));
        assert!(matches!(of(401), ReviewError::Refused(_)));
        assert_eq!(of(403), ReviewError::Refused("403 no".into()));
        assert!(matches!(of(429), ReviewError::Unreachable(_)));
        assert!(matches!(of(503), ReviewError::Unreachable(_)));
    }
}
