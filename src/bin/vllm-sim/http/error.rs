//! Errors as vLLM words them: `{"error": {message, type, param, code}}`.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::ranks::OutOfRange;

/// An answer other than 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    param: Option<&'static str>,
}

impl ApiError {
    /// A body that is no request of this API.
    pub fn invalid(message: impl Into<String>, param: Option<&'static str>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "BadRequestError", message: message.into(), param }
    }

    /// A required field that is not there; `param` is its path, as in `body.messages`, `fields` what there is.
    pub fn missing(param: &'static str, fields: usize) -> Self {
        let message = format!(
            "1 validation error:\n  {{'type': 'missing', 'loc': '{param}', 'msg': 'Field required', \
             'input': '<dict of {fields} items>'}}"
        );
        Self { kind: "Bad Request", ..Self::invalid(message, Some(param)) }
    }

    /// A response that continues another one, which is not kept here.
    pub fn previous_response() -> Self {
        let message = "previous_response_id is not supported by the stateless render endpoint.";
        Self { kind: "invalid_request_error", ..Self::invalid(message, Some("previous_response_id")) }
    }

    /// A prompt beyond the model's length.
    pub fn too_long(max_model_len: usize) -> Self {
        let least = max_model_len + 1;
        Self::invalid(
            format!(
                "This model's maximum context length is {max_model_len} tokens. However, your prompt contains at least \
                 {least} input tokens, which exceeds this limit even without any output tokens. Please reduce the \
                 length of the input prompt. (parameter=input_tokens, value={least})"
            ),
            Some("input_tokens"),
        )
    }

    /// A data-parallel rank that is not there.
    pub fn out_of_range(error: OutOfRange) -> Self {
        let OutOfRange { asked, ranks } = error;
        Self::invalid(format!("data_parallel_rank {asked} is out of range [0, {ranks})."), None)
    }

    /// Neither the model nor one of its adapters.
    pub fn unknown_model(asked: &str, base: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            kind: "NotFoundError",
            message: format!("The model `{asked}` does not exist. Valid aliases: {base}."),
            param: Some("model"),
        }
    }

    /// Render without `--enable-scale-out`.
    pub fn scale_out_disabled() -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            kind: "PermissionDeniedError",
            message:
                "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."
                    .into(),
            param: None,
        }
    }

    /// A fault of the stand-in.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            kind: "InternalServerError",
            message: error.to_string(),
            param: None,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { status, kind, message, param } = self;
        let error = json!({"message": message, "type": kind, "param": param, "code": status.as_u16()});
        (status, Json(json!({ "error": error }))).into_response()
    }
}
