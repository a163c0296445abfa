//! The OpenAPI 3.1 description of the API, generated from [`Endpoint`](crate::Endpoint) and from the types that travel.
//!
//! Paths, roles and scopes come from the table that the origin decides by; schemas come from the types that it reads and
//! writes. What remains to be said of an endpoint by hand is in `operation`: a summary, its parameters, which types it
//! takes and gives, and which refusals are its own.

mod document;
mod operation;
mod schemas;

pub use document::document;
