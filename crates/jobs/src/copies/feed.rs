//! Stored frames of a store, fetched by the ids of blocks and verified. A frame of which little is wanted is rebuilt from the
//! wanted blocks.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use platter_fetch::{OpenStore, Opened};
use platter_image::frame::stream::{FramesRequest, REQUEST_IDS_MAX};
use platter_image::frame::{
    Compressor, EncodedFrame, FrameBuilder, FrameDecoder, FrameHeader, RAW_LENGTH_DEFAULT, Verify,
};
use platter_image::{BlockId, BlockPlace, Error, ErrorKind, FrameIndex, Kind, Result, Score, judged};
use platter_store::Store;

/// How long a request is repeated while the origin is down, and the pause between two attempts.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);
const RETRY_PAUSE: Duration = Duration::from_millis(300);
/// How often a block is looked up again after its frame was moved or found damaged.
const LOOKUPS_MAX: u32 = 4;
/// zstd level of rebuilt frames.
const LEVEL: i32 = 3;

/// Takes frames that were verified.
pub(super) type TakeFrame<'a> = &'a mut dyn FnMut(EncodedFrame) -> Result<()>;

/// A store as a source of frames.
pub(super) struct Feed {
    store: OpenStore,
    decoder: FrameDecoder,
    compressor: Compressor,
    retry_max: Duration,
}

impl Feed {
    pub(super) fn new(store: OpenStore) -> Result<Self> {
        let (decoder, compressor) = (FrameDecoder::new()?, Compressor::new(LEVEL)?);
        Ok(Self { store, decoder, compressor, retry_max: RETRY_TIME_MAX })
    }

    /// Sets how long a request is repeated while the origin is down.
    pub(super) fn give_up_after(&mut self, time: Duration) {
        self.retry_max = time;
    }

    /// Keeps a recipe of a store in a directory from being collected. An origin's store needs no registration: what was forgotten
    /// stays in the trash.
    pub(super) fn hold(&self, score: Score) {
        if let Opened::Local(store) = self.store.opened() {
            // Where the registration cannot be written, only the trash protects what is read.
            let _ = store.hold(score);
        }
    }

    /// Passes frames that contain all of these blocks to `take`.
    ///
    /// # Errors
    /// `Missing` or `Corrupt`, naming a block that the store cannot give; `Transient` when an origin is down for too long; the
    /// errors of `take`.
    pub(super) fn fetch(
        &mut self,
        score: Score,
        kind: Kind,
        ids: &[BlockId],
        take: TakeFrame<'_>,
    ) -> Result<()> {
        match self.store.opened().clone() {
            Opened::Local(store) => self.fetch_here(&store, kind, ids, take),
            Opened::Remote(_) => {
                ids.chunks(REQUEST_IDS_MAX).try_for_each(|ids| self.fetch_afar(score, kind, ids, take))
            }
        }
    }

    fn fetch_afar(&self, score: Score, kind: Kind, ids: &[BlockId], take: TakeFrame<'_>) -> Result<()> {
        let Some(remote) = self.store.remote() else { return Ok(()) };
        let mut left: HashSet<BlockId> = ids.iter().copied().collect();
        let domain = self.store.domain()?;
        let mut until = Instant::now() + self.retry_max;
        while !left.is_empty() {
            // In the order of the caller, which is that of the disk.
            let ids = ids.iter().copied().filter(|id| left.contains(id)).collect();
            let request = FramesRequest { score, kind, exact: true, ids };
            let asked = left.len();
            let mut was_taken = true;
            let answer = remote.origin().frames(&request, &mut |header, stored| {
                let wanted = header.blocks.iter().filter(|block| left.remove(&block.id)).count();
                if header.kind != kind || header.domain != domain || wanted == 0 {
                    return Err(Error::corrupt("the origin sent a frame that was not requested"));
                }
                let taken = take(frame_of(header.clone(), stored.to_vec()));
                was_taken = taken.is_ok();
                taken
            });
            if left.len() < asked {
                until = Instant::now() + self.retry_max;
            }
            match answer {
                Ok(missing) if !missing.is_empty() => return Err(lacks(kind, &missing[0])),
                Ok(_) if left.len() == asked => {
                    return Err(Error::corrupt("the origin answered without the requested blocks"));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Transient && was_taken && Instant::now() < until => {
                    std::thread::sleep(RETRY_PAUSE);
                }
                Err(error) if error.kind() == ErrorKind::Corrupt && was_taken => {
                    return Err(self.named(score, error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds the name of the first damaged block, which the origin found when it read it.
    fn named(&self, score: Score, error: Error) -> Error {
        let asked = self.store.remote().map(|remote| remote.origin().missing_blocks(score));
        match asked {
            Some(Ok(Some(missing))) => error.within(format!(
                "block {} at byte {} of the disk is damaged or missing",
                missing.first, missing.disk_offset
            )),
            _ => error,
        }
    }

    fn fetch_here(&mut self, store: &Store, kind: Kind, ids: &[BlockId], take: TakeFrame<'_>) -> Result<()> {
        let mut places = ids.iter().map(|id| place_of(store, kind, id)).collect::<Result<Vec<_>>>()?;
        places.sort_unstable();
        places.dedup();
        let mut rest = FrameBuilder::new(kind, store.domain(), RAW_LENGTH_DEFAULT);
        let mut at = 0;
        while at < places.len() {
            let frame = places[at].0.frame;
            let end = at + places[at..].partition_point(|(place, _)| place.frame == frame);
            let wanted: Vec<BlockId> = places[at..end].iter().map(|(_, id)| *id).collect();
            at = end;
            self.add_frame(store, kind, &wanted, &mut rest, take)?;
        }
        if !rest.is_empty() {
            take(rest.encode(&mut self.compressor)?)?;
        }
        Ok(())
    }

    /// Passes on the frame that contains these blocks, or adds them to the frame under construction.
    fn add_frame(
        &mut self,
        store: &Store,
        kind: Kind,
        wanted: &[BlockId],
        rest: &mut FrameBuilder,
        take: TakeFrame<'_>,
    ) -> Result<()> {
        let mut tries = LOOKUPS_MAX;
        loop {
            let (place, id) = place_of(store, kind, &wanted[0])?;
            let mut stored = Vec::new();
            let read = store.read_frame(place.frame, &mut stored).and_then(|()| {
                let decoded = self.decoder.decode(&stored, Verify::Hashes);
                judged(store, place.frame, decoded.map(|(header, raw)| (header, raw.to_vec())))
            });
            tries -= 1;
            let (header, raw) = match read {
                // Compaction moved it, or another frame has the block, too.
                Err(error) if error.kind() == ErrorKind::Transient && tries > 0 => continue,
                Err(_) if tries > 0 && place_of(store, kind, &id)?.0.frame != place.frame => continue,
                read => read.map_err(|error| error.within(format!("{} {id}", word(kind))))?,
            };
            let is_wanted = |id: &BlockId| wanted.contains(id);
            let bytes = header.blocks.iter().filter(|block| is_wanted(&block.id));
            let bytes: u64 = bytes.map(|block| u64::from(block.length)).sum();
            let elsewhere: Vec<BlockId> = {
                let here: HashSet<BlockId> = header.blocks.iter().map(|block| block.id).collect();
                wanted.iter().filter(|id| !here.contains(id)).copied().collect()
            };
            if bytes * 2 >= u64::from(header.raw_length) {
                take(frame_of(header, stored))?;
            } else {
                self.add_blocks(&header, &raw, &is_wanted, rest, take)?;
            }
            // A frame that was moved may have been split.
            return match elsewhere.is_empty() {
                true => Ok(()),
                false if tries > 0 => self.fetch_here(store, kind, &elsewhere, take),
                false => Err(lacks(kind, &elsewhere[0])),
            };
        }
    }

    fn add_blocks(
        &mut self,
        header: &FrameHeader,
        raw: &[u8],
        is_wanted: &dyn Fn(&BlockId) -> bool,
        rest: &mut FrameBuilder,
        take: TakeFrame<'_>,
    ) -> Result<()> {
        for (id, contents) in contents_of(header, raw).filter(|(id, _)| is_wanted(id)) {
            if rest.is_full_for(contents.len()) {
                take(rest.take().encode(&mut self.compressor)?)?;
            }
            rest.push(id, contents);
        }
        Ok(())
    }
}

/// The blocks of a decoded frame with their contents.
pub(super) fn contents_of<'a>(
    header: &'a FrameHeader,
    raw: &'a [u8],
) -> impl Iterator<Item = (BlockId, &'a [u8])> {
    let mut rest = raw;
    header.blocks.iter().map_while(move |block| {
        let (contents, after) = rest.split_at_checked(block.length as usize)?;
        rest = after;
        Some((block.id, contents))
    })
}

fn frame_of(header: FrameHeader, stored: Vec<u8>) -> EncodedFrame {
    EncodedFrame { kind: header.kind, stored, raw_length: header.raw_length, blocks: header.blocks }
}

fn place_of(store: &Store, kind: Kind, id: &BlockId) -> Result<(BlockPlace, BlockId)> {
    Ok((store.locate(id)?.ok_or_else(|| lacks(kind, id))?, *id))
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Page => "page",
        _ => "block",
    }
}

fn lacks(kind: Kind, id: &BlockId) -> Error {
    Error::missing(format!("{} {id} is not in the source store", word(kind)))
}
