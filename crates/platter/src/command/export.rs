//! `platter export`.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use platter_jobs::{
    Error, ExportHolesReport, ExportOptions, ExportRequest, Result, StoreLocation, TargetRequest, export,
    export_holes, export_image, export_stream, is_raw,
};

use super::Outcome;
use crate::arguments::Export;
use crate::output::{EXIT_CORRUPT, Output};
use crate::server::with_cache;
use crate::sizes::bytes;
use crate::target::new_file;
use crate::terminal::Terminal;

pub(crate) fn run(store: &StoreLocation, options: &Export, output: &Output) -> Outcome {
    let format = ExportOptions { format: options.format, compress: options.compress };
    if options.file == Path::new("-") && !options.holes {
        return stream(store, options, output);
    }
    let target = new_file(&options.file, *output)?;
    if options.holes {
        return holes(store, options, &target, output);
    }
    let terminal = Terminal::new(*output);
    let request = request(store, options)?;
    let report = match is_raw(&options.file, format) && !options.compress {
        true => export(&request, &target, &terminal)?,
        false => export_image(&request, &target, format, &terminal)?,
    };
    drop(terminal);
    output.fact(&report, || {
        let (length, written) = (bytes(report.disk_bytes), bytes(report.written_bytes));
        format!(
            "exported {} to {}: {length}, {written} of data\nverified score {}",
            report.version, report.file, report.score
        )
    });
    Ok(ExitCode::SUCCESS)
}

fn request(store: &StoreLocation, options: &Export) -> Result<ExportRequest> {
    Ok(ExportRequest {
        store: with_cache(store, &options.cache)?,
        version: options.version.as_str().to_owned(),
        signatures: options.signatures.policy(),
    })
}

/// Writes the disk to standard output, and nothing else.
fn stream(store: &StoreLocation, options: &Export, output: &Output) -> Outcome {
    if io::stdout().is_terminal() {
        return Err(Error::refused("standard output is a terminal: send it to a file or a pipe"));
    }
    let terminal = Terminal::new(*output);
    export_stream(&request(store, options)?, &mut io::stdout().lock(), &terminal)?;
    Ok(ExitCode::SUCCESS)
}

/// Exports the readable part of a damaged version.
fn holes(store: &StoreLocation, options: &Export, target: &TargetRequest, output: &Output) -> Outcome {
    let terminal = Terminal::new(*output);
    let report = export_holes(&request(store, options)?, target, &terminal)?;
    drop(terminal);
    output.fact(&report, || text(&report, *output));
    Ok(if report.lost_bytes == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_CORRUPT) })
}

fn text(report: &ExportHolesReport, output: Output) -> String {
    let mut text = String::new();
    for range in &report.lost {
        text += &format!("LOST  {} bytes at {}: {}\n", range.length, range.offset, range.reason);
    }
    if report.lost_omitted > 0 {
        text += &format!("{} more ranges are not listed\n", report.lost_omitted);
    }
    for file in &report.lost_files {
        let place =
            if file.partition == 0 { String::new() } else { format!("partition {}: ", file.partition) };
        let bytes = if file.lost_bytes == 0 { String::new() } else { format!(", {} bytes", file.lost_bytes) };
        text += &format!("LOST  {place}{} ({}{bytes})\n", file.path, file.what);
    }
    let (length, written) = (bytes(report.disk_bytes), bytes(report.written_bytes));
    text += &format!("exported {} to {}: {length}, {written} of data\n", report.version, report.file);
    text += &match report.lost_bytes {
        0 => format!("nothing lost; verified score {}", report.score),
        lost => format!("{lost} bytes could not be read and were written as zeros"),
    };
    text + &output.notes(&report.notes)
}
