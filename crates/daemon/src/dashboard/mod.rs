//! The dashboard (`docs/dashboard.md`): static files for a browser, without data. The page reads its data from the API,
//! with the access token that the user enters.
//!
//! Owns these files and their security headers: the browser loads nothing from elsewhere, and no text becomes markup or
//! code. No file may contain anything that requires a token.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::access::Entrance;
use crate::origin::Origin;
use platter_transport::to_hex;

/// Content security policy: scripts, styles, images and requests only from this origin, and no text is taken as markup.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
/// Bytes of a file's hash in its entity tag.
const TAG_LENGTH: usize = 16;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files: path, media type, contents.
const FILES: [(&str, &str, &str); 10] = [
    ("/", HTML, include_str!("assets/index.html")),
    ("/dashboard/style.css", "text/css; charset=utf-8", include_str!("assets/style.css")),
    ("/dashboard/icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
    ("/dashboard/main.js", SCRIPT, include_str!("assets/main.js")),
    ("/dashboard/origin.js", SCRIPT, include_str!("assets/origin.js")),
    ("/dashboard/elements.js", SCRIPT, include_str!("assets/elements.js")),
    ("/dashboard/numbers.js", SCRIPT, include_str!("assets/numbers.js")),
    ("/dashboard/plot.js", SCRIPT, include_str!("assets/plot.js")),
    ("/dashboard/files.js", SCRIPT, include_str!("assets/files.js")),
    ("/dashboard/sections.js", SCRIPT, include_str!("assets/sections.js")),
];
/// Tells the page whether the user must enter an access token.
const ACCESS: &str = "/dashboard/access.json";

/// A file to be served.
struct File {
    media: &'static str,
    contents: &'static str,
    tag: String,
}

/// Returns the routes of the files for clients of this entrance.
pub(crate) fn routes(entrance: Entrance) -> Router<Arc<Origin>> {
    let access = match entrance {
        Entrance::Trusted => "{\"token\":false}\n",
        Entrance::Token => "{\"token\":true}\n",
    };
    let mut router = Router::new();
    for (path, media, contents) in FILES.into_iter().chain([(ACCESS, "application/json", access)]) {
        let hash = blake3::hash(contents.as_bytes());
        let tag = format!("\"{}\"", to_hex(&hash.as_bytes()[..TAG_LENGTH]));
        let file = Arc::new(File { media, contents, tag });
        router = router.route(path, get(move |headers: HeaderMap| async move { file.answer(&headers) }));
    }
    router
}

impl File {
    fn answer(&self, asked: &HeaderMap) -> Response {
        let mut response = match self.is_known(asked) {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => Bytes::from_static(self.contents.as_bytes()).into_response(),
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media));
        // Browsers may cache it, but must revalidate it before use.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(CONTENT_SECURITY_POLICY, POLICY);
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(OPENER_POLICY, SAME_ORIGIN);
        headers.insert(RESOURCE_POLICY, SAME_ORIGIN);
        if let Ok(tag) = HeaderValue::from_str(&self.tag) {
            headers.insert(ETAG, tag);
        }
        response
    }

    /// Whether the browser has the current contents.
    fn is_known(&self, asked: &HeaderMap) -> bool {
        let tags = asked.get_all(IF_NONE_MATCH).into_iter().filter_map(|tags| tags.to_str().ok());
        let mut tags = tags.flat_map(|tags| tags.split(','));
        tags.any(|tag| matches!(tag.trim(), "*") || tag.trim().trim_start_matches("W/") == self.tag)
    }
}
