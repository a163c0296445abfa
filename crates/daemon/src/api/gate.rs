//! What every request passes: who asks, whether that is enough to ask at all, how long it took.

use std::sync::{Arc, Weak};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use platter_store::ImageName;

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

/// Who asks, and for what: what a handler decides with.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) who: Arc<Principal>,
    endpoint: Endpoint,
    /// Gone when the connection is; `None` where nothing is known of it.
    pub(super) connection: Option<Weak<()>>,
}

impl Asker {
    /// Lets through whoever may ask this of that image.
    ///
    /// # Errors
    /// The same whether there is such an image or not.
    pub(super) fn check(&self, image: &ImageName) -> Result<(), Problem> {
        match decide(Some(&self.who), self.endpoint, Some(image)) {
            Verdict::Allow => Ok(()),
            Verdict::NotThere => Err(no_image(image).into()),
            Verdict::Forbidden => Err(forbidden(self.endpoint)),
            Verdict::Unknown => Err(unknown()),
        }
    }

    /// Lets through whoever may ask this of an image that need not be there yet.
    ///
    /// # Errors
    /// Of the access token only, so it tells nothing of what is there.
    pub(super) fn check_new(&self, image: &ImageName) -> Result<(), Problem> {
        match decide(Some(&self.who), self.endpoint, Some(image)) {
            Verdict::NotThere => Err(not_for(image)),
            _ => self.check(image),
        }
    }
}

/// Lets a request through to its handler.
pub(super) async fn pass(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let asked = match gate.entrance {
        // There nothing else tells a person from a page that misuses the person's browser.
        Entrance::Trusted if is_foreign(request.headers()) => Err(foreign()),
        _ => gate.ask(secret(&request), request.extensions().get()).await,
    };
    let response = match asked {
        Ok(who) => {
            if let Some(who) = who {
                let connected: Option<&Connected> = request.extensions().get();
                let connection = connected.map(|connected| Arc::downgrade(&connected.0));
                request.extensions_mut().insert(Asker { who, endpoint: gate.endpoint, connection });
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
    /// Who asks; `None` where nobody has to say.
    async fn ask(
        &self,
        secret: Option<String>,
        standing: Option<&Standing>,
    ) -> Result<Option<Arc<Principal>>, Problem> {
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
                Err(unknown())
            }
            Verdict::Forbidden | Verdict::NotThere => Err(forbidden(self.endpoint)),
        }
    }

    /// Gives a connection that showed a valid token the place of one that has.
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

    /// Who holds the token of that secret.
    async fn holder(&self, secret: Option<String>) -> Result<Option<Arc<Principal>>, Problem> {
        let Some(secret) = secret else { return Ok(None) };
        let origin = Arc::clone(&self.origin);
        Ok(self.origin.access_pool.run(move || origin.access.principal(&secret)).await?)
    }
}

/// The access token that a request shows.
fn secret(request: &Request) -> Option<String> {
    let shown = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, secret) = shown.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim().to_owned())
}
