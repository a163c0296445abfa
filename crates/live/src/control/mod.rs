//! The control socket of a process that serves disks: a request is a line of JSON, and so is the reply.
//!
//! Sockets are in the `run` directory of the place where a process keeps its disks, accessible only to their owner:
//! `node.sock` of a node, which is the agent of that place, and `PID.sock` of other processes. A socket whose process
//! has ended is removed by the first process that notices it.

mod line;
mod process;
mod question;
mod socket;

pub(super) use line::{read_line, write_line};
pub(super) use process::ServingProcess;
pub use question::read_control_line;
pub(super) use question::{Answer, Question, Words};
pub(super) use socket::ControlSocket;
