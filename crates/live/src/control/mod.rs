//! The control socket of a process that serves disks: a line of JSON is asked, a line of JSON answers.
//!
//! Sockets lie in the `run` directory of the place where a process keeps its disks, for their owner only: `node.sock` of a
//! node, which is the agent of that place, and `PID.sock` of any other process. A socket whose process is gone answers
//! nobody and is removed by whoever notices.

mod line;
mod process;
mod question;
mod socket;
mod status;

pub(super) use line::write_line;
pub(super) use process::ServingProcess;
pub use question::read_control_line;
pub(super) use question::{Answer, Question, Words};
pub(super) use socket::ControlSocket;
pub use status::Attached;
pub(super) use status::cache_status;
