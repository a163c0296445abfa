//! Copies of versions and of whole stores.
//!
//! - `push`: copies versions from one store to another (`platter push`, `platter pull`)
//! - `follow`: keeps a second store up to date (`platter follow`)
//! - `promote`: makes that store the origin (`platter promote`)
//! - `carry`: one recipe with its blocks, as far as the other store lacks them
//! - `feed`: stored frames of a store, verified
//!
//! Blocks travel in the frames in which they are stored. A source only suggests bytes: everything is hashed before it is added.

mod carry;
mod feed;
mod follow;
mod promote;
mod push;
mod roles;
#[cfg(test)]
mod tests;

pub use follow::{FollowRequest, follow};
pub use promote::{PromoteReport, PromoteRequest, options_of, promote, tell_former};
pub use push::{PushReport, PushRequest, PushedVersion, VersionChoice, push};
pub use roles::{CopiesReport, copies, remove_follower};
