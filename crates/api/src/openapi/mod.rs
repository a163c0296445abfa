//! The OpenAPI 3.1 description of the API, generated from [`Endpoint`](crate::Endpoint) and from the types of requests and replies.
//!
//! Paths, roles and scopes come from the table of endpoints, schemas from the types of requests and replies.
//! `operation` has the rest, written by hand: summary, parameters, types and the endpoint's own error statuses.

mod document;
mod operation;
mod schemas;

pub use document::document;
