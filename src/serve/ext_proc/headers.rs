//! Reads the header map of an ext_proc message. Values come in `raw_value`; older senders use `value`.

use std::borrow::Cow;

use envoy_types::pb::envoy::{config::core::v3::HeaderValue, service::ext_proc::v3::HttpHeaders};

/// The headers of one message; names are lower case, as the proxy sends them.
#[derive(Clone, Copy)]
pub struct Headers<'a>(&'a [HeaderValue]);

impl<'a> Headers<'a> {
    /// Those of that message.
    pub fn of(message: &'a HttpHeaders) -> Self {
        Self(message.headers.as_ref().map_or(&[], |map| map.headers.as_slice()))
    }

    /// The first value under that name. Bytes that are not UTF-8 are replaced.
    pub fn get(self, name: &str) -> Option<Cow<'a, str>> {
        self.values(name).next()
    }

    /// All values under that name as one comma-separated list, which is what repeated lines mean.
    pub fn joined(self, name: &str) -> Option<String> {
        let all: Vec<_> = self.values(name).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Whether there is a header of that name.
    pub fn has(self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    fn values(self, name: &str) -> impl Iterator<Item = Cow<'a, str>> {
        self.0.iter().filter(move |header| header.key.eq_ignore_ascii_case(name)).map(|header| {
            if header.raw_value.is_empty() {
                Cow::Borrowed(header.value.as_str())
            } else {
                String::from_utf8_lossy(&header.raw_value)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::HeaderMap;

    use super::*;

    fn header(key: &str, value: &str, raw: &[u8]) -> HeaderValue {
        HeaderValue { key: key.into(), value: value.into(), raw_value: raw.to_vec() }
    }

    #[test]
    fn raw_values_come_first_and_repeats_join() {
        let message = HttpHeaders {
            headers: Some(HeaderMap {
                headers: vec![
                    header("a", "old", b"new"),
                    header("b", "only", b""),
                    header("content-encoding", "", b"gzip"),
                    header("content-encoding", "", b"br"),
                    header("bad", "", b"\xff"),
                ],
            }),
            ..Default::default()
        };
        let headers = Headers::of(&message);
        assert_eq!(headers.get("a").as_deref(), Some("new"));
        assert_eq!(headers.get("b").as_deref(), Some("only"));
        assert_eq!(headers.joined("content-encoding").as_deref(), Some("gzip, br"));
        assert_eq!(headers.get("bad").as_deref(), Some("\u{fffd}"));
        assert!(!headers.has("c") && headers.joined("c").is_none());
    }
}
