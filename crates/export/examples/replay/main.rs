//! Replays the reads of a trace against an NBD server, and prints how long they took as JSON.
//!
//! `replay TRACE --nbd URI|SOCKET [--think PART] [--writes] [--score SCORE]`: `--think 1` keeps the recorded times between
//! requests, 0 (the default) none of them.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a measuring program")]

mod client;
mod replaying;

use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;

use platter_image::{Error, IoContext, Result};
use platter_vdisk::Trace;

use client::Client;
use replaying::{Options, Report, replay};

const USAGE: &str = "replay TRACE --nbd URI|SOCKET [--think PART] [--writes] [--score SCORE]";

fn run(mut arguments: impl Iterator<Item = String>) -> Result<Report> {
    let usage = || Error::refused(USAGE);
    let (mut file, mut uri) = (None, None);
    let mut options = Options { think: 0.0, writes: false, score: None };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--nbd" => uri = arguments.next(),
            "--think" => {
                let part = arguments.next().and_then(|part| part.parse().ok());
                options.think = part.filter(|part| (0.0..=1e3).contains(part)).ok_or_else(usage)?;
            }
            "--writes" => options.writes = true,
            "--score" => options.score = Some(arguments.next().ok_or_else(usage)?),
            _ if file.is_none() => file = Some(argument),
            _ => return Err(usage()),
        }
    }
    let (file, uri) = file.zip(uri).ok_or_else(usage)?;
    let trace = Trace::read(BufReader::new(File::open(&file).context(|| format!("opening {file}"))?))?;
    replay(&trace, &mut Client::connect(&uri)?, &options)
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(report) => {
            println!(
                "{{\"requests\":{},\"bytes\":{},\"failed\":{},\"p50_us\":{:.1},\"p99_us\":{:.1},\"max_us\":{:.1},\
                 \"service_seconds\":{:.6},\"wall_seconds\":{:.6},\"digest\":\"{:016x}\"}}",
                report.requests,
                report.bytes,
                report.failed,
                report.quantile_us(0.5),
                report.quantile_us(0.99),
                report.quantile_us(1.0),
                report.latencies_us.iter().sum::<f64>() / 1e6,
                report.wall.as_secs_f64(),
                report.digest,
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}
