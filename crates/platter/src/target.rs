//! Shared by the commands that write a target: its arguments, the confirmation before overwriting, and the report of a
//! comparison.

use std::path::Path;
use std::sync::Arc;

use platter_jobs::{Compared, Consent, DeltaReport, GrownReport, Result, TargetContents, TargetRequest};

use crate::arguments::TargetOptions;
use crate::interruption::tell_of;
use crate::output::Output;
use crate::question::{can_ask, is_answered_yes};
use crate::sizes::bytes;

/// The target that the arguments name. From now on, an interruption prints the state of the target.
///
/// # Errors
/// `Io` when the signal handler cannot be installed.
pub(crate) fn request(path: &Path, options: &TargetOptions, output: Output) -> Result<TargetRequest> {
    let consent = match options.yes {
        true => Consent::Given,
        false if can_ask() => Consent::Ask(Arc::new(ask)),
        false => Consent::Absent,
    };
    let request = TargetRequest {
        free: options.free.into(),
        grow: options.grow,
        new_ids: options.new_ids,
        read_back: options.verify,
        force: Some(options.force.clone()),
        consent,
        ..TargetRequest::new(path)
    };
    tell_of_target(&request, output)?;
    Ok(request)
}

/// A file that must not exist yet.
///
/// # Errors
/// As [`request`].
pub(crate) fn new_file(path: &Path, output: Output) -> Result<TargetRequest> {
    let request = TargetRequest::new(path);
    tell_of_target(&request, output)?;
    Ok(request)
}

fn tell_of_target(request: &TargetRequest, output: Output) -> Result<()> {
    let state = request.state.clone();
    tell_of(move || state.abandon(), output)
}

fn ask(contents: &TargetContents) -> Result<bool> {
    is_answered_yes(&format!("This overwrites {contents}"))
}

/// A line saying what was compared and what was not; empty without a comparison.
pub(crate) fn comparison(compared: Option<&Compared>, is_gpt_moved: bool) -> String {
    let Some(compared) = compared else { return String::new() };
    let mut text = format!(
        "\nread back and compared: {} of data and {} of zeros",
        bytes(compared.data_bytes),
        bytes(compared.zero_bytes)
    );
    if is_gpt_moved {
        text += ", and the moved backup GPT";
    }
    match compared.free_bytes_left_out {
        0 => text + ": all of the disk",
        free => text + &format!("; not compared: {} of free space", bytes(free)),
    }
}

/// A line saying what did not have to be fetched; empty if that was not looked for.
pub(crate) fn delta(report: Option<&DeltaReport>, fetched: u64) -> String {
    report.map_or_else(String::new, |report| {
        format!(
            "\nkept {} of data that the target held, copied {}, fetched {}",
            bytes(report.kept_bytes),
            bytes(report.copied_bytes),
            bytes(fetched)
        )
    })
}

/// How a report begins that is about one partition.
pub(crate) fn part(number: Option<u32>) -> String {
    number.map_or_else(String::new, |number| format!("partition {number} of "))
}

/// Lines about changes to the partition table; empty without any.
pub(crate) fn table_changes(moved_backup: bool, grown: Option<&GrownReport>, new_ids: bool) -> String {
    let mut text = String::new();
    if moved_backup {
        text += "\nthe backup GPT was moved to the end of the target";
    }
    if new_ids {
        text += "\nthe disk and its partitions have new ids";
    }
    let Some(grown) = grown else { return text };
    if let Some(number) = grown.partition {
        text += &format!(
            "\npartition {number} was grown from {} to {}",
            bytes(grown.bytes_before),
            bytes(grown.bytes)
        );
    }
    match &grown.reason {
        None => text += &format!("\nits file system was grown to {}", bytes(grown.bytes)),
        Some(reason) => {
            text += &format!("\nits contents ({}) were not grown: {reason}", grown.filesystem);
            if !grown.command.is_empty() {
                text += &format!("; run: {}", grown.command);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_states_what_was_compared() {
        let compared =
            Compared { data_bytes: 1_200_000_000, zero_bytes: 5_000, free_bytes_left_out: 3_000_000_000 };
        assert_eq!(
            comparison(Some(&compared), true),
            "\nread back and compared: 1.20 GB of data and 5.00 kB of zeros, and the moved backup GPT; not compared: \
             3.00 GB of free space"
        );
        let whole = Compared { free_bytes_left_out: 0, ..compared };
        assert!(comparison(Some(&whole), false).ends_with("5.00 kB of zeros: all of the disk"));
        assert_eq!(comparison(None, false), "");
    }
}
