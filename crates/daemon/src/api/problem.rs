//! Error responses: `application/problem+json` (RFC 9457), with the kind of error that all parts of Platter use.

use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use platter_admission::Refusal;
use platter_image::{Error, ErrorKind};
use platter_records::ImageName;

use platter_api::{Endpoint, Scope};

/// Seconds after which a client should retry after a transient error.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// An error response.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    kind: ErrorKind,
    detail: String,
    ends_connection: bool,
}

impl Problem {
    pub(super) fn new(status: StatusCode, kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { status, kind, detail: detail.into(), ends_connection: false }
    }

    /// The request is invalid.
    pub(super) fn bad_request(error: &Error) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.kind(), error.to_string())
    }
}

/// An error of the store, with its causes: whoever asks has to find out what to do, and may not see this machine.
impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Missing => StatusCode::NOT_FOUND,
            ErrorKind::Refused => StatusCode::CONFLICT,
            ErrorKind::Transient => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::Bug => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.kind(), error.with_causes())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or_default();
        let body = platter_api::Problem::new(self.status.as_u16(), title, self.kind, self.detail);
        // Strings and a number can always be serialized.
        let body = serde_json::to_string(&body).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, RETRY_SECONDS);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.ends_connection {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// The client is not authenticated.
pub(super) fn unknown(is_shown: bool) -> Problem {
    let detail = match is_shown {
        true => {
            "the access token is not known here: it was removed, or belongs to another origin; `platter serve token list` \
             shows the tokens of this one"
        }
        false => {
            "this needs an access token: platter takes it from --token-file or $PLATTER_TOKEN, other clients send \
             `Authorization: Bearer TOKEN`; `platter serve token add` makes one"
        }
    };
    Problem::new(StatusCode::UNAUTHORIZED, ErrorKind::Refused, detail)
}

/// The token does not allow this endpoint.
pub(super) fn forbidden(endpoint: Endpoint) -> Problem {
    let role = endpoint.role().map_or_else(String::new, |role| role.to_string());
    let everything = match endpoint.scope() {
        Scope::Everything => ", for all images",
        _ => "",
    };
    let detail = format!("an access token with role {role}{everything} is required");
    Problem::new(StatusCode::FORBIDDEN, ErrorKind::Refused, detail)
}

/// The token does not cover this name, whether such an image exists or not.
pub(super) fn not_for(image: &ImageName) -> Problem {
    let detail = format!("this access token does not cover {image}");
    Problem::new(StatusCode::FORBIDDEN, ErrorKind::Refused, detail)
}

/// Disks without a name are visible only to principals that read everything.
pub(super) fn no_nameless() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, ErrorKind::Missing, "there is no such version")
}

/// A page of another site made a browser send this request.
pub(super) fn foreign() -> Problem {
    let detail = "this request comes from a page of another site: address the socket by a name without dots, \
                  such as localhost, or by an IP address";
    Problem::new(StatusCode::FORBIDDEN, ErrorKind::Refused, detail)
}

pub(super) fn no_endpoint() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, ErrorKind::Missing, "there is no such path: see /api/v1/openapi.json")
}

pub(super) fn no_method() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, ErrorKind::Refused, "this path does not support this method")
}

/// There are too many connections; this one ends.
pub(super) fn too_many_connections() -> Problem {
    let detail = "there are too many connections: try again later";
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Transient, detail);
    Problem { ends_connection: true, ..problem }
}

/// A successor has the store's lock. Nothing was done, and the request may be sent again over another connection,
/// whatever it is (RFC 9110, section 15.5.20).
pub(super) fn replaced() -> Problem {
    let detail = "another server has taken over: send the request again over a new connection";
    let problem = Problem::new(StatusCode::MISDIRECTED_REQUEST, ErrorKind::Transient, detail);
    Problem { ends_connection: true, ..problem }
}

/// There is no place for a connection that has shown a token; it ends.
pub(super) fn no_place(refusal: Refusal) -> Problem {
    Problem { detail: format!("{refusal}: try again later"), ..too_many_connections() }
}
