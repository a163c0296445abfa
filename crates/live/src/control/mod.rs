//! The control socket of a process that serves disks: a request is a line of JSON, and so is the reply.
//!
//! Only a cast keeps its connection open after the first reply (`cast.rs`).
//!
//! Sockets are in the `run` directory of the place where a process keeps its disks, accessible only to their owner:
//! `node.sock` of a node, which is the agent of that place, and `PID.sock` of other processes. A socket whose process
//! has ended is removed by the first process that notices it.

mod cast;
mod line;
mod process;
mod question;
mod socket;

pub use cast::NodeCastRequest;
pub(super) use cast::{CastNews, Planned, table_of};
pub(super) use line::{read_line, read_line_from, write_line};
pub(super) use process::{ServingProcess, unexpected};
pub use question::read_control_line;
pub(super) use question::{Answer, Question, Words};
pub(super) use socket::ControlSocket;
