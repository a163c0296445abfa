//! `cargo xtask`: the project's own tools. `tidy` checks the house rules that a program can check. It is
//! never shipped, and it must never change a file: it reads the tree and reports violations.

mod tidy;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy   check the rules of the house style";

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

/// Writes one line to standard output; errors such as a closed pipe are ignored.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
