//! An attacker stores a disk whose contents look like a version record of an image that the attacker may not publish. Whatever
//! happens to the pack, this never yields a name: names come only from records whose place in a pack is proven.

use std::path::{Path, PathBuf};

use platter_image::frame::{Compressor, FrameBuilder, to_packed};
use platter_image::page::{Entry as RecipeEntry, State};
use platter_image::recipe::{CutPolicy, RecipeBuilder};
use platter_image::{BlockId, Domain, Extent, FrameStore, Kind, Score};
use platter_records::VersionRecord;
use platter_store::{Store, rebuild};
use platter_vfs::Vfs;
use platter_vfs::simulated::SimulatedDisk;

use super::work::{Dice, Machine, draft};

/// A block of incompressible noise, which is stored unchanged, with a whole frame in the middle, in the form it has in a pack.
fn poisoned() -> Vec<u8> {
    let mut record = VersionRecord::draft("secret/payroll".parse().unwrap(), Score(BlockId([9; 32])), 1);
    record.number = 1000;
    let bytes = record.encode().unwrap();
    let mut frame = FrameBuilder::new(Kind::Version, Domain::SHARED, 1 << 17);
    frame.push(BlockId::of(Kind::Version, &bytes), &bytes);
    let frame = frame.encode(&mut Compressor::new(3).unwrap()).unwrap();
    let (header, payload) = to_packed(&frame.stored).unwrap();
    let mut dice = Dice(1);
    let mut block: Vec<u8> = (0..3 * 512).map(|_| dice.below(256) as u8).collect();
    let whole = [&header[..], payload].concat();
    block[300..300 + whole.len()].copy_from_slice(&whole);
    block
}

/// A store with a version of `secret/payroll` and a version of `lab/a` with the poisoned disk. Returns the latter's pack file.
fn poisoned_store() -> (Machine, PathBuf) {
    let machine = Machine::new();
    Store::init(&machine.place).unwrap();
    let store = Store::open_writer(&machine.place).unwrap();
    super::work::publish(&store, "secret/payroll", &[1]).unwrap();
    let before = packs(&machine);
    let session = store.session().unwrap();
    let mut compressor = Compressor::new(1).unwrap();
    let disk: Vec<Vec<u8>> = vec![poisoned(), super::work::block(70)];
    let length = disk.iter().map(|block| block.len() as u64).sum();
    let mut builder =
        RecipeBuilder::new(length, 512, CutPolicy::FILE_ALIGNED_64K_GRID_32K, Domain::SHARED, Vec::new());
    let mut offset = 0;
    for contents in &disk {
        let id = BlockId::of(Kind::Data, contents);
        let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 17);
        frame.push(id, contents);
        session.append(&frame.encode(&mut compressor).unwrap()).unwrap();
        let extent = Extent::new(offset, contents.len() as u64);
        builder.push(RecipeEntry { extent, state: State::Data { block: id, offset: 0 } }).unwrap();
        offset = extent.end();
    }
    let (score, pages): (Score, Vec<(BlockId, Vec<u8>)>) = builder.finish().unwrap();
    for (id, bytes) in pages {
        let mut frame = FrameBuilder::new(Kind::Page, Domain::SHARED, 1 << 17);
        frame.push(id, &bytes);
        session.append(&frame.encode(&mut compressor).unwrap()).unwrap();
    }
    session.publish(draft("lab/a", (score, length)).unwrap()).unwrap();
    drop(store);
    let new: Vec<PathBuf> = packs(&machine).into_iter().filter(|pack| !before.contains(pack)).collect();
    assert_eq!(new.len(), 1);
    let bytes = machine.disk().contents(&new[0]).unwrap();
    let forged = poisoned()[300..320].to_vec();
    assert!(bytes.windows(20).any(|window| window == forged), "the pack contains the frame unchanged");
    (machine, new[0].clone())
}

fn packs(machine: &Machine) -> Vec<PathBuf> {
    let disk = machine.disk();
    let list = |dir: &PathBuf| {
        disk.list(dir).unwrap().into_iter().map(|entry| dir.join(entry.name)).collect::<Vec<_>>()
    };
    list(&machine.place.dir().join("packs")).iter().flat_map(list).collect()
}

/// Rebuilds twice with these bytes in the pack, without the catalog and with it, and checks the names.
fn names_after(machine: &Machine, good: &SimulatedDisk, pack: &Path, bytes: &[u8], context: &str) {
    for without_catalog in [true, false] {
        let disk = good.fork();
        disk.overwrite(pack, bytes);
        if without_catalog {
            disk.remove(&machine.place.dir().join("catalog.sqlite")).unwrap();
        }
        machine.insert(&disk);
        for _ in 0..2 {
            let report = rebuild(&machine.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
            let names: Vec<String> = report.versions.iter().map(ToString::to_string).collect();
            let honest = names == ["lab/a@1", "secret/payroll@1"] || names == ["secret/payroll@1"];
            assert!(honest, "{context}: {names:?}");
        }
    }
}

fn damage_at_every(step: usize) {
    let (machine, pack) = poisoned_store();
    let good = machine.disk();
    let bytes = good.contents(&pack).unwrap();
    for at in (0..bytes.len()).step_by(step) {
        names_after(&machine, &good, &pack, &bytes[..at], &format!("cut to {at} of {}", bytes.len()));
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        names_after(&machine, &good, &pack, &bad, &format!("byte {at} of {}", bytes.len()));
        // Also damages the footer, so that frames are searched for.
        let second = bytes.len() - 10;
        bad[second] ^= 1;
        names_after(&machine, &good, &pack, &bad, &format!("bytes {at} and {second} of {}", bytes.len()));
    }
}

#[test]
fn no_damage_turns_a_disks_contents_into_a_name() {
    damage_at_every(23);
}

/// Part of `make test-full`.
#[test]
#[ignore = "minutes: every byte of a pack, in three ways"]
fn no_damage_of_any_byte_turns_a_disks_contents_into_a_name() {
    damage_at_every(1);
}
