//! The kinds of text that the resources are made of, each with its bounds and what it says when they are broken.
//!
//! They are schemas only: in Rust all of these are `String`s, of fields that say `schemars(with = "...")`.

use std::{borrow::Cow, sync::LazyLock};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// One rule of `x-kubernetes-validations`: what has to hold, and what is said if it does not.
pub(super) fn rule(holds: &str, message: &str) -> Value {
    json!({"rule": holds, "message": message})
}

/// As [`rule`], said of the field at `path`.
pub(super) fn rule_at(path: &str, holds: &str, message: &str) -> Value {
    json!({"rule": holds, "message": message, "fieldPath": path})
}

/// A text of a certain form.
trait Text {
    /// What it is called.
    const NAME: &'static str;
    /// Characters at most.
    const MOST: u32;
    /// What it has to match, in RE2's syntax.
    const PATTERN: &'static str;
    /// What is accepted.
    const ACCEPTED: &'static str;
}

fn schema_of<T: Text>() -> Schema {
    let holds = format!("self.matches('{}')", T::PATTERN);
    json_schema!({
        "type": "string",
        "maxLength": T::MOST,
        "x-kubernetes-validations": [rule(&holds, &format!("has to be {}", T::ACCEPTED))],
    })
}

/// The schema of an object's own name, of which a CRD says nothing.
pub(in crate::policy) fn object_name() -> &'static JSONSchemaProps {
    static SCHEMA: LazyLock<JSONSchemaProps> =
        LazyLock::new(|| serde_json::from_value(schema_of::<ObjectName>().to_value()).unwrap_or_default());
    &SCHEMA
}

/// Name of something in a place where rules would cost an API server too much. One that names nothing is found when the
/// reference is followed.
#[derive(serde::Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Reference(#[schemars(length(min = 1, max = 253))] String);

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident: $most:literal, $pattern:literal, $accepted:literal;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl Text for $name {
            const NAME: &'static str = stringify!($name);
            const MOST: u32 = $most;
            const PATTERN: &'static str = $pattern;
            const ACCEPTED: &'static str = $accepted;
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                Self::NAME.into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                schema_of::<Self>()
            }
        }
    )*};
}

texts! {
    /// Of an object.
    ObjectName: 253, "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "a name of DNS: lower-case letters, digits, `-` and `.`, a letter or digit first and last";
    /// Of a Service, or of a rule.
    Label: 63, "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "a DNS label: lower-case letters, digits and `-`, a letter or digit first and last";
    /// Of a port.
    PortName: 15, "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "the name of a port: at most 15 lower-case letters, digits and `-`, a letter or digit first and last";
    /// Of a label.
    LabelValue: 63, "^([a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?)?$",
        "the value of a label: letters, digits, `-`, `_` and `.`, a letter or digit first and last";
    /// Of a model, a tenant, or a tag.
    Word: 253, "^[!-~]+$", "printable ASCII without spaces";
    /// Of a worker set: the configuration takes any text.
    WorkerSetName: 253, "^[^ ]+( [^ ]+)*$", "the name of a worker set, without spaces around it";
    /// Key of a Secret.
    SecretKey: 253, "^[-._a-zA-Z0-9]+$", "a key of a Secret: letters, digits, `-`, `_` and `.`";
    /// Of an HTTP header.
    HeaderName: 128, "^[a-z0-9][-_a-z0-9]*$", "the name of an HTTP header in lower case, such as `authorization`";
    /// Of a host.
    HostName: 253, "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "a host name or IPv4 address without scheme, port or path, such as `api.openai.com`";
    /// Before the path of a request.
    PathPrefix: 256, "^(/[-._~a-zA-Z0-9]+)+$", "a path that begins with `/` and does not end with one, such as `/openai`";
    /// Of the engines' render endpoint.
    HttpUrl: 2048, "^https?://[^/?# ]+(/[^?# ]*)?$", "a URL that begins with `http://` or `https://`, without query";
}
