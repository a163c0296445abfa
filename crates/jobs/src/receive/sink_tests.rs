//! Tests of chunks that were forged from valid frames: each is detected, and the disk is right at the end.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use platter_cast::SessionDescription;
use platter_disk::install::{Delta, FreeSpace};
use platter_image::frame::{Compressor, FrameBuilder, RAW_LENGTH_DEFAULT};
use platter_image::{DiskRead, DiskWrite, Domain, DomainKeys, ErrorKind, Extent, Kind, Result};
use platter_net::{
    ChunkSink, ChunkSource, ChunkVerdict, ReceiveEvent, ReceiveOptions, ReceivedChunk, ReceiverState,
    SendOptions, Wanted, receive, send,
};
use platter_store::{Store, StorePlace};

use super::pipeline::Pipeline;
use super::sink::{DiskSink, Opened, ReceivedDisk, SegmentRecipe};
use crate::cast::{Others, describe};
use crate::tests::capture_bytes;
use crate::{Compared, SEGMENT_DATA_MAX};

/// A disk in memory, which the test examines afterwards.
#[derive(Clone)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl DiskRead for Memory {
    fn length(&self) -> u64 {
        self.0.lock().len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        buffer.copy_from_slice(&self.0.lock()[offset as usize..][..buffer.len()]);
        Ok(())
    }
}

impl ReceivedDisk for Memory {
    fn advance(&self, _bytes: u64) {}

    fn finish(&self, _compared: Option<Compared>) -> Result<()> {
        Ok(())
    }
}

impl DiskWrite for Memory {
    fn length(&self) -> u64 {
        self.0.lock().len() as u64
    }

    fn alignment(&self) -> usize {
        512
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> std::io::Result<()> {
        self.0.lock()[offset as usize..][..buffer.len()].copy_from_slice(buffer);
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, length: u64) -> std::io::Result<()> {
        self.0.lock()[offset as usize..][..length as usize].fill(0);
        Ok(())
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Incompressible bytes, the same for the same seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed * 2 + 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    (0..length).map(next).collect()
}

/// A chunk of valid frames, with unwanted blocks.
fn forged(kind: Kind, domain: Domain) -> Vec<u8> {
    let mut compressor = Compressor::new(1).unwrap();
    let mut frame_of = |seed: u64| {
        let bytes = noise(seed, 8 * 512);
        let mut frame = FrameBuilder::new(kind, domain, RAW_LENGTH_DEFAULT);
        frame.push(domain.id_of(kind, &bytes).unwrap(), &bytes);
        frame.encode(&mut compressor).unwrap().stored
    };
    (100..110).flat_map(&mut frame_of).collect()
}

/// A store with the version `a` of a disk of noise, and that disk. The directory exists as long as the first value.
fn store_of_noise() -> (tempfile::TempDir, Store, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store"));
    Store::init(&place).unwrap();
    let disk = noise(7, 3 << 20);
    capture_bytes(&place, "a", &disk);
    (folder, Store::open_reader(&place).unwrap(), disk)
}

#[test]
fn chunks_forged_from_valid_frames_are_detected() {
    let (_folder, store, disk) = store_of_noise();
    let (description, source) =
        describe(&store, &store.resolve("a").unwrap(), SEGMENT_DATA_MAX, Others::Along).unwrap();
    let [recipe, data] = [description.recipe_chunks(0), description.data_chunks(0)];
    assert!(recipe.len() == 2 && data.len() >= 3, "{description:?}");

    let target = Memory(Arc::new(Mutex::new(vec![0xaa; disk.len()])));
    let opened = target.clone();
    let opener =
        move |_: &SegmentRecipe<'_>, _: Extent| -> Result<Opened> { Ok((Arc::new(opened.clone()), None)) };
    let mut sink = DiskSink::new(opener, None, FreeSpace::Skip, false).unwrap();
    sink.session(&description).unwrap();
    let ranges = |range: &std::ops::Range<u32>| vec![range.clone()];

    // Pages of another recipe: the recipe is fetched again.
    let contents = source.read(recipe.start + 1).unwrap();
    let verdict = sink.chunk(recipe.start, &forged(Kind::Page, Domain::SHARED)).unwrap();
    assert_eq!(verdict, ChunkVerdict::Accepted);
    assert!(matches!(sink.chunk(recipe.start + 1, &contents[..20]).unwrap(), ChunkVerdict::Bad(_)));
    let verdict = sink.chunk(recipe.start + 1, &contents).unwrap();
    assert_eq!(verdict, ChunkVerdict::Contradicts(ranges(&recipe)));
    let verdict = sink.chunk(recipe.start, &source.read(recipe.start).unwrap()).unwrap();
    assert_eq!(verdict, ChunkVerdict::Accepted);
    let verdict = sink.chunk(recipe.start + 1, &contents).unwrap();
    assert_eq!(verdict, ChunkVerdict::AcceptedWant(ranges(&data)));
    // Frames of blocks that are not in the recipe, of another kind, or of another domain.
    DomainKeys::derive(&[9; 32], &[1; 32]).add_to_process().unwrap();
    let other_domain = Domain::of(&[9; 32]);
    for (kind, domain) in [
        (Kind::Data, Domain::SHARED),
        (Kind::Data, other_domain),
        (Kind::Page, Domain::SHARED),
        (Kind::Version, Domain::SHARED),
    ] {
        let verdict = sink.chunk(data.start, &forged(kind, domain)).unwrap();
        assert!(matches!(verdict, ChunkVerdict::Bad(_)), "{kind:?}: {verdict:?}");
    }
    assert!(target.0.lock().iter().all(|byte| *byte == 0xaa), "a forged chunk was written");
    // Another chunk's frames, which a listener can have: the data is fetched again after all of it has arrived.
    let other = source.read(data.start + 1).unwrap();
    assert_eq!(sink.chunk(data.start, &other).unwrap(), ChunkVerdict::Accepted);
    let mut last = None;
    for index in data.start + 1..data.end {
        last = Some(sink.chunk(index, &source.read(index).unwrap()).unwrap());
    }
    assert_eq!(last, Some(ChunkVerdict::Contradicts(ranges(&data))));
    let has_only_right_bytes =
        target.0.lock().iter().zip(&disk).all(|(got, right)| got == right || *got == 0xaa);
    assert!(has_only_right_bytes, "a block was written to the wrong place");
    for index in data.clone() {
        assert_eq!(sink.chunk(index, &source.read(index).unwrap()).unwrap(), ChunkVerdict::Accepted);
    }
    let outcome = sink.finish().unwrap();
    assert_eq!((outcome.score, outcome.bytes_written), (description.score, disk.len() as u64));
    assert!(*target.0.lock() == disk);
}

/// A sender that claims to be the right one, and sends valid frames of others, is left; the right one then sends the disk.
#[test]
fn a_sender_with_other_frames_is_left_and_the_next_one_is_used() {
    let (_folder, store, disk) = store_of_noise();
    let (description, source) =
        describe(&store, &store.resolve("a").unwrap(), SEGMENT_DATA_MAX, Others::Along).unwrap();
    let [recipe, data] = [description.recipe_chunks(0), description.data_chunks(0)];
    let right = |index: u32| source.read(index).unwrap().to_vec();
    let target = Memory(Arc::new(Mutex::new(vec![0xaa; disk.len()])));
    let opened = target.clone();
    let opener =
        move |_: &SegmentRecipe<'_>, _: Extent| -> Result<Opened> { Ok((Arc::new(opened.clone()), None)) };
    let mut sink = DiskSink::new(opener, None, FreeSpace::Skip, false).unwrap();
    let pass = |sink: &mut DiskSink<_>, indexes: std::ops::Range<u32>, bytes: &dyn Fn(u32) -> Vec<u8>| {
        indexes.map(|index| sink.chunk(index, &bytes(index)).unwrap()).last().unwrap()
    };
    let forged_pages = |index: u32| match index == recipe.start {
        true => forged(Kind::Page, Domain::SHARED),
        false => right(index),
    };
    // It has the right table of chunks, and pages of another recipe, also when it is asked again.
    assert_eq!(sink.session(&description).unwrap().len(), recipe.len());
    let verdict = pass(&mut sink, recipe.clone(), &forged_pages);
    assert!(matches!(verdict, ChunkVerdict::Contradicts(_)), "{verdict:?}");
    let verdict = pass(&mut sink, recipe.clone(), &forged_pages);
    assert!(matches!(&verdict, ChunkVerdict::Unusable(reason) if reason.contains("missing")), "{verdict:?}");
    // What was under way no longer counts.
    assert!(matches!(pass(&mut sink, 0..1, &right), ChunkVerdict::Unusable(_)));
    // It has the right pages, and segments of another length; or none have a recipe.
    let mut other = SessionDescription { segment_length: 1 << 20, ..description.clone() };
    assert_eq!(sink.session(&other).unwrap().len(), recipe.len());
    let verdict = pass(&mut sink, recipe.clone(), &right);
    assert!(matches!(&verdict, ChunkVerdict::Unusable(reason) if reason.contains("segments")), "{verdict:?}");
    other.segments[0].recipe_chunks = 0;
    assert_eq!(sink.session(&other).unwrap_err().kind(), ErrorKind::Corrupt);
    // It has the right recipe, and sends one chunk of data again and again.
    assert_eq!(sink.session(&description).unwrap().len(), recipe.len());
    assert!(matches!(pass(&mut sink, recipe.clone(), &right), ChunkVerdict::AcceptedWant(_)));
    let one = |_: u32| right(data.start);
    assert!(matches!(pass(&mut sink, data.clone(), &one), ChunkVerdict::Contradicts(_)));
    let verdict = pass(&mut sink, data.clone(), &one);
    assert!(matches!(&verdict, ChunkVerdict::Unusable(reason) if reason.contains("no block")), "{verdict:?}");
    // The right one is asked for all of the data.
    assert_eq!(sink.session(&description).unwrap().len(), data.len());
    assert_eq!(pass(&mut sink, data.clone(), &right), ChunkVerdict::Accepted);
    assert_eq!(sink.finish().unwrap().score, description.score);
    assert!(*target.0.lock() == disk);
}

/// Sends pages of another disk instead of the first chunk of the recipe.
struct Rogue<'a>(&'a dyn ChunkSource);

impl ChunkSource for Rogue<'_> {
    fn read(&self, index: u32) -> Result<Arc<[u8]>> {
        if index == 0 { Ok(forged(Kind::Page, Domain::SHARED).into()) } else { self.0.read(index) }
    }
}

/// A receiver that waits for a score joins a rogue sender of it, before the right one is there.
#[test]
fn a_rogue_sender_does_not_end_a_reception() {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store"));
    Store::init(&place).unwrap();
    let disk = noise(5, 3 << 20);
    capture_bytes(&place, "a", &disk);
    let store = Store::open_reader(&place).unwrap();
    let (description, source) =
        describe(&store, &store.resolve("a").unwrap(), SEGMENT_DATA_MAX, Others::Along).unwrap();
    let mut rogue = description.clone();
    rogue.chunk_lengths[0] = Rogue(&source).read(0).unwrap().len() as u32;
    let (interface, port) = (Some("127.0.0.1".to_owned()), 12_000 + (std::process::id() % 5_000) as u16);
    let stop = Arc::new(AtomicBool::new(false));
    let sending = SendOptions { interface: interface.clone(), port, join_port: 0, ..SendOptions::default() };
    let receiving = ReceiveOptions {
        interface,
        port,
        wanted: Wanted::Score(description.score),
        give_up: Some(Duration::from_secs(30)),
        ..ReceiveOptions::default()
    };
    let target = Memory(Arc::new(Mutex::new(vec![0xaa; disk.len()])));
    let opened = target.clone();
    let opener =
        move |_: &SegmentRecipe<'_>, _: Extent| -> Result<Opened> { Ok((Arc::new(opened.clone()), None)) };
    let mut sink = Pipeline::start(DiskSink::new(opener, None, FreeSpace::Skip, false).unwrap()).unwrap();
    let (joined, has_joined) = channel();
    thread::scope(|scope| {
        let options = SendOptions { stop: stop.clone(), ports: Arc::default(), ..sending.clone() };
        let attack = scope.spawn(|| {
            let options = options;
            send(&options, &rogue, &Rogue(&source), |_| {})
        });
        let received = scope.spawn(|| {
            receive(&receiving, &mut sink, |event| {
                if let ReceiveEvent::Joined { .. } = event {
                    let _ = joined.send(());
                }
            })
        });
        has_joined.recv_timeout(Duration::from_secs(30)).unwrap();
        send(&sending, &description, &source, |_| {}).unwrap();
        assert_eq!(received.join().unwrap().unwrap().outcome.score, description.score);
        stop.store(true, Ordering::Relaxed);
        let told = attack.join().unwrap().unwrap().receivers.remove(0).state;
        assert!(matches!(&told, ReceiverState::Failed(reason) if reason.contains("missing")), "{told:?}");
    });
    assert!(*target.0.lock() == disk);
}

/// A receiver that has most of a disk requests only the chunks with the rest; if their contents were stated wrongly, all.
#[test]
fn only_chunks_with_lacking_blocks_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store"));
    Store::init(&place).unwrap();
    let disk = noise(8, 6 << 20);
    capture_bytes(&place, "a", &disk);
    let store = Store::open_reader(&place).unwrap();
    let (description, source) =
        describe(&store, &store.resolve("a").unwrap(), SEGMENT_DATA_MAX, Others::Along).unwrap();
    let [recipe, data] = [description.recipe_chunks(0), description.data_chunks(0)];
    let right = source.read(recipe.end - 1).unwrap().to_vec();
    let no_blocks = crate::chunk_contents::encode(&vec![Vec::new(); data.len()]).concat();
    for (contents, is_right) in [(right, true), (no_blocks, false)] {
        for read_back in [false, true] {
            let mut before = disk.clone();
            before[3 << 20..(3 << 20) + 4096].fill(1);
            // Moved, and there is no other copy.
            before.copy_within(5 << 20..(5 << 20) + 65536, 0);
            before[5 << 20..(5 << 20) + 65536].fill(2);
            let target = Memory(Arc::new(Mutex::new(before)));
            let opened = target.clone();
            let opener = move |recipe: &SegmentRecipe<'_>, range: Extent| -> Result<Opened> {
                let mut delta = Delta::of_target(recipe, range, FreeSpace::Skip, &opened, false, &|_| {})?;
                delta.search_target(recipe, &opened);
                Ok((Arc::new(opened.clone()), Some(delta)))
            };
            let mut sink = DiskSink::new(opener, None, FreeSpace::Skip, read_back).unwrap();
            sink.session(&description).unwrap();
            for index in recipe.start..recipe.end - 1 {
                let verdict = sink.chunk(index, &source.read(index).unwrap()).unwrap();
                assert_eq!(verdict, ChunkVerdict::Accepted);
            }
            let verdict = sink.chunk(recipe.end - 1, &contents).unwrap();
            let ChunkVerdict::AcceptedWant(wanted) = verdict else { panic!("{verdict:?}") };
            let wanted: Vec<u32> = wanted.into_iter().flatten().collect();
            if is_right {
                assert!(wanted.len() <= 2 && wanted.len() < data.len(), "{wanted:?} of {data:?}");
            } else {
                assert_eq!(wanted, data.clone().collect::<Vec<_>>());
            }
            for index in wanted {
                let verdict = sink.chunk(index, &source.read(index).unwrap()).unwrap();
                assert_eq!(verdict, ChunkVerdict::Accepted);
            }
            sink.finish().unwrap();
            assert!(*target.0.lock() == disk);
            let kept = sink.delta.unwrap();
            assert!(kept.kept_bytes > 5 << 20 && kept.copied_bytes >= 32 << 10, "{kept:?}");
        }
    }
}

/// A disk in memory that fails from this write on.
struct Failing(Memory, Mutex<usize>);

impl DiskRead for Failing {
    fn length(&self) -> u64 {
        DiskRead::length(&self.0)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }
}

impl ReceivedDisk for Failing {
    fn advance(&self, _bytes: u64) {}

    fn finish(&self, _compared: Option<Compared>) -> Result<()> {
        Ok(())
    }
}

impl DiskWrite for Failing {
    fn length(&self) -> u64 {
        DiskWrite::length(&self.0)
    }

    fn alignment(&self) -> usize {
        512
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> std::io::Result<()> {
        let mut left = self.1.lock();
        *left = left.checked_sub(1).ok_or_else(|| std::io::Error::other("the cable is out"))?;
        self.0.write_all_at(buffer, offset)
    }

    fn write_zeroes(&self, offset: u64, length: u64) -> std::io::Result<()> {
        self.0.write_zeroes(offset, length)
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

type Verdicts = Receiver<(u32, Result<ChunkVerdict>)>;

/// Passes chunks to a sink, and returns their verdicts as they come.
fn pass(sink: &mut dyn ChunkSink, chunks: Vec<(u32, Vec<u8>)>) -> Verdicts {
    let (answers, verdicts) = channel();
    for (index, bytes) in chunks {
        let answers = answers.clone();
        sink.receive(ReceivedChunk::new(index, bytes, move |_, verdict| {
            let _ = answers.send((index, verdict));
        }));
    }
    verdicts
}

#[test]
fn several_threads_write_exactly_the_verified_disk() {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store"));
    Store::init(&place).unwrap();
    let disk = noise(9, 24 << 20);
    capture_bytes(&place, "a", &disk);
    let store = Store::open_reader(&place).unwrap();
    let (description, source) =
        describe(&store, &store.resolve("a").unwrap(), SEGMENT_DATA_MAX, Others::Along).unwrap();
    let [recipe, data] = [description.recipe_chunks(0), description.data_chunks(0)];
    let contents = |index: u32| (index, source.read(index).unwrap().to_vec());
    for writes in [usize::MAX, 3] {
        let memory = Memory(Arc::new(Mutex::new(vec![0xaa; disk.len()])));
        let opened = memory.clone();
        let opener = move |_: &SegmentRecipe<'_>, _: Extent| -> Result<Opened> {
            Ok((Arc::new(Failing(opened.clone(), Mutex::new(writes))), None))
        };
        let sink = DiskSink::new(opener, None, FreeSpace::Skip, false).unwrap();
        let mut sink = Pipeline::start(sink).unwrap();
        sink.session(&description).unwrap();
        let verdicts = pass(&mut sink, recipe.clone().map(contents).collect());
        assert_eq!(verdicts.iter().filter(|(_, verdict)| verdict.is_ok()).count(), recipe.len());
        // Two chunks are forged: from frames of other blocks, and with a changed byte in the middle.
        let mut chunks: Vec<_> = data.clone().rev().map(contents).collect();
        let mut changed = chunks[3].1.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        let again = chunks[3].0;
        chunks[0] = (chunks[0].0, forged(Kind::Data, Domain::SHARED));
        chunks.swap(0, 5);
        chunks.push((again, changed));
        let verdicts: Vec<_> = pass(&mut sink, chunks).iter().collect();
        assert_eq!(verdicts.len(), data.len() + 1);
        if writes == usize::MAX {
            let bad = verdicts.iter().filter(|(_, it)| matches!(it, Ok(ChunkVerdict::Bad(_)))).count();
            assert_eq!(bad, 2, "{verdicts:?}");
            let only_right =
                memory.0.lock().iter().zip(&disk).all(|(got, right)| got == right || *got == 0xaa);
            assert!(only_right, "an unverified byte was written");
            let last: Vec<_> = pass(&mut sink, vec![contents(data.end - 1)]).iter().collect();
            assert!(matches!(last[..], [(_, Ok(ChunkVerdict::Accepted))]), "{last:?}");
            assert_eq!(sink.finish().unwrap().bytes_written, disk.len() as u64);
            assert!(*memory.0.lock() == disk);
        } else {
            let failed = verdicts.iter().filter_map(|(_, it)| it.as_ref().err());
            assert!(failed.clone().count() > 0 && sink.finish().is_err());
            assert!(failed.map(platter_image::Error::with_causes).any(|it| it.contains("the cable is out")));
        }
    }
}
