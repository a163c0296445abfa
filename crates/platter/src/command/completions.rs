//! `platter completions`.

use std::process::ExitCode;

use clap::CommandFactory;

use super::Outcome;
use crate::arguments::{Arguments, Completions};

pub(crate) fn run(options: &Completions) -> Outcome {
    clap_complete::generate(options.shell, &mut Arguments::command(), "platter", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}
