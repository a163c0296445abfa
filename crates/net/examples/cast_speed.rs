//! Measures the speed of casts, with generated chunks in memory and a sink that only hashes (or does
//! nothing).
//!
//! Run `cast_speed send INTERFACE RATE_BITS CHUNKS RECEIVERS` on one machine (or in one namespace), and
//! `cast_speed receive INTERFACE [plain]` on the others; `plain` does not hash. With `CAST_KEY` in the environment of all, the
//! cast is encrypted.

#![allow(clippy::print_stdout, reason = "a measuring program")]

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use platter_image::{BlockId, Error, Result, Score};
use platter_net::{
    ChunkSink, ChunkSource, ChunkVerdict, JoinKey, ReceiveOptions, Segment, SendOptions, SessionDescription,
    SinkOutcome, receive, send,
};

const SCORE: Score = Score(BlockId([1; 32]));
const CHUNK_BYTES: usize = 1 << 20;

struct Made(Arc<[u8]>);

impl ChunkSource for Made {
    fn read(&self, _index: u32) -> Result<Arc<[u8]>> {
        Ok(Arc::clone(&self.0))
    }
}

struct Sink {
    hashes: bool,
    bytes: u64,
}

impl ChunkSink for Sink {
    fn session(&mut self, description: &SessionDescription) -> Result<Vec<Range<u32>>> {
        Ok(std::iter::once(description.all_chunks()).collect())
    }

    fn chunk(&mut self, _index: u32, bytes: &[u8]) -> Result<ChunkVerdict> {
        self.bytes += bytes.len() as u64;
        if self.hashes {
            std::hint::black_box(blake3::hash(bytes));
        }
        Ok(ChunkVerdict::Accepted)
    }

    fn finish(&mut self) -> Result<SinkOutcome> {
        Ok(SinkOutcome { score: SCORE, bytes_written: self.bytes })
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    let join_key = std::env::var_os("CAST_KEY").map(|key| JoinKey::from_secret(key.as_encoded_bytes()));
    match arguments {
        ["send", interface, rate, chunks, receivers] => {
            let number = |text: &str| {
                text.parse::<u64>().map_err(|_| Error::refused(format!("{text} is not a number")))
            };
            let chunks = number(chunks)? as usize;
            let bytes: Vec<u8> = (0..CHUNK_BYTES).map(|index| ((index * 31) >> 3) as u8).collect();
            let description = SessionDescription {
                secret: Default::default(),
                offer: Vec::new(),
                score: SCORE,
                name: "speed".into(),
                segment_length: 1 << 36,
                segments: vec![Segment { chunks: chunks as u32, recipe_chunks: 1 }],
                chunk_lengths: vec![CHUNK_BYTES as u32; chunks],
            };
            let options = SendOptions {
                interface: Some((*interface).to_owned()),
                join_key,
                rate_bits_per_second: number(rate)?,
                wait_receivers: number(receivers)? as u32,
                linger: Duration::from_millis(100),
                ..SendOptions::default()
            };
            let summary = send(&options, &description, &Made(bytes.into()), |_| {})?;
            let seconds = summary.duration.as_secs_f64();
            let payload = (chunks * CHUNK_BYTES) as f64 * 8.0 / seconds / 1e6;
            let overhead = summary.progress.bytes as f64 / (chunks * CHUNK_BYTES) as f64 - 1.0;
            println!(
                "{payload:.0} Mbit/s to each of {} in {seconds:.2} s, {:.1} % more bytes sent than the chunks contain",
                summary.receivers.len(),
                overhead * 100.0
            );
            println!("{:?}", summary.progress);
        }
        ["receive", interface, rest @ ..] => {
            let interface = Some((*interface).to_owned());
            let options = ReceiveOptions { interface, join_key, ..ReceiveOptions::default() };
            let summary = receive(&options, &mut Sink { hashes: rest.is_empty(), bytes: 0 }, |_| {})?;
            println!(
                "{:?} {} symbols, {} repaired, {} duplicates",
                summary.duration, summary.symbols, summary.repaired, summary.duplicates
            );
        }
        _ => {
            return Err(Error::refused(
                "cast_speed send INTERFACE RATE_BITS CHUNKS RECEIVERS | receive INTERFACE [plain]",
            ));
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}
