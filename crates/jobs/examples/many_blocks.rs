//! Measures the block index. `many_blocks make DIR MILLIONS` makes a store of that many blocks, and prints what it costs to add
//! them; `many_blocks look DIR MILLIONS` opens it and looks blocks up, first with cold filters and then with warm ones.
//!
//! The blocks have one sector with a number in it, so they need little space. A pack has about as many blocks as a full pack of real
//! disks. `MILLIONS` may have a fraction.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measuring program")]

use std::time::Instant;

use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::{BlockId, Domain, Error, FrameIndex, FrameStore, Kind, Result};
use platter_jobs::{Store, StorePlace};

/// Blocks of a session.
const SESSION_BLOCKS: u64 = 250_000;
/// Blocks of a frame, and bytes of a pack with about 10,000 blocks.
const FRAME_BLOCKS: u64 = 256;
const PACK_LENGTH: u64 = 800 << 10;
const LOOKUPS: u64 = 200_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, dir, millions] = &arguments[..] else {
        return Err(Error::refused("usage: many_blocks make|look DIR MILLIONS"));
    };
    let millions: f64 = millions.parse().map_err(|_| Error::refused("MILLIONS must be a number"))?;
    let blocks = (millions * 1e6) as u64;
    let place = StorePlace::on_system(dir).with_pack_length_target(PACK_LENGTH);
    if what == "make" { make(&place, blocks) } else { look(&place, blocks) }
}

fn make(place: &StorePlace, blocks: u64) -> Result<()> {
    Store::init(place)?;
    let (started, mut slowest) = (Instant::now(), 0.0_f64);
    let store = Store::open_writer(place)?;
    for first in (0..blocks).step_by(SESSION_BLOCKS as usize) {
        let began = Instant::now();
        add(&store, first..blocks.min(first + SESSION_BLOCKS))?;
        slowest = slowest.max(began.elapsed().as_secs_f64());
    }
    drop(store);
    let rate = blocks as f64 / started.elapsed().as_secs_f64();
    println!(
        "added_per_second {rate:.0}\nslowest_session_s {slowest:.1}\nmake_peak_mib {}",
        memory_mib("VmHWM:")
    );
    let sizes = std::fs::read_dir(place.dir().join("index")).and_then(|entries| {
        entries
            .map(|entry| entry?.metadata().map(|metadata| metadata.len()))
            .collect::<std::io::Result<Vec<u64>>>()
    });
    let sizes = sizes.map_err(|error| Error::io("listing the index", error))?;
    println!("bytes_per_block {:.1}", sizes.iter().sum::<u64>() as f64 / blocks.max(1) as f64);
    Ok(())
}

fn look(place: &StorePlace, blocks: u64) -> Result<()> {
    let (before, began) = (memory_mib("VmRSS:"), Instant::now());
    let store = Store::open_reader(place)?;
    println!("open_ms {:.1}", began.elapsed().as_secs_f64() * 1e3);
    println!("open_mib {}", memory_mib("VmHWM:") - before);
    let step = (blocks / LOOKUPS).max(1);
    for (what, first) in [("hits", 0), ("misses", blocks), ("hits", 7), ("misses", 2 * blocks)] {
        let (began, mut found) = (Instant::now(), 0);
        for number in 0..LOOKUPS {
            let number = if first < blocks { (first + number * step) % blocks } else { first + number };
            found += u64::from(store.locate(&BlockId::of(Kind::Data, &contents(number)))?.is_some());
        }
        if found != if first < blocks { LOOKUPS } else { 0 } {
            return Err(Error::bug(format!("{what}: {found} of {LOOKUPS} blocks were found")));
        }
        println!("{what}_per_second {:.0}", LOOKUPS as f64 / began.elapsed().as_secs_f64());
    }
    println!("look_mib {}", memory_mib("VmHWM:") - before);
    Ok(())
}

fn contents(number: u64) -> Vec<u8> {
    let mut contents = vec![1; 512];
    contents[..8].copy_from_slice(&number.to_le_bytes());
    contents
}

fn add(store: &Store, numbers: std::ops::Range<u64>) -> Result<()> {
    let session = store.session()?;
    let mut compressor = Compressor::new(1)?;
    let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, FRAME_BLOCKS as usize * 512);
    for number in numbers {
        let contents = contents(number);
        if frame.is_full_for(contents.len()) {
            session.append(&frame.take().encode(&mut compressor)?)?;
        }
        frame.push(BlockId::of(Kind::Data, &contents), &contents);
    }
    if !frame.is_empty() {
        session.append(&frame.encode(&mut compressor)?)?;
    }
    session.keep()
}

/// A line of this process's memory, in MiB.
fn memory_mib(name: &str) -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    let kib = line.split_whitespace().nth(1).and_then(|number| number.parse::<i64>().ok());
    kib.unwrap_or(0) / 1024
}
