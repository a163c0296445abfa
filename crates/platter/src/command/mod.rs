//! One file per command: reads the arguments, runs the job, prints the report.

use std::process::ExitCode;

use platter_jobs::Result;

use crate::arguments::{Free, Then};

pub(crate) mod analyze;
pub(crate) mod attach;
pub(crate) mod capture;
pub(crate) mod cast;
pub(crate) mod casts;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod clone;
pub(crate) mod completions;
pub(crate) mod copies;
pub(crate) mod cp;
pub(crate) mod detach;
pub(crate) mod diff;
pub(crate) mod discard;
pub(crate) mod discard_interrupted;
pub(crate) mod disks;
pub(crate) mod encryption;
pub(crate) mod export;
pub(crate) mod find;
pub(crate) mod follow;
pub(crate) mod forget;
pub(crate) mod gc;
pub(crate) mod heal;
pub(crate) mod history;
pub(crate) mod hoard;
pub(crate) mod images;
pub(crate) mod init;
pub(crate) mod install;
pub(crate) mod key;
pub(crate) mod lock;
pub(crate) mod log;
pub(crate) mod ls;
pub(crate) mod mount;
pub(crate) mod node;
pub(crate) mod promote;
pub(crate) mod protect;
pub(crate) mod publish;
pub(crate) mod push;
pub(crate) mod quota;
pub(crate) mod rebuild;
pub(crate) mod receive;
pub(crate) mod rename;
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod sign;
pub(crate) mod trace;
pub(crate) mod verify;

/// Result of a command.
pub(crate) type Outcome = Result<ExitCode>;

/// The program name and version in version records.
const TOOL_VERSION: &str = concat!("platter ", env!("CARGO_PKG_VERSION"));

impl From<Free> for platter_jobs::FreeSpace {
    fn from(free: Free) -> Self {
        match free {
            Free::Skip => Self::Skip,
            Free::Zero => Self::Zero,
        }
    }
}

impl From<Then> for platter_live::OnDetach {
    fn from(then: Then) -> Self {
        match then {
            Then::Keep => Self::Keep,
            Then::Publish => Self::Publish,
            Then::Discard => Self::Discard,
        }
    }
}
