//! The ways in: whether who comes in there has to show an access token.

/// Where a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// Where only those come in who may do everything.
    Trusted,
    /// Where an access token says who it is.
    Token,
}
