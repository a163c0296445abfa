//! The kinds of listening sockets, which determine how a client is authenticated.

/// How a request arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// Through a unix socket: everybody who may open it has all rights.
    Trusted,
    /// Over TCP: an access token identifies the client.
    Token,
}
