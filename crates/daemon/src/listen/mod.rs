//! Accepting clients: the listening sockets, the limits of connections, and the handling of each connection.

mod connection;
mod connections;
mod listener;
mod stall;

pub(crate) use connection::{Connected, Door, House, accept_until};
pub(crate) use connections::{Connections, Places, Standing};
pub(crate) use listener::{Client, Listener};
