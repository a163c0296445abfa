//! The gate that every request passes: authenticates the client, decides what can be decided without the body, and
//! measures the time.

use std::sync::{Arc, Weak};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use platter_records::{Actor, ImageName};

use super::Shared;
use super::body::discard_refused;
use super::foreign::is_foreign;
use super::problem::{Problem, forbidden, foreign, no_place, not_for, unknown};
use crate::access::{Entrance, Principal, Verdict, decide};
use crate::listen::{Connected, Standing};
use crate::origin::no_image;
use platter_api::Endpoint;

/// The gate of one endpoint.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) origin: Shared,
    pub(super) endpoint: Endpoint,
    pub(super) entrance: Entrance,
}

/// The principal and the endpoint of a request, from which a handler decides.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) who: Arc<Principal>,
    endpoint: Endpoint,
    /// Who makes changes, for the store's log.
    pub(super) by: Actor,
    /// The connection, if it is known.
    pub(super) connection: Option<Weak<()>>,
}

impl Asker {
    /// Checks that the request is allowed for this image.
    ///
    /// # Errors
    /// With the same text whether the image exists or not.
    pub(super) fn check(&self, image: &ImageName) -> Result<(), Problem> {
        match decide(Some(&self.who), self.endpoint, Some(image)) {
            Verdict::Allow => Ok(()),
            Verdict::NotThere => Err(no_image(image).into()),
            Verdict::Forbidden => Err(forbidden(self.endpoint)),
            Verdict::Unknown => Err(unknown(true)),
        }
    }

    /// Checks that the request is allowed for an image that need not exist yet.
    ///
    /// # Errors
    /// Depends only on the access token, so it reveals nothing about existing images.
    pub(super) fn check_new(&self, image: &ImageName) -> Result<(), Problem> {
        match decide(Some(&self.who), self.endpoint, Some(image)) {
            Verdict::NotThere => Err(not_for(image)),
            _ => self.check(image),
        }
    }
}

/// Passes a request to its handler, or refuses it.
pub(super) async fn pass(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let asked = match gate.entrance {
        // Without tokens, nothing else distinguishes a person from a page that misuses the person's browser.
        Entrance::Trusted if is_foreign(request.headers()) => Err(foreign()),
        _ => gate.ask(secret(&request), request.extensions().get()).await,
    };
    let response = match asked {
        Ok(who) => {
            if let Some(who) = who {
                let connected: Option<&Connected> = request.extensions().get();
                let connection = connected.map(|connected| Arc::downgrade(&connected.alive));
                let by = actor(&who, request.extensions().get(), connected);
                request.extensions_mut().insert(Asker { who, endpoint: gate.endpoint, by, connection });
            }
            next.run(request).await
        }
        Err(problem) => {
            discard_refused(request).await;
            problem.into_response()
        }
    };
    gate.origin.metrics.answered(gate.endpoint.route(), response.status().as_u16(), began.elapsed());
    response
}

impl Gate {
    /// Returns the principal; `None` if the endpoint needs no authentication.
    async fn ask(
        &self,
        secret: Option<String>,
        standing: Option<&Standing>,
    ) -> Result<Option<Arc<Principal>>, Problem> {
        let is_shown = secret.is_some();
        let who = match (self.endpoint.role(), self.entrance) {
            (None, _) => None,
            (_, Entrance::Trusted) => Some(Arc::new(Principal::of_unix_socket())),
            (_, Entrance::Token) => self.holder(secret).await?,
        };
        if let Some(standing) = standing.filter(|_| who.is_some()) {
            self.make_known(standing)?;
        }
        match decide(who.as_deref(), self.endpoint, None) {
            Verdict::Allow => Ok(who),
            Verdict::Unknown => {
                self.origin.metrics.authentication_failures.add(1);
                Err(unknown(is_shown))
            }
            Verdict::Forbidden | Verdict::NotThere => Err(forbidden(self.endpoint)),
        }
    }

    /// Moves a connection that has shown a valid token to the places of known clients.
    fn make_known(&self, standing: &Standing) -> Result<(), Problem> {
        let is_first = standing.become_known().map_err(|refusal| {
            self.origin.metrics.connections_turned_away.add(1);
            no_place(refusal)
        })?;
        if is_first {
            self.origin.metrics.connections_unauthenticated.subtract(1);
        }
        Ok(())
    }

    /// Returns the principal whose token has this secret.
    async fn holder(&self, secret: Option<String>) -> Result<Option<Arc<Principal>>, Problem> {
        let Some(secret) = secret else { return Ok(None) };
        let origin = Arc::clone(&self.origin);
        Ok(self.origin.access_pool.run(move || origin.access.principal(&secret)).await?)
    }
}

/// Returns who makes changes: the access token's name and the client's address, or a user of this machine.
fn actor(who: &Principal, standing: Option<&Standing>, connected: Option<&Connected>) -> Actor {
    let user = match connected.and_then(|connected| connected.uid) {
        Some(0) => "root".into(),
        Some(uid) => format!("uid {uid}"),
        None => String::new(),
    };
    let name =
        [&who.name, &who.id, &user].into_iter().find(|text| !text.is_empty()).map_or("", String::as_str);
    match standing {
        Some(standing) => Actor::new(name, &standing.address().to_string()),
        None => Actor::new(name, "unix socket"),
    }
}

/// The access token in a request's headers.
fn secret(request: &Request) -> Option<String> {
    let shown = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, secret) = shown.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim().to_owned())
}
