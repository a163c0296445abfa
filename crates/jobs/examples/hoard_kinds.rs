//! Prints the composition of a store's hoard as JSON.
//!
//! `hoard_kinds STORE KINDS-DIR`: KINDS-DIR has a file for each image, named like the image with `-` for each `/`. It
//! has a line `OFFSET LENGTH KIND` for each range of the disk, ascending (made by `bench/disk-kinds`). Prints for each
//! kind its bytes in all boot sets, the unique bytes, and the bytes as stored in a hoard. A block has the kind that it
//! has on the first disk. Also prints how similar boot sets, and whole images, are: which share of an item's bytes at
//! least one other item has, and by which share of the other items a byte is had; both as means over all items.
//! Identical items count as one, whatever their names.

#![allow(clippy::print_stdout, reason = "a measuring program")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;

use platter_image::frame::{Compressor, FrameBuilder, RAW_LENGTH_DEFAULT};
use platter_image::page::State;
use platter_image::recipe::Recipe;
use platter_image::{BlockId, Domain, Error, Extent, IoContext, Kind, Result};
use platter_jobs::{Store, StorePlace};

/// zstd level of a hoard's frames.
const LEVEL: i32 = 3;

/// The kind of data from an offset up to the next one.
type Kinds = BTreeMap<u64, String>;

#[derive(Default)]
struct Figures {
    sum: u64,
    unique: u64,
    stored: u64,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, kinds] = &arguments[..] else {
        return Err(Error::refused("usage: hoard_kinds STORE KINDS-DIR"));
    };
    let store = Store::open_reader(&StorePlace::on_system(store))?;
    let mut figures: BTreeMap<String, Figures> = BTreeMap::new();
    let (mut known, mut frames) = (HashMap::new(), HashMap::new());
    let mut compressor = Compressor::new(LEVEL)?;
    let (mut sets, mut images) = (Similarity::default(), Similarity::default());
    let mut scores = HashSet::new();
    for member in store.hoard()?.members {
        let set = store.boot_set(&member.boot_set)?;
        let image = member.version.image.as_str().replace('/', "-");
        let kinds = read_kinds(&Path::new(kinds).join(format!("{image}.tsv")))?;
        let disk = blocks_of(&store, &member.record.score.to_string())?;
        for row in &set.blocks {
            let at = disk.get(&row.id).map_or(0, |(at, _)| *at);
            let kind = known.entry(row.id).or_insert_with(|| kind_at(&kinds, at));
            let figures = figures.entry(kind.clone()).or_default();
            figures.sum += row.length();
        }
        if scores.insert(member.record.score) {
            sets.add(set.blocks.iter().map(|row| (row.id, row.length())));
            images.add(disk.iter().map(|(id, (_, length))| (*id, *length)));
        }
    }
    for (id, kind) in &known {
        let contents = store.read_block(Kind::Data, id)?;
        let figures = figures.entry(kind.clone()).or_default();
        figures.unique += contents.len() as u64;
        let new = || FrameBuilder::new(Kind::Data, Domain::SHARED, RAW_LENGTH_DEFAULT);
        let frame = frames.entry(kind.clone()).or_insert_with(new);
        if frame.is_full_for(contents.len()) {
            figures.stored += frame.take().encode(&mut compressor)?.stored.len() as u64;
        }
        frame.push(*id, &contents);
    }
    for (kind, frame) in frames {
        let stored = frame.encode(&mut compressor)?.stored.len() as u64;
        figures.entry(kind).or_default().stored += stored;
    }
    let kinds = figures.iter().map(|(kind, it)| {
        format!(
            "{{\"kind\":\"{kind}\",\"sum\":{},\"unique\":{},\"stored\":{}}}",
            it.sum, it.unique, it.stored
        )
    });
    println!(
        "{{\"kinds\":[{}],\"boot_sets\":{},\"images\":{}}}",
        kinds.collect::<Vec<_>>().join(","),
        sets.text(),
        images.text()
    );
    Ok(())
}

fn read_kinds(file: &Path) -> Result<Kinds> {
    let mut kinds = Kinds::new();
    if !file.exists() {
        return Ok(kinds);
    }
    let text = fs::read_to_string(file).context(|| format!("reading {}", file.display()))?;
    for line in text.lines() {
        let wrong = || Error::refused(format!("{}: {line:?} is not OFFSET LENGTH KIND", file.display()));
        let mut words = line.split_whitespace();
        let offset: u64 = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
        let length: u64 = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
        let kind = words.next().ok_or_else(wrong)?;
        let behind = kind_at(&kinds, offset + length);
        kinds.insert(offset, kind.to_owned());
        kinds.entry(offset + length).or_insert(behind);
    }
    Ok(kinds)
}

fn kind_at(kinds: &Kinds, offset: u64) -> String {
    kinds.range(..=offset).next_back().map_or_else(|| "other".to_owned(), |(_, kind)| kind.clone())
}

/// The blocks of a disk: first position, and used bytes.
fn blocks_of(store: &Store, score: &str) -> Result<HashMap<BlockId, (u64, u64)>> {
    let recipe = Recipe::open(store.resolve(score)?.score, store)?;
    let mut blocks: HashMap<BlockId, (u64, u64)> = HashMap::new();
    for entry in recipe.entries(Extent::new(0, recipe.root().disk_length)) {
        let entry = entry?;
        let State::Data { block, offset } = entry.state else { continue };
        let end = u64::from(offset) + entry.extent.length;
        let known = blocks.entry(block).or_insert((entry.extent.offset, 0));
        known.1 = known.1.max(end);
    }
    Ok(blocks)
}

/// Items with their blocks.
#[derive(Default)]
struct Similarity {
    items: Vec<Vec<(BlockId, u64)>>,
    holders: HashMap<BlockId, u32>,
}

impl Similarity {
    fn add(&mut self, blocks: impl Iterator<Item = (BlockId, u64)>) {
        let blocks: Vec<_> = blocks.collect();
        blocks.iter().for_each(|(id, _)| *self.holders.entry(*id).or_default() += 1);
        self.items.push(blocks);
    }

    fn text(&self) -> String {
        let count = self.items.len() as f64;
        let mean = |part: &dyn Fn(u32) -> f64| {
            let of_item = |blocks: &Vec<(BlockId, u64)>| {
                let all: u64 = blocks.iter().map(|(_, length)| length).sum();
                let shared = blocks.iter().map(|(id, length)| *length as f64 * part(self.holders[id]));
                shared.sum::<f64>() / all.max(1) as f64
            };
            self.items.iter().map(of_item).sum::<f64>() / count.max(1.0)
        };
        let any = mean(&|holders| f64::from(u8::from(holders > 1)));
        let others = mean(&|holders| f64::from(holders - 1) / (count - 1.0).max(1.0));
        format!("{{\"items\":{count},\"shared_by_any\":{any:.4},\"shared_by_each_other\":{others:.4}}}")
    }
}
