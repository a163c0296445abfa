//! Where clients come in, how many may, and how each connection is run.

mod connection;
mod connections;
mod listener;
mod stall;

pub(crate) use connection::{Connected, Door, House, accept_until};
pub(crate) use connections::{Connections, Places, Standing};
pub(crate) use listener::Listener;
