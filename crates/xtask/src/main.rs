//! `cargo xtask`: the project's own chores. It owns the house rules that a program can check (`tidy`).
//! It is never shipped, and it must never change a file: it reads the tree and says what is wrong.

mod tidy;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy   check what the house style lets a program check";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("tidy"), None) => run_tidy(),
        _ => {
            say(USAGE);
            ExitCode::from(2)
        }
    }
}

fn run_tidy() -> ExitCode {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    match tidy::check(&root) {
        Ok(report) => {
            for violation in &report.violations {
                say(&violation.to_string());
            }
            say(&format!("tidy: {} files read, {} violations", report.files, report.violations.len()));
            if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            say(&format!("tidy: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes one line to standard output; a closed pipe is not an error worth telling.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
