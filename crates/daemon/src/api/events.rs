//! The endpoint for events as they happen: `text/event-stream` (HTML, server-sent events), continued where a client
//! left off.

use std::fmt::Write as _;
use std::time::Instant;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use platter_image::Error;
use tokio::sync::watch;
use tokio::time::timeout_at;

use super::Shared;
use super::gate::Asker;
use crate::config::EVENTS_PAUSE;
use crate::events::Event;

/// Most events in one piece of text.
const BATCH: usize = 256;

/// The state of one listening client.
struct Listening {
    origin: Shared,
    asker: Asker,
    newest: watch::Receiver<u64>,
    ending: watch::Receiver<bool>,
    /// The last event that the client has; `None` when it has missed some.
    known: Option<u64>,
    /// The last event of which the client may know: the id of any later one would tell it of hidden events.
    seen: u64,
    said_hello: bool,
    /// When something was last sent. Hidden events must not delay the next comment.
    spoke: Instant,
    /// When it was last looked whether the access token still exists.
    admitted: Instant,
}

pub(super) async fn events(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
) -> Response {
    let (events, who) = (&origin.events, &asker.who);
    let newest = events.newest();
    let resumed = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let known = resumed.map_or(Some(newest), |id| events.sequence(who, id));
    let listening = Listening {
        newest: origin.events.watch(),
        ending: origin.ending.clone(),
        known,
        seen: events.newest_seen_by(who, known.unwrap_or(newest)),
        said_hello: false,
        spoke: Instant::now(),
        admitted: Instant::now(),
        origin,
        asker,
    };
    let text = unfold(listening, |mut listening| async move {
        let text = listening.next_text().await?;
        Some((Ok::<Bytes, Error>(text.into()), listening))
    });
    let mut response = Body::from_stream(text).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Listening {
    /// Waits for the next text; `None` when the origin ends, or when the access token was removed.
    async fn next_text(&mut self) -> Option<String> {
        loop {
            if *self.ending.borrow() {
                return None;
            }
            if self.admitted.elapsed() >= EVENTS_PAUSE {
                self.admitted = Instant::now();
                if !self.origin.is_admitted(&self.asker.who.id) {
                    return None;
                }
            }
            if let Some(text) = self.text_now() {
                self.spoke = Instant::now();
                return Some(text);
            }
            let news = async {
                tokio::select! {
                    _ = self.newest.changed() => {}
                    _ = self.ending.changed() => {}
                }
            };
            if timeout_at((self.spoke + EVENTS_PAUSE).into(), news).await.is_err() {
                self.spoke = Instant::now();
                // A comment line: writing reveals whether the client has gone.
                return Some(":\n\n".into());
            }
        }
    }

    /// Returns the text that is available without waiting.
    fn text_now(&mut self) -> Option<String> {
        self.newest.borrow_and_update();
        let mut text = String::new();
        while text.is_empty() {
            let (events, who) = (&self.origin.events, &self.asker.who);
            let Some(news) = self.known.and_then(|known| events.after(known, BATCH)) else {
                let newest = events.newest();
                (self.known, self.said_hello) = (Some(newest), true);
                self.seen = events.newest_seen_by(who, newest);
                return Some(format!("id: {}\nevent: reset\ndata: {{}}\n\n", events.id(who, self.seen)));
            };
            if !self.said_hello {
                self.said_hello = true;
                // Tells the client that it is listening, and from which event on.
                let _ = write!(text, "id: {}\nevent: listening\ndata: {{}}\n\n", events.id(who, self.seen));
            } else if news.is_empty() {
                return None;
            }
            for event in &news {
                self.known = Some(event.sequence);
                self.write(event, &mut text);
            }
        }
        Some(text)
    }

    fn write(&self, event: &Event, text: &mut String) {
        let seen = event.what.as_seen_by(&self.asker.who);
        let Some((what, data)) =
            seen.and_then(|what| Some((what.name(), serde_json::to_string(&what).ok()?)))
        else {
            return;
        };
        let id = self.origin.events.id(&self.asker.who, event.sequence);
        // Writing to a `String` cannot fail.
        let _ = write!(text, "id: {id}\nevent: {what}\ndata: {data}\n\n");
    }
}
