//! When a token says that it ends. Nothing else is believed of it: only the API server knows whether it is valid.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::Deserialize;

#[derive(Deserialize)]
struct Claims {
    /// Seconds since 1970, maybe with a fraction.
    exp: f64,
}

/// How long a token has left at `now`, if it is a JWT with an `exp` claim; zero when that is past.
pub fn time_left(token: &str, now: SystemTime) -> Option<Duration> {
    let mut parts = token.split('.');
    let (_header, claims, _signature) = (parts.next()?, parts.next()?, parts.next()?);
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let exp = serde_json::from_slice::<Claims>(&claims).ok()?.exp;
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    // Before 1970 is past; beyond what a duration holds is no end.
    Duration::try_from_secs_f64(exp.max(0.0)).ok().map(|end| end.saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn left(claims: &str) -> Option<Duration> {
        let token = format!("e30.{}.sig", BASE64_URL_SAFE_NO_PAD.encode(claims));
        time_left(&token, UNIX_EPOCH + Duration::from_secs(1_000))
    }

    #[test]
    fn exp_is_seconds_since_1970() {
        assert_eq!(left(r#"{"iss": "x", "exp": 1060}"#), Some(Duration::from_secs(60)));
        assert_eq!(left(r#"{"exp": 1000.5}"#), Some(Duration::from_millis(500)));
        for past in ["999", "0", "-5", "-1e300"] {
            assert_eq!(left(&format!(r#"{{"exp": {past}}}"#)), Some(Duration::ZERO), "{past}");
        }
        for none in [r#"{"exp": 1e300}"#, r#"{"exp": "1060"}"#, "{}", "[]", "exp"] {
            assert_eq!(left(none), None, "{none}");
        }
    }

    #[test]
    fn most_tokens_are_no_jwt() {
        for token in ["", "alice-token", "a.b", "..", "e30.%%%.sig"] {
            assert_eq!(time_left(token, UNIX_EPOCH), None, "{token}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(token in ".*", claims in prop::collection::vec(any::<u8>(), 0..40)) {
            time_left(&token, UNIX_EPOCH);
            time_left(&format!("h.{}.s", BASE64_URL_SAFE_NO_PAD.encode(claims)), SystemTime::now());
        }
    }
}
