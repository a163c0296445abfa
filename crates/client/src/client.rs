//! Sends requests to an origin, and maps their failures to errors.

use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use platter_api::{PROBLEM_LENGTH_MAX, Problem};
use platter_image::{Domain, Error, ErrorKind, Result};
use platter_transport::origin_client;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::config::Config;
use ureq::http::{self, Method, StatusCode, header};
use ureq::{Agent, AsSendBody, Body};

use super::address::{ServerAddress, ServerOptions};
use super::connection::{NoResolver, OriginConnector};

/// An origin that neither sends nor receives a byte for this long counts as down. So does one whose head of a response takes longer.
const SILENCE_MAX: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// After [`SILENCE_MAX`], a response that is read at once must have come at this rate, in bytes per second.
const RATE_MIN: u64 = 4 << 10;
/// Longest time for a publish, which makes gigabytes durable.
pub(crate) const PUBLISH_TIME_MAX: Duration = Duration::from_secs(600);
/// Longest time for a collection, which may compress a whole store again.
pub(crate) const COLLECT_TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// Most bytes of a list of versions.
const LIST_LENGTH_MAX: u64 = 64 << 20;
/// Idle connections kept between requests: as many as a reader and an upload use.
const CONNECTIONS_KEPT: usize = 16;
/// An idle connection that is older is not reused: the other side may be closing it.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(10);
/// Said when the response to a change is missing.
const MAY_BE_DONE: &str = "the change may still be carried out (`platter log NAME` tells)";
/// Pause between two attempts: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// One origin.
pub(super) struct Client {
    agent: Agent,
    base: String,
    authorization: Option<String>,
    /// For messages.
    name: String,
    /// The identity domain of the store, once it is known.
    pub(super) domain: OnceLock<Domain>,
}

/// A body to send.
#[derive(Clone, Copy)]
enum Contents<'a> {
    Nothing,
    Json(&'a [u8]),
    /// A JSON object that asks for a change of the store's log.
    Change(&'a [u8]),
    Bytes(&'a [u8]),
}

impl Client {
    /// Prepares requests to an origin. Sends nothing yet.
    ///
    /// # Errors
    /// `Refused` or `Missing` when no certificate can be trusted, or the token cannot be sent.
    pub(super) fn open(options: &ServerOptions) -> Result<Arc<Self>> {
        let name = options.address.to_string();
        let tls = match &options.address {
            ServerAddress::Unix(_) => None,
            ServerAddress::Tls { .. } => Some(origin_client(&options.trust)?),
        };
        let base = match &options.address {
            ServerAddress::Unix(_) => "http://platter".to_owned(),
            ServerAddress::Tls { .. } => name.clone(),
        };
        let authorization = options.token.as_deref().map(bearer).transpose()?;
        let config = Config::builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("platter/", env!("CARGO_PKG_VERSION")))
            .timeout_per_read(Some(SILENCE_MAX))
            .timeout_per_write(Some(SILENCE_MAX))
            .timeout_recv_response(Some(SILENCE_MAX))
            .max_idle_connections(CONNECTIONS_KEPT)
            .max_idle_connections_per_host(CONNECTIONS_KEPT)
            .max_idle_age(CONNECTION_AGE_MAX)
            .build();
        let connector = OriginConnector { address: options.address.clone(), tls };
        let agent = Agent::with_parts(config, connector, NoResolver);
        Ok(Arc::new(Self { agent, base, authorization, name, domain: OnceLock::new() }))
    }

    /// The origin's name in messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Requests an object that is small enough to be read at once.
    ///
    /// # Errors
    /// The origin's errors; `Transient` when it is down; `Corrupt` when its response is invalid.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.parsed(self.send(&Method::GET, path, Contents::Nothing, None)?)
    }

    /// As [`Client::get`], for requests that take long.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub(super) fn get_patiently<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.parsed(self.send(&Method::GET, path, Contents::Nothing, Some(PUBLISH_TIME_MAX))?)
    }

    /// Requests an endless stream. Each read waits for a limited time only.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub(super) fn get_for_stream(&self, path: &str) -> Result<impl Read + use<>> {
        let answer = self.send(&Method::GET, path, Contents::Nothing, None)?;
        Ok(answer.into_body().into_with_config().limit(u64::MAX).reader())
    }

    /// Requests at most `answer_max` bytes.
    ///
    /// # Errors
    /// As [`Client::get`]; `Corrupt` when the response is longer.
    pub(super) fn get_bytes(&self, path: &str, answer_max: u64) -> Result<Vec<u8>> {
        let answer = self.send(&Method::GET, path, Contents::Nothing, None)?;
        self.read(answer, answer_max)
    }

    /// Sends an object. Returns the response.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, object: &impl Serialize) -> Result<T> {
        self.parsed(self.send(&Method::POST, path, Contents::Json(&to_json(object)?), None)?)
    }

    /// As [`Client::post`], for changes that the log of the store shows.
    ///
    /// # Errors
    /// As [`Client::get`]. If the response did not arrive, the error says that the change may still be carried out.
    pub(super) fn change<T: DeserializeOwned>(&self, path: &str, object: &impl Serialize) -> Result<T> {
        self.parsed(self.send(&Method::POST, path, Contents::Change(&to_json(object)?), None)?)
    }

    /// As [`Client::change`], for requests that take long.
    ///
    /// # Errors
    /// As [`Client::change`].
    pub(super) fn change_patiently<T: DeserializeOwned>(
        &self,
        path: &str,
        object: &impl Serialize,
    ) -> Result<T> {
        self.parsed(self.send(
            &Method::POST,
            path,
            Contents::Change(&to_json(object)?),
            Some(PUBLISH_TIME_MAX),
        )?)
    }

    /// As [`Client::post`], for requests that take up to `limit`.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub(super) fn post_patiently<T: DeserializeOwned>(
        &self,
        path: &str,
        object: &impl Serialize,
        limit: Duration,
    ) -> Result<T> {
        self.parsed(self.send(&Method::POST, path, Contents::Json(&to_json(object)?), Some(limit))?)
    }

    /// Sends bytes. Returns a response of at most `answer_max` bytes.
    ///
    /// # Errors
    /// As [`Client::get`]; `Corrupt` when the response is longer.
    pub(super) fn post_bytes(&self, path: &str, bytes: &[u8], answer_max: u64) -> Result<Vec<u8>> {
        let answer = self.send(&Method::POST, path, Contents::Bytes(bytes), Some(PUBLISH_TIME_MAX))?;
        self.read(answer, answer_max)
    }

    /// Sends bytes. Returns the response as a stream. Each read waits for a limited time only.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub(super) fn post_for_stream(&self, path: &str, bytes: &[u8]) -> Result<impl Read + use<>> {
        let answer = self.send(&Method::POST, path, Contents::Bytes(bytes), None)?;
        Ok(answer.into_body().into_with_config().limit(u64::MAX).reader())
    }

    /// Sends an object, and ignores the response's body.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub(super) fn tell(&self, path: &str, object: &impl Serialize) -> Result<()> {
        self.send(&Method::POST, path, Contents::Json(&to_json(object)?), None).map(drop)
    }

    /// Sends a DELETE request.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub(super) fn delete(&self, path: &str) -> Result<()> {
        self.send(&Method::DELETE, path, Contents::Nothing, None).map(drop)
    }

    /// Sends a request. Returns the response, whatever its status.
    fn send_once(
        &self,
        method: &Method,
        path: &str,
        contents: Contents<'_>,
        patience: Option<Duration>,
    ) -> Result<http::Response<Body>> {
        let bug = |error: http::Error| Error::bug("cannot build a request").with_source(error);
        let mut request = http::Request::builder().method(method.clone()).uri(format!("{}{path}", self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let sent = match contents {
            Contents::Nothing => self.run(request.body(()).map_err(bug)?, patience),
            Contents::Json(bytes) | Contents::Change(bytes) | Contents::Bytes(bytes) => {
                let is_bytes = matches!(contents, Contents::Bytes(_));
                let media = if is_bytes { "application/octet-stream" } else { "application/json" };
                self.run(request.header(header::CONTENT_TYPE, media).body(bytes).map_err(bug)?, patience)
            }
        };
        sent.map_err(|error| {
            // Errors of connecting are of another kind.
            let may_have_arrived = matches!(error, ureq::Error::Timeout(_) | ureq::Error::Io(_));
            let error = self.failed(error);
            match contents {
                Contents::Change(_) if may_have_arrived => error.within(MAY_BE_DONE),
                _ => error,
            }
        })
    }

    /// Runs a request, and waits so long for its response.
    fn run(
        &self,
        request: http::Request<impl AsSendBody>,
        patience: Option<Duration>,
    ) -> std::result::Result<http::Response<Body>, ureq::Error> {
        let Some(patience) = patience else { return self.agent.run(request) };
        let request = self.agent.configure_request(request);
        self.agent.run(request.timeout_per_read(Some(patience)).timeout_recv_response(Some(patience)).build())
    }

    /// Sends a request. Returns a successful response.
    fn send(
        &self,
        method: &Method,
        path: &str,
        contents: Contents<'_>,
        patience: Option<Duration>,
    ) -> Result<http::Response<Body>> {
        let ask = || self.send_once(method, path, contents, patience);
        let mut answer = ask()?;
        // A server that was replaced has done nothing, and ends this connection. Others to it may be open still.
        for _ in 0..=CONNECTIONS_KEPT {
            if answer.status() != StatusCode::MISDIRECTED_REQUEST {
                break;
            }
            answer = ask()?;
        }
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        // A truncated body is still more informative than the error of reading it.
        let _ = Paced::new(answer.into_body().into_reader()).take(PROBLEM_LENGTH_MAX).read_to_end(&mut body);
        Err(Problem::error_of(status, &body, &self.name))
    }

    fn parsed<T: DeserializeOwned>(&self, answer: http::Response<Body>) -> Result<T> {
        let bytes = self.read(answer, LIST_LENGTH_MAX)?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Error::corrupt(format!("{}: invalid response", self.name)).with_source(error))
    }

    fn read(&self, answer: http::Response<Body>, length_max: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let body = answer.into_body().into_with_config().limit(u64::MAX).reader();
        Paced::new(body)
            .take(length_max + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| self.failed(error.into()))?;
        if bytes.len() as u64 > length_max {
            return Err(Error::corrupt(format!("{}: a response of more than {length_max} bytes", self.name)));
        }
        Ok(bytes)
    }

    /// Maps failures below HTTP.
    fn failed(&self, error: ureq::Error) -> Error {
        let name = &self.name;
        match error {
            ureq::Error::Other(inner) => match inner.downcast::<Error>() {
                Ok(error) => *error,
                Err(other) => Error::bug(format!("{name}: a request failed")).with_source(other),
            },
            ureq::Error::Timeout(_) => Error::transient(format!("{name}: no data arrived for too long")),
            ureq::Error::Io(error) => {
                Error::transient(format!("{name}: the connection was lost")).with_source(error)
            }
            error => Error::corrupt(format!("{name}: invalid HTTP response")).with_source(error),
        }
    }
}

/// The body of a response that is read at once. One that comes too slowly fails: otherwise an origin could hold a command for ever.
struct Paced<R> {
    body: R,
    started: Instant,
    received: u64,
}

impl<R> Paced<R> {
    fn new(body: R) -> Self {
        Self { body, started: Instant::now(), received: 0 }
    }
}

impl<R: Read> Read for Paced<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.started.elapsed() > SILENCE_MAX + Duration::from_secs(self.received / RATE_MIN) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the response comes too slowly"));
        }
        let length = self.body.read(buffer)?;
        self.received += length as u64;
        Ok(length)
    }
}

/// The header value of a token.
fn bearer(token: &str) -> Result<String> {
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::refused(
            "the access token has invalid characters: its file must hold only the secret (`platter serve token add NAME --json | jq -r \
             .secret`)",
        ));
    }
    Ok(format!("Bearer {token}"))
}

fn to_json(object: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(object).map_err(|error| Error::bug("cannot serialize a request").with_source(error))
}

/// Calls `ask` until it succeeds or fails with an error that is not transient, for at most `time_max`. Only for
/// requests that may be repeated.
///
/// # Errors
/// The last error.
pub(super) fn retried<T>(time_max: Duration, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    let started = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        match ask() {
            Err(error) if error.kind() == ErrorKind::Transient && started.elapsed() + pause <= time_max => {
                thread::sleep(pause);
                pause = next_pause(pause);
            }
            result => return result,
        }
    }
}

/// Returns the pause after a failure, given the previous one.
pub(super) fn next_pause(pause: Duration) -> Duration {
    (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_would_break_a_request_is_refused_without_showing_it() {
        for token in ["", "a b", "geheim\r\nX-Other: 1", "geheim\u{e9}"] {
            let error = bearer(token).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert!(!error.to_string().contains("geheim"));
        }
        assert_eq!(bearer("abc.DEF-1").unwrap(), "Bearer abc.DEF-1");
    }

    #[test]
    fn only_transient_failures_are_retried() {
        let tries = |kind| {
            let mut tried = 0;
            let result: Result<()> = retried(Duration::from_millis(150), || {
                tried += 1;
                if tried == 1 { Err(Error::new(kind, "x")) } else { Ok(()) }
            });
            (tried, result.is_ok())
        };
        assert_eq!(tries(ErrorKind::Transient), (2, true));
        assert_eq!(tries(ErrorKind::Refused), (1, false));
        assert_eq!(next_pause(Duration::ZERO), PAUSE_MIN);
        assert_eq!(next_pause(PAUSE_MAX), PAUSE_MAX);
    }

    /// Answers each request with `head`, and then a byte of `rest` again and again, with a pause after each.
    fn slow_origin(head: &'static [u8], rest: u8) -> (tempfile::TempDir, Arc<Client>) {
        use std::io::Write;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let mut sent = stream.write_all(head);
                while sent.is_ok() {
                    sent = stream.write_all(&[rest]);
                    thread::sleep(Duration::from_millis(50));
                }
            }
        });
        let address = ServerAddress::Unix(path);
        let options = ServerOptions { address, token: None, trust: platter_transport::Trust::System };
        (folder, Client::open(&options).unwrap())
    }

    /// An origin that sends a byte now and then is never silent.
    #[test]
    fn a_response_that_comes_too_slowly_fails() {
        let body = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n[";
        let problem = b"HTTP/1.1 500 No\r\nConnection: close\r\n\r\n";
        for (head, rest) in [(&body[..], b' '), (b"HTTP/1.1 200 OK\r\nX-Slow: ", b'x'), (problem, b'x')] {
            let (_folder, client) = slow_origin(head, rest);
            let started = Instant::now();
            assert!(client.get::<Vec<u32>>("/api/v1/images").is_err());
            assert!(started.elapsed() < SILENCE_MAX * 5, "{:?} after {head:?}", started.elapsed());
        }
    }

    /// A server that ends may have read a request.
    #[test]
    fn a_change_without_a_response_may_still_be_carried_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            // Closed at once, then never answered.
            for _ in 0..2 {
                let _ = listener.accept().unwrap().0.read(&mut [0; 4096]);
            }
            let (mut silent, _) = listener.accept().unwrap();
            let _ = silent.read_to_end(&mut Vec::new());
        });
        let address = ServerAddress::Unix(path.clone());
        let options = ServerOptions { address, token: None, trust: platter_transport::Trust::System };
        let client = Client::open(&options).unwrap();
        let change = || client.change::<u32>("/api/v1/rename", &0).unwrap_err();
        let (read, closed, silent) = (client.get::<u32>("/").unwrap_err(), change(), change());
        server.join().unwrap();
        std::fs::remove_file(path).unwrap();
        let stopped = change();
        for (error, may_be_done) in [(read, false), (closed, true), (silent, true), (stopped, false)] {
            assert_eq!(error.kind(), ErrorKind::Transient);
            assert_eq!(error.with_causes().contains("may still be carried out"), may_be_done, "{error:?}");
        }
    }

    #[test]
    fn a_missing_origin_is_reported_at_once_with_its_address() {
        let address = ServerAddress::Unix("/nonexistent/platter.sock".into());
        let options = ServerOptions { address, token: None, trust: platter_transport::Trust::System };
        let error = Client::open(&options).unwrap().get::<u32>("/api/v1/store").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Transient);
        assert!(error.to_string().contains("unix:/nonexistent/platter.sock"), "{error}");
    }
}
