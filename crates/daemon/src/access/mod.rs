//! Access control: access tokens with a role and patterns of image names, and the one function that decides.

mod decide;
mod entrance;
mod pattern;
mod principal;
mod token;

pub(crate) use decide::{Verdict, decide};
pub(crate) use entrance::Entrance;
pub(crate) use pattern::Patterns;
pub(crate) use principal::Principal;
pub use token::AccessTokens;
