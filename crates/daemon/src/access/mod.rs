//! Who may do what: access tokens with a role and patterns of names, and the one function that decides.

mod decide;
mod entrance;
mod pattern;
mod principal;
mod role;
mod token;

pub(crate) use decide::{Endpoint, Scope, Verdict, decide};
pub(crate) use entrance::Entrance;
pub use pattern::NamePattern;
pub(crate) use pattern::Patterns;
pub(crate) use principal::Principal;
pub use role::Role;
pub use token::{AccessToken, AccessTokens, NewToken};
