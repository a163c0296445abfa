//! The API, version 1 (`docs/api.md`, `platter_api::openapi`): one handler for each endpoint, each behind the same
//! gate.
//!
//! The gate authenticates the client, decides what can be decided before the body is read, and counts the request. A
//! handler decides again once it knows the image, before it asks the store.

mod access_tokens;
mod body;
mod casts;
mod changes;
mod collect;
mod costs;
mod disks;
mod edit_locks;
mod events;
mod files;
mod foreign;
mod frames;
mod gate;
mod hoard;
mod names;
mod nodes;
mod path;
mod problem;
#[cfg(test)]
mod quota_tests;
mod quotas;
mod reading;
mod replica;
mod uploads;

#[cfg(test)]
pub(crate) mod files_tests;
#[cfg(test)]
mod hoard_tests;
#[cfg(test)]
mod malformed_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unfinished_tests;

use std::sync::Arc;

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Router, middleware};

use crate::access::Entrance;
use crate::dashboard;
use crate::origin::Origin;
use body::discard_refused;
use gate::{Gate, pass};
use platter_api::Endpoint;
use problem::Problem;

/// The state that handlers share.
type Shared = Arc<Origin>;

/// Returns the endpoints for clients of this entrance.
pub(crate) fn router(origin: &Shared, entrance: Entrance) -> Router {
    let mut router = Router::new();
    for endpoint in Endpoint::ALL {
        let gate = Gate { origin: Arc::clone(origin), endpoint, entrance };
        let handler = handler(endpoint).route_layer(middleware::from_fn_with_state(gate, pass));
        router = router.route(endpoint.route().1, handler);
    }
    router
        .merge(dashboard::routes(entrance))
        .fallback(no_endpoint)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::map_response(careful))
        .with_state(Arc::clone(origin))
}

async fn no_endpoint(request: Request) -> Problem {
    discard_refused(request).await;
    problem::no_endpoint()
}

async fn no_method(request: Request) -> Problem {
    discard_refused(request).await;
    problem::no_method()
}

/// Adds headers so that browsers neither cache a response nor guess its media type.
async fn careful(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Answers every request with 503: too many connections.
pub(crate) fn too_many_router() -> Router {
    Router::new().fallback(|| async { problem::too_many_connections() })
}

/// Returns the only response of a server that was replaced to a request that may change something.
pub(crate) fn replaced_router() -> Router {
    Router::new().fallback(|| async { problem::replaced() })
}

fn handler(endpoint: Endpoint) -> MethodRouter<Shared> {
    match endpoint {
        Endpoint::Health => get(reading::health),
        Endpoint::Metrics => get(reading::metrics),
        Endpoint::OpenApi => get(reading::openapi),
        Endpoint::Store => get(reading::store),
        Endpoint::StoreKeys => get(reading::keys),
        Endpoint::Images => get(reading::images),
        Endpoint::Versions => get(reading::versions),
        Endpoint::Resolve => get(reading::resolve),
        Endpoint::Partitions => get(files::partitions),
        Endpoint::Files => get(files::list),
        Endpoint::FileContents => get(files::contents),
        Endpoint::Frames => post(frames::frames),
        Endpoint::Nodes => get(nodes::list),
        Endpoint::ReportNode => post(nodes::report),
        Endpoint::Events => get(events::events),
        Endpoint::BeginUpload => post(uploads::begin),
        Endpoint::Need => post(uploads::need),
        Endpoint::UploadFrames => post(uploads::frames),
        Endpoint::PublishUpload => post(uploads::publish),
        Endpoint::ImportUpload => post(uploads::import),
        Endpoint::EndUpload => delete(uploads::end),
        Endpoint::EditLocks => get(edit_locks::list),
        Endpoint::TakeEditLock => post(edit_locks::take),
        Endpoint::ReleaseEditLock => delete(edit_locks::release),
        Endpoint::Clone => post(names::clone),
        Endpoint::Forget => post(names::forget),
        Endpoint::Collect => post(collect::collect),
        Endpoint::Standing => get(replica::standing),
        Endpoint::Fence => post(replica::fence),
        Endpoint::Replica => post(replica::changes),
        Endpoint::Followers => get(replica::followers),
        Endpoint::RemoveFollower => delete(replica::remove_follower),
        Endpoint::Rename => post(names::rename),
        Endpoint::Sign => post(names::sign),
        Endpoint::Protect => post(names::protect),
        Endpoint::ProtectedVersions => get(names::protected),
        Endpoint::Quotas => get(quotas::list),
        Endpoint::SetQuota => post(quotas::set),
        Endpoint::Changes => get(changes::list),
        Endpoint::Hoard => get(hoard::snapshot),
        Endpoint::HoardChanges => get(hoard::changes),
        Endpoint::BootSet => get(hoard::boot_set),
        Endpoint::RecordBootSet => post(hoard::record),
        Endpoint::UnregisterBootSet => post(hoard::unregister),
        Endpoint::AccessTokens => get(access_tokens::list),
        Endpoint::AddAccessToken => post(access_tokens::add),
        Endpoint::RemoveAccessToken => delete(access_tokens::remove),
        Endpoint::Growth => get(reading::growth),
        Endpoint::Costs => get(costs::costs),
        Endpoint::Disks => get(disks::list),
        Endpoint::Casts => get(casts::list),
        Endpoint::AskForCast => post(casts::ask),
        Endpoint::AskForHoardCast => post(casts::ask_for_hoard),
        Endpoint::TellOfCast => post(casts::tell),
    }
}
