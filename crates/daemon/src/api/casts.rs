//! Endpoints for casts: senders report them, clients list them, and who may read a version, or a part of the hoard, asks for a cast of
//! it.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use platter_api::{AskForCastRequest, AskForHoardCastRequest, CastStatus, HoardCastOffer, HoardCastState};
use platter_image::Error;
use platter_records::{ImageName, VersionQuery};

use super::Shared;
use super::body::{json, read_json};
use super::gate::Asker;
use super::path::Named;
use super::problem::{Problem, no_nameless};
use crate::access::Principal;
use crate::casts::{check_id, check_report};
use crate::config::TellOfCast;
use crate::nodes::sharing_group;

/// The refusal of an origin that does not cast.
const NO_CASTS: &str = "this origin does not cast: `platter serve --cast INTERFACE` enables it, and `platter install --server URL` \
    needs no cast";

pub(super) async fn list(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Problem> {
    json(&origin.casts.seen_by(&asker.who, Instant::now()))
}

pub(super) async fn ask(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let request: AskForCastRequest = read_json(&origin, &asker, &headers, sent).await?;
    let what: VersionQuery = request.version.parse().map_err(|error| Problem::bad_request(&error))?;
    if let VersionQuery::Named(image, _) = &what {
        asker.check(image)?;
    }
    let shared = Arc::clone(&origin);
    let offer = origin.pool.run(move || {
        // Before anything else: the answer for something hidden does not depend on the origin's options.
        let resolved = shared.resolve_for(&asker.who, what)?;
        let cast = shared.cast.as_ref().ok_or_else(|| Error::refused(NO_CASTS))?;
        let image = resolved.version.as_ref().map(|it| it.name.image.clone());
        let restricted = (!asker.who.reads_everything()).then_some(&asker.who.patterns);
        let group = restricted.map(|patterns| sharing_group(shared.store.id(), patterns));
        let asked = (&request.families[..], group.as_deref());
        cast.version(&shared.store, &resolved, asked, tell_for(&shared, image))
    });
    json(&offer.await?)
}

pub(super) async fn ask_for_hoard(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let mut request: AskForHoardCastRequest = read_json(&origin, &asker, &headers, sent).await?;
    check_id(&request.node).map_err(|error| Problem::bad_request(&error))?;
    let Some(cast) = origin.cast.clone() else {
        return json(&HoardCastOffer { state: HoardCastState::Fetch, cast: None });
    };
    let shared = Arc::clone(&origin);
    let offer = origin.pool.run(move || {
        let hoard = shared.hoard(&asker.who)?;
        // Only revisions of the whole hoard are numbers in an order.
        if !asker.who.reads_everything() || request.epoch != hoard.epoch || request.since > hoard.revision {
            request.since = 0;
        }
        // Visible only to who reads everything, as a disk without a name.
        cast.hoard(&shared.store, &hoard, &request, tell_for(&shared, None))
    });
    json(&offer.await?)
}

/// Enters the states of a cast of this origin, of this image, into the list.
fn tell_for(origin: &Shared, image: Option<ImageName>) -> TellOfCast {
    let origin = Arc::downgrade(origin);
    Arc::new(move |id: &str, status: &CastStatus| {
        let Some(origin) = origin.upgrade() else { return };
        let (sender, now) = (Principal::of_unix_socket(), Instant::now());
        // Only a list that is full of running casts refuses it; the cast goes on.
        if let Ok(true) = origin.casts.tell(id, &sender, image.clone(), status.clone(), now) {
            origin.tell_of_cast(id, image.clone(), status);
        }
    })
}

pub(super) async fn tell(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    Named(id): Named<String>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let status: CastStatus = read_json(&origin, &asker, &headers, sent).await?;
    let image = check_report(&id, &status).map_err(|error| Problem::bad_request(&error))?;
    match &image {
        Some(image) => asker.check(image)?,
        None if asker.who.reads_everything() => {}
        None => return Err(no_nameless()),
    }
    if origin.casts.tell(&id, &asker.who, image.clone(), status.clone(), Instant::now())? {
        origin.tell_of_cast(&id, image, &status);
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
