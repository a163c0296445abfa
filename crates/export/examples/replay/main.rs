//! Replays the reads of traces against NBD servers, and prints how long they took as JSON.
//!
//! `replay TRACE --nbd URI|SOCKET [--think PART] [--writes] [--score SCORE] [--also FILE]`: `--think 1` keeps the
//! recorded times between requests, 0 (the default) drops them; `--also` then reads the ranges in FILE, one line
//! `OFFSET LENGTH` each.
//!
//! `replay --list FILE [--think PART] [--writes]`: replays many traces at once, one thread for each line `TRACE URI` or
//! `TRACE URI SCORE`. All replays of one trace must read the same data.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a measuring program")]

mod client;
mod many;
mod replaying;

use std::fs::{self, File};
use std::io::BufReader;
use std::process::ExitCode;

use platter_image::{Error, Extent, IoContext, Result};
use platter_vdisk::Trace;

use client::Client;
use replaying::{Options, Report, replay};

const USAGE: &str = "replay TRACE --nbd URI|SOCKET [--think PART] [--writes] [--score SCORE] [--also FILE]\n\
                     replay --list FILE [--think PART] [--writes]";
/// The longest range of `--also`.
const ALSO_LENGTH_MAX: u64 = 1 << 20;

/// Reads a trace from its file.
pub(crate) fn read_trace(file: &str) -> Result<Trace> {
    Trace::read(BufReader::new(File::open(file).context(|| format!("opening {file}"))?))
}

fn ranges(file: &str) -> Result<Vec<Extent>> {
    let text = fs::read_to_string(file).context(|| format!("reading {file}"))?;
    let mut ranges = Vec::new();
    for line in text.lines() {
        let wrong = || Error::refused(format!("{file}: {line:?} is not OFFSET LENGTH"));
        let (offset, length) = line.split_once(' ').ok_or_else(wrong)?;
        let mut offset: u64 = offset.parse().map_err(|_| wrong())?;
        let mut left: u64 = length.parse().map_err(|_| wrong())?;
        while left > 0 {
            let length = left.min(ALSO_LENGTH_MAX);
            ranges.push(Extent::new(offset, length));
            (offset, left) = (offset + length, left - length);
        }
    }
    Ok(ranges)
}

fn run(mut arguments: impl Iterator<Item = String>) -> Result<String> {
    let usage = || Error::refused(USAGE);
    let (mut file, mut uri, mut list) = (None, None, None);
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--nbd" => uri = arguments.next(),
            "--list" => list = arguments.next(),
            "--think" => {
                let part = arguments.next().and_then(|part| part.parse().ok());
                options.think = part.filter(|part| (0.0..=1e3).contains(part)).ok_or_else(usage)?;
            }
            "--writes" => options.writes = true,
            "--score" => options.score = Some(arguments.next().ok_or_else(usage)?),
            "--also" => options.also = ranges(&arguments.next().ok_or_else(usage)?)?,
            _ if file.is_none() => file = Some(argument),
            _ => return Err(usage()),
        }
    }
    if let Some(list) = list {
        return many::replay_all(&list, &options);
    }
    let (file, uri) = file.zip(uri).ok_or_else(usage)?;
    let report = replay(&read_trace(&file)?, &mut Client::connect(&uri)?, &options)?;
    Ok(format!("{{{},\"digest\":\"{:016x}\"}}", figures(&report), report.digest))
}

/// A report as JSON, without the braces.
pub(crate) fn figures(report: &Report) -> String {
    format!(
        "\"requests\":{},\"bytes\":{},\"failed\":{},\"p50_us\":{:.1},\"p99_us\":{:.1},\"max_us\":{:.1},\
         \"service_seconds\":{:.6},\"wall_seconds\":{:.6}",
        report.requests,
        report.bytes,
        report.failed,
        report.quantile_us(0.5),
        report.quantile_us(0.99),
        report.quantile_us(1.0),
        report.latencies_us.iter().sum::<f64>() / 1e6,
        report.wall.as_secs_f64(),
    )
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}
