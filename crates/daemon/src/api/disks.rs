//! The endpoint that lists the live disks of this machine.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use platter_api::ListedDisk;

use super::Shared;
use super::body::json;
use super::gate::Asker;
use super::problem::Problem;
use crate::disks::as_seen_by;

pub(super) async fn list(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Problem> {
    let all = origin.disks.all(&origin).await?;
    let seen: Vec<ListedDisk> = all.iter().filter_map(|disk| as_seen_by(&asker.who, disk)).collect();
    json(&seen)
}
