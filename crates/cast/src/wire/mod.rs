//! The messages of the cast protocol. Each is written and parsed in one file.
//!
//! Datagrams share a header ([`format`]). From the sender to the group: [`announce`], [`data`], [`plan`]. From a
//! receiver to the sender: [`request`], [`report`]. Over the reliable channel: [`opening`], then [`join`], in which a [`resume`] is a datagram, too. Parsing accepts hostile bytes,
//! never panics, and allocates at most what a datagram can hold. The layouts are in `docs/formats/cast-wire.md`
//! and fixed by `golden/wire-v1.txt`.

pub(crate) mod announce;
pub(crate) mod channel;
pub(crate) mod data;
pub(crate) mod format;
#[cfg(test)]
mod golden;
pub(crate) mod join;
pub(crate) mod opening;
pub(crate) mod plan;
pub(crate) mod protection;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod resume;
