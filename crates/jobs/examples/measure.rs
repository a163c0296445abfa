//! Measures single operations: decoding alone, random reads, and hashing.
//!
//! `measure decode STORE VERSION [THREADS]` decodes every frame of a version once, without and with hashing; `measure
//! random STORE VERSION [READS]` reads 4 KiB of the disk at random offsets, each by decoding its frame up to the needed
//! block; `measure pages STORE VERSION OTHER` prints the bytes of the recipe's pages that OTHER lacks; `measure hash
//! [THREADS]` hashes blocks of 64 KiB for a second. Frames come from the page cache if they were read before.

#![allow(clippy::print_stdout, reason = "a measuring program")]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use platter_image::frame::{FrameDecoder, Verify};
use platter_image::page::{Entry, State};
use platter_image::recipe::Recipe;
use platter_image::{BlockId, Error, Extent, FrameIndex, Kind, Result, locate, plan};
use platter_jobs::{Store, StorePlace};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [what, store, version, other] = &arguments[..]
        && what == "pages"
    {
        return pages(&Store::open_reader(&StorePlace::on_system(store))?, version, other);
    }
    let (what, store, version, number) = match &arguments[..] {
        [what] if what == "hash" => {
            hash(1);
            return Ok(());
        }
        [what, threads] if what == "hash" => {
            hash(threads.parse().unwrap_or(1));
            return Ok(());
        }
        [what, store, version] => (what, store, version, None),
        [what, store, version, number] => (what, store, version, number.parse().ok()),
        _ => {
            return Err(Error::refused(
                "measure decode|random STORE VERSION [NUMBER], measure pages STORE VERSION OTHER, measure hash [THREADS]",
            ));
        }
    };
    let store = Store::open_reader(&StorePlace::on_system(store))?;
    let recipe = Recipe::open(store.resolve(version)?.score, &store)?;
    match what.as_str() {
        "decode" => decode(&store, &recipe, number.unwrap_or(2)),
        "random" => random(&store, &recipe, number.unwrap_or(5000)),
        other => Err(Error::refused(format!("unknown measurement {other}"))),
    }
}

fn pages(store: &Store, version: &str, other: &str) -> Result<()> {
    let frames = |name: &str| -> Result<Vec<_>> {
        let recipe = Recipe::open(store.resolve(name)?.score, store)?;
        let whole = Extent::new(0, recipe.root().disk_length);
        let mut frames: Vec<_> =
            plan::pages(&recipe, whole, store)?.iter().map(|place| place.frame).collect();
        frames.dedup();
        Ok(frames)
    };
    let known = frames(other)?;
    let new = frames(version)?.into_iter().filter(|frame| known.binary_search(frame).is_err());
    let lengths: Vec<u64> = new.map(|frame| u64::from(frame.length)).collect();
    println!("pages frames {} bytes {}", lengths.len(), lengths.iter().sum::<u64>());
    Ok(())
}

fn decode(store: &Store, recipe: &Recipe<&Store>, threads: usize) -> Result<()> {
    let whole = Extent::new(0, recipe.root().disk_length);
    let mut frames: Vec<_> = plan::blocks(recipe, whole, store)?.iter().map(|place| place.frame).collect();
    frames.dedup();
    for (name, verify) in
        [("warming", Verify::Checksum), ("checksum", Verify::Checksum), ("hashes", Verify::Hashes)]
    {
        let (next, bytes, started) = (AtomicUsize::new(0), AtomicU64::new(0), Instant::now());
        thread::scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| -> Result<()> {
                        let (mut decoder, mut stored) = (FrameDecoder::new()?, Vec::new());
                        while let Some(address) = frames.get(next.fetch_add(1, Ordering::Relaxed)) {
                            store.read_frame(*address, &mut stored)?;
                            let (_, raw) = decoder.decode(&stored, verify)?;
                            bytes.fetch_add(raw.len() as u64, Ordering::Relaxed);
                        }
                        Ok(())
                    })
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|one| one.join().unwrap_or_else(|_| Err(Error::bug("a thread panicked"))))
        })?;
        let (bytes, seconds) = (bytes.into_inner(), started.elapsed().as_secs_f64());
        println!(
            "{name} frames {} bytes {bytes} seconds {seconds:.4} rate {:.0}",
            frames.len(),
            bytes as f64 / seconds
        );
    }
    Ok(())
}

fn hash(threads: usize) {
    let (bytes, started) = (AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for thread in 0..threads {
            let bytes = &bytes;
            scope.spawn(move || {
                let mut block = vec![thread as u8; 64 << 10];
                while started.elapsed() < Duration::from_secs(1) {
                    for _ in 0..64 {
                        // A different block each time.
                        let id = BlockId::of(Kind::Data, &block);
                        block[..32].copy_from_slice(&id.0);
                    }
                    bytes.fetch_add(64 * block.len() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    let rate = bytes.into_inner() as f64 / started.elapsed().as_secs_f64();
    println!("threads {threads} rate {rate:.0}");
}

fn random(store: &Store, recipe: &Recipe<&Store>, reads: usize) -> Result<()> {
    let whole = Extent::new(0, recipe.root().disk_length);
    let entries: Vec<Entry> = recipe.entries(whole).collect::<Result<_>>()?;
    let data: Vec<Entry> =
        entries.into_iter().filter(|entry| matches!(entry.state, State::Data { .. })).collect();
    let (mut decoder, mut stored, mut state) = (FrameDecoder::new()?, Vec::new(), 0x9e37_79b9_7f4a_7c15_u64);
    let mut sum = 0_u64;
    let started = Instant::now();
    for _ in 0..reads {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let entry = &data[(state % data.len() as u64) as usize];
        if let State::Data { block, .. } = entry.state {
            let place = locate(store, &block)?;
            store.read_frame(place.frame, &mut stored)?;
            let contents = decoder.decode_block(&stored, Kind::Data, place.slot, &block)?;
            sum += contents.iter().take(4096).map(|byte| u64::from(*byte)).sum::<u64>();
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("random reads {reads} seconds {seconds:.4} rate {:.0} sum {sum}", reads as f64 / seconds);
    Ok(())
}
