//! Detects requests that a page of another site makes a person's browser send. If the unix socket is reached through a
//! browser (forwarded by SSH, for example), no access token protects the store from such pages.
//!
//! A browser reveals the page's site in `Origin` and `Sec-Fetch-Site`. It does not notice DNS rebinding: a name of the
//! other site that suddenly resolves to this machine. So only host names that no other site can have are accepted:
//! names without dots, and addresses.

use std::net::Ipv4Addr;

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};

/// Whether a page of another site caused the request.
pub(super) fn is_foreign(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("."));
    let host = text(HOST.as_str());
    let is_of_host = |origin: &str| {
        let bare = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        bare.is_some() && bare == host
    };
    host.is_some_and(|host| !is_near(host))
        || text(ORIGIN.as_str()).is_some_and(|origin| !is_of_host(origin))
        || text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"))
}

/// Whether a host, with or without a port, is an address or a name without dots.
fn is_near(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    name.starts_with('[') || !name.contains('.') || name.parse::<Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn pages_of_other_sites_are_distinguished_from_programs_and_the_own_page() {
        let ours: [&[(&str, &str)]; 9] = [
            &[],
            &[("host", "origin")],
            &[("host", "platter:80")],
            &[("host", "localhost:7440")],
            &[("host", "127.0.0.1:7440")],
            &[("host", "[::1]:7440")],
            &[("host", "localhost:1"), ("origin", "http://localhost:1"), ("sec-fetch-site", "same-origin")],
            &[("host", "[::1]"), ("origin", "https://[::1]")],
            &[("host", "localhost"), ("sec-fetch-site", "none")],
        ];
        for pairs in ours {
            assert!(!is_foreign(&headers(pairs)), "{pairs:?}");
        }
        let theirs: [&[(&str, &str)]; 8] = [
            &[("host", "evil.example:7440")],
            &[("host", "localhost.")],
            &[("host", "127.0.0.1.evil.example")],
            &[("host", "localhost:1"), ("origin", "http://evil.example")],
            &[("host", "localhost:1"), ("origin", "http://localhost:2")],
            &[("host", "localhost:1"), ("origin", "null")],
            &[("origin", "http://localhost")],
            &[("host", "localhost"), ("sec-fetch-site", "cross-site")],
        ];
        for pairs in theirs {
            assert!(is_foreign(&headers(pairs)), "{pairs:?}");
        }
    }
}
