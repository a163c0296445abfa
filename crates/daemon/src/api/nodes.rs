//! Endpoints for nodes: a node reports itself and learns of others; a list of all, for tokens that read everything.

use std::time::Instant;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use platter_api::{NodePeersReply, NodeReport, NodesReply};
use platter_image::Error;

use super::Shared;
use super::body::{self, json};
use super::gate::Asker;
use super::problem::Problem;
use crate::nodes::{REPORT_LENGTH_MAX, check_report};

pub(super) async fn report(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let held = body::read(&origin, &asker, &headers, sent, REPORT_LENGTH_MAX).await?;
    let counted = |problem: Problem| {
        origin.metrics.node_reports_refused.add(1);
        problem
    };
    let report: NodeReport = serde_json::from_slice(&held.bytes)
        .map_err(|error| Error::refused(format!("the body: {error}")))
        .and_then(|report: NodeReport| check_report(&report).map(|()| report))
        .map_err(|error| counted(Problem::bad_request(&error)))?;
    let nodes = origin.nodes.report(&asker.who, report.clone(), Instant::now());
    let nodes = nodes.map_err(|error| counted(error.into()))?;
    origin.metrics.node_reports.add(1);
    let (shared, role) = (origin.clone(), asker.who.role);
    let hoard = origin.pool.run(move || {
        shared.lease_for_node(&asker.who, &report);
        shared.hoard(&asker.who)
    });
    let hoard = hoard.await?;
    json(&NodePeersReply { nodes, hoard_revision: hoard.revision, role })
}

pub(super) async fn list(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Problem> {
    let (nodes, shared) = (origin.nodes.list(Instant::now()), origin.clone());
    let hoard = origin.pool.run(move || shared.hoard(&asker.who)).await?;
    json(&NodesReply { nodes, hoard_revision: hoard.revision })
}
