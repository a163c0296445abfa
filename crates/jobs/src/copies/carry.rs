//! Copies one recipe with its blocks to a session of another store: only what that store lacks travels.
//!
//! Pages are walked from the root in groups, each with one request; data blocks are asked for and fetched in groups, too. So
//! memory is bounded, and a link with a long round trip is used well. Frames that an interrupted copy has added are found by the
//! next session, so only the rest is fetched again.

use std::collections::{HashMap, HashSet};

use platter_fetch::OpenSession;
use platter_image::frame::{FrameDecoder, Verify};
use platter_image::page::{Child, Contents, State, decode};
use platter_image::recipe::Root;
use platter_image::{BlockId, Error, ErrorKind, FrameStore, Kind, Result, Score};

use super::feed::{Feed, contents_of};

/// Maximum number of pages in one request.
const PAGES_TOGETHER: usize = 512;
/// Data blocks are looked up and fetched when this many are known.
const BLOCKS_TOGETHER: usize = 16_384;

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Carried {
    /// Number of frames.
    pub(super) frames: u64,
    /// Number of blocks and pages in them.
    pub(super) blocks: u64,
    /// Bytes of these frames.
    pub(super) bytes: u64,
}

impl Carried {
    pub(super) fn add(&mut self, other: Self) {
        self.frames += other.frames;
        self.blocks += other.blocks;
        self.bytes += other.bytes;
    }
}

/// Copies a recipe. `advance` is told the bytes of the disk that are done.
///
/// # Errors
/// `Missing` or `Corrupt`, naming the block that the source cannot give; the errors of both stores.
pub(super) fn carry(
    feed: &mut Feed,
    session: &OpenSession,
    score: Score,
    advance: &mut dyn FnMut(u64),
) -> Result<Carried> {
    feed.hold(score);
    let mut carrying = Carrying {
        feed,
        session,
        score,
        decoder: FrameDecoder::new()?,
        carried: Carried::default(),
        data: Vec::new(),
        data_bytes: 0,
    };
    let mut root = carrying.pages(&[score.0])?;
    let root = root.remove(&score.0).ok_or_else(|| Error::bug("the root page was not fetched"))?;
    let mut stack: Vec<Child> = Root::decode(score, &root)?.top.into_iter().map(|(_, top)| top).collect();
    let mut walked = HashSet::new();
    while !stack.is_empty() {
        let mut group = stack.split_off(stack.len().saturating_sub(PAGES_TOGETHER));
        group.retain(|child| walked.insert(*child));
        let ids: Vec<BlockId> = group.iter().map(|child| child.id).collect();
        let pages = carrying.pages(&ids)?;
        // The stack is taken from its end, so that the disk's order is kept.
        for child in group.iter().rev() {
            let page = pages.get(&child.id).ok_or_else(|| Error::bug("a page was not fetched"))?;
            match decode(child, page)?.1 {
                Contents::Branch(children) => stack.extend(children.into_iter().rev()),
                Contents::Leaf(entries) => {
                    for entry in entries {
                        carrying.data_bytes += entry.extent.length;
                        if let State::Data { block, .. } = entry.state
                            && carrying.data.last() != Some(&block)
                        {
                            carrying.data.push(block);
                        }
                    }
                }
            }
            if carrying.data.len() >= BLOCKS_TOGETHER {
                carrying.flush(advance)?;
            }
        }
    }
    carrying.flush(advance)?;
    Ok(carrying.carried)
}

struct Carrying<'a> {
    feed: &'a mut Feed,
    session: &'a OpenSession,
    score: Score,
    decoder: FrameDecoder,
    carried: Carried,
    /// Data blocks that were not looked up yet, and the bytes of the disk that they cover.
    data: Vec<BlockId>,
    data_bytes: u64,
}

impl Carrying<'_> {
    /// Returns pages, after adding those that the other store lacks.
    fn pages(&mut self, ids: &[BlockId]) -> Result<HashMap<BlockId, Vec<u8>>> {
        let mut found = HashMap::new();
        let mut lacking = self.lacking(ids)?;
        let mut unread = Vec::new();
        for id in ids {
            if lacking.contains(id) {
                unread.push(*id);
                continue;
            }
            match self.session.read_page(id) {
                Ok(page) => drop(found.insert(*id, page)),
                // A damaged copy counts as none: it is stored again.
                Err(error) if error.is_damage() => {
                    unread.push(*id);
                    if error.kind() == ErrorKind::Corrupt {
                        lacking.insert(*id);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let (session, decoder, carried) = (self.session, &mut self.decoder, &mut self.carried);
        self.feed.fetch(self.score, Kind::Page, &unread, &mut |frame| {
            let (header, raw) = decoder.decode(&frame.stored, Verify::Hashes)?;
            found.extend(contents_of(&header, raw).map(|(id, page)| (id, page.to_vec())));
            // Every block is tried, so no `any`.
            if frame.blocks.iter().filter(|block| lacking.remove(&block.id)).count() > 0 {
                carried.count(&frame);
                session.append(&frame)?;
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Copies the data blocks that were collected.
    fn flush(&mut self, advance: &mut dyn FnMut(u64)) -> Result<()> {
        let mut ids = std::mem::take(&mut self.data);
        let mut seen = HashSet::with_capacity(ids.len());
        ids.retain(|id| seen.insert(*id));
        let mut lacking = self.lacking(&ids)?;
        ids.retain(|id| lacking.contains(id));
        let (session, carried) = (self.session, &mut self.carried);
        self.feed.fetch(self.score, Kind::Data, &ids, &mut |frame| {
            if frame.blocks.iter().filter(|block| lacking.remove(&block.id)).count() > 0 {
                carried.count(&frame);
                session.append(&frame)?;
            }
            Ok(())
        })?;
        advance(std::mem::take(&mut self.data_bytes));
        Ok(())
    }

    /// Returns which of these blocks the other store lacks, or has only damaged.
    fn lacking(&self, ids: &[BlockId]) -> Result<HashSet<BlockId>> {
        let pins = self.session.lookup_and_pin_all(ids)?;
        Ok(ids.iter().zip(pins).filter(|(_, pin)| pin.is_none()).map(|(id, _)| *id).collect())
    }
}

impl Carried {
    fn count(&mut self, frame: &platter_image::frame::EncodedFrame) {
        self.frames += 1;
        self.blocks += frame.blocks.len() as u64;
        self.bytes += frame.stored.len() as u64;
    }
}
