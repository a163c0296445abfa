//! Updates a replica of the hoard: adds missing data in boot order, then makes a revision the complete one.
//!
//! Owns the order in which these steps become durable (see [`super::replica`]), and reclaims the space of what nothing needs.
//! Must never add data whose hash was not checked here.

use std::collections::{HashMap, HashSet, VecDeque};

use platter_image::frame::{
    Compressor, EncodedFrame, FrameBuilder, FrameDecoder, FrameHeader, RAW_LENGTH_DEFAULT, RAW_LENGTH_MAX,
    Verify,
};
use platter_image::recipe::PageSource;
use platter_image::{
    BlockId, Domain, Error, ErrorKind, FrameAddress, FrameIndex, FrameSource, IoContext, Kind, Result,
    judged, lease,
};
use platter_vfs::{OpenMode, VfsFile};
use serde::Serialize;

use super::replica::{Hoard, OWNER, ReplicaFacts, open_directory};
use super::replica_file::{self, ReplicaState};
use crate::pack_writer::PackWriter;
use crate::place::StorePlace;
use platter_pack::ids;
use platter_pack::{PackDirectory, read_row};
use platter_records::HoardSnapshot;
use platter_records::PackId;
use platter_records::{BootBlock, BootSet, BootSetHead};

/// A pack of this many bytes is sealed. An interrupted update loses at most this much.
const PACK_LENGTH: u64 = 64 << 20;
/// zstd level of its frames.
const LEVEL: i32 = 3;
/// Maximum number of decoded source frames that an update keeps, mostly 128 KiB each: boots return to them.
const DECODED_FRAMES_MAX: usize = 64;
/// A source frame is kept unchanged if it holds at least this many bytes of blocks, and the boot needs all of them soon.
const RAW_LENGTH_KEPT_MIN: u32 = (RAW_LENGTH_DEFAULT / 2) as u32;
/// A boot needs blocks soon that are within this many of its blocks. Frames of sources have their own order, but a boot reads the
/// hoard in boot order.
const NEAR: usize = 64;

/// Totals of what was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Added {
    /// Pages and blocks that were missing before.
    pub blocks: u64,
    /// Their bytes before compression.
    pub raw_bytes: u64,
    /// Bytes of their frames as stored.
    pub stored_bytes: u64,
}

impl std::ops::AddAssign for Added {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.raw_bytes += other.raw_bytes;
        self.stored_bytes += other.stored_bytes;
    }
}

/// Updates a hoard: boot sets are added, then [`HoardWriter::finish`] makes a revision the complete one. If it is dropped before
/// that, the next update finds what was sealed.
pub struct HoardWriter {
    hoard: Hoard,
    open: Option<PackWriter>,
    /// Bytes in the open pack.
    open_length: u64,
    /// Blocks that were added since the last pack was sealed; the index does not have them yet.
    new: HashSet<BlockId>,
    compressor: Compressor,
    _lock: Box<dyn VfsFile>,
}

impl HoardWriter {
    /// Opens the hoard in a directory and creates it if missing. A damaged `hoard.json` counts as missing: all data is then
    /// fetched again.
    ///
    /// # Errors
    /// `Transient` when another process updates it; `Refused` when a newer Platter wrote it; `Io`.
    pub fn open(place: &StorePlace) -> Result<Self> {
        place.create_dirs(&place.packs_dir())?;
        let path = place.lock_file();
        let lock = place.vfs().lock(&path).context(|| format!("locking {}", path.display()))?;
        let lock = lock.ok_or_else(|| {
            Error::transient(format!("{} is being updated by another process", place.dir().display()))
        })?;
        let hoard = Hoard::closed(place);
        match hoard.refresh() {
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            refreshed => refreshed?,
        }
        remove_strangers(place, &hoard.view().state)?;
        Ok(Self {
            hoard,
            open: None,
            open_length: 0,
            new: HashSet::new(),
            compressor: Compressor::new(LEVEL)?,
            _lock: lock,
        })
    }

    /// Returns the hoard as it was after the last sealed pack.
    pub fn hoard(&self) -> &Hoard {
        &self.hoard
    }

    /// Adds a boot set. Missing pages and blocks are read from `source`, whose blocks are of `domain`, and stored in boot order.
    ///
    /// # Errors
    /// Errors of `source`; `Corrupt` when it returns wrong contents; `Io`.
    pub fn add(
        &mut self,
        set: &BootSet,
        domain: Domain,
        source: &(impl FrameSource + PageSource + ?Sized),
    ) -> Result<Added> {
        let mut added = Added::default();
        let missing = |rows: &[BootBlock]| -> Vec<BlockId> {
            let ids = rows.iter().map(|row| row.id);
            ids.filter(|id| !self.holds(id)).collect()
        };
        let (pages, blocks) = (missing(&set.pages), missing(&set.blocks));
        source.will_need_pages(&pages);
        let mut frame = FrameBuilder::new(Kind::Page, domain, RAW_LENGTH_DEFAULT);
        for id in &pages {
            let contents = source.page(id)?;
            if domain.id_of(Kind::Page, &contents)? != *id {
                return Err(Error::corrupt(format!("page {id}: its contents do not match its hash")));
            }
            self.push(&mut frame, *id, &contents, &mut added)?;
        }
        self.flush(frame, &mut added)?;
        // Only after the pages were read: a source with peers needs the pages that name the blocks.
        source.will_need(&blocks);
        let mut frame = FrameBuilder::new(Kind::Data, domain, RAW_LENGTH_DEFAULT);
        // A new cache for each call: addresses are valid for one source only.
        let mut decoded = DecodedFrames::new()?;
        let mut left = RemainingBlocks(blocks.iter().copied().zip(0..).collect());
        for id in &blocks {
            if !left.0.contains_key(id) {
                continue;
            }
            match decoded.find(source, id, domain, &left)? {
                SourceBlock::Frame(whole) => {
                    let full = frame.take();
                    self.flush(full, &mut added)?;
                    ids(&whole.blocks).for_each(|id| _ = left.0.remove(&id));
                    self.keep(&whole, &mut added)?;
                }
                SourceBlock::Block(contents) => {
                    left.0.remove(id);
                    self.push(&mut frame, *id, contents, &mut added)?;
                }
            }
        }
        self.flush(frame, &mut added)?;
        // The boot set itself comes last: where it exists, everything that it names exists too.
        let encoded = set.encode()?;
        if !self.holds(&encoded.id) {
            for frame in encoded.frames()? {
                self.append(&frame)?;
            }
        }
        Ok(added)
    }

    /// Returns whether this block or page is in the hoard or was added.
    pub fn holds(&self, id: &BlockId) -> bool {
        self.new.contains(id) || self.hoard.holds(id)
    }

    /// Adds the missing blocks of a frame from elsewhere, after checking the hash of every block.
    ///
    /// # Errors
    /// `Corrupt` when the frame is damaged or of another domain; `Io`.
    pub fn add_frame(&mut self, stored: &[u8]) -> Result<Added> {
        let mut decoder = FrameDecoder::new()?;
        let (header, contents) = decoder.decode(stored, Verify::Hashes)?;
        if header.kind == Kind::Version {
            return Err(Error::corrupt("a frame of this kind or domain does not belong in a hoard"));
        }
        let mut added = Added::default();
        let is_new = !header.blocks.iter().any(|block| self.holds(&block.id));
        if is_new && !header.blocks.is_empty() {
            let (kind, stored, raw_length) = (header.kind, stored.to_vec(), header.raw_length);
            self.keep(&EncodedFrame { kind, stored, blocks: header.blocks, raw_length }, &mut added)?;
            return Ok(added);
        }
        let mut frame = FrameBuilder::new(header.kind, header.domain, RAW_LENGTH_MAX);
        let mut start = 0;
        for block in &header.blocks {
            let end = start + block.length as usize;
            if !self.holds(&block.id) {
                self.push(&mut frame, block.id, &contents[start..end], &mut added)?;
            }
            start = end;
        }
        self.flush(frame, &mut added)?;
        Ok(added)
    }

    /// Ends an update early. What was added is durable on return, and the next update finds it.
    ///
    /// # Errors
    /// `Io`.
    pub fn keep_added(mut self) -> Result<()> {
        self.seal()
    }

    /// Makes `snapshot` the complete revision and reclaims the space of what it does not need. Added data and revision are
    /// durable on return.
    ///
    /// # Errors
    /// `Missing` when a member's boot set, or something that it names, is not in the hoard: what was added is durable nevertheless;
    /// `Io`.
    pub fn finish(mut self, snapshot: &HoardSnapshot) -> Result<ReplicaFacts> {
        self.seal()?;
        let needed = self.needed(snapshot)?;
        let obsolete = self.make_room(&needed)?;
        self.seal()?;
        let mut state =
            ReplicaState { snapshot: snapshot.clone(), packs: self.hoard.view().state.packs.clone() };
        state.packs.retain(|name| !PackId::from_hex(name).is_some_and(|pack| obsolete.contains(&pack)));
        self.write(&state)?;
        for pack in obsolete {
            self.hoard.place.remove_if_there(&self.hoard.place.pack(pack))?;
        }
        Ok(self.hoard.facts())
    }

    /// Returns all ids that the members need, after checking that the hoard has them.
    fn needed(&self, snapshot: &HoardSnapshot) -> Result<HashSet<BlockId>> {
        let mut needed = HashSet::new();
        for member in &snapshot.members {
            if !needed.insert(member.boot_set) {
                continue;
            }
            let within = |error: Error| error.within(format!("the boot set of {}", member.version));
            let head = self.hoard.read_block(Kind::BootSet, &member.boot_set).map_err(within)?;
            needed.extend(BootSetHead::decode(&head).map_err(within)?.parts);
            let set = self.hoard.boot_set(&member.boot_set).map_err(within)?;
            for row in set.pages.iter().chain(&set.blocks) {
                if !self.hoard.holds(&row.id) {
                    return Err(within(Error::missing(format!("{} was not added", row.id))));
                }
                needed.insert(row.id);
            }
        }
        Ok(needed)
    }

    /// Copies needed blocks out of packs that hold few of them. Returns the packs that are then no longer needed.
    fn make_room(&mut self, needed: &HashSet<BlockId>) -> Result<Vec<PackId>> {
        let mut obsolete = Vec::new();
        let packs: Vec<(PackId, u32)> =
            self.hoard.view().ordinals.iter().map(|(pack, ordinal)| (*pack, *ordinal)).collect();
        for (pack, ordinal) in packs {
            let Some((directory, _)) = open_directory(&self.hoard.place, pack)? else { continue };
            let (mut live, mut total) = (0, 0);
            for (row, ids) in directory.iter() {
                let address = row.address(ordinal);
                total += u64::from(row.raw_length);
                for id in ids.iter().filter(|id| needed.contains(id)) {
                    // If a block has two copies, only the one that `locate` finds counts. Blocks of a frame are assumed to have
                    // equal lengths.
                    let place = self.hoard.locate(id)?;
                    let is_here = place.is_some_and(|place| place.frame == address);
                    live += if is_here { u64::from(row.raw_length / row.blocks) } else { 0 };
                }
            }
            if live * 2 >= total && live > 0 {
                continue;
            }
            let copied = match live {
                0 => Ok(()),
                _ => self.copy_needed(pack, ordinal, &directory, needed),
            };
            match copied {
                // Part of the pack is damaged: keep the pack. Its damaged blocks are read from elsewhere.
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                copied => {
                    copied?;
                    obsolete.push(pack);
                }
            }
        }
        Ok(obsolete)
    }

    fn copy_needed(
        &mut self,
        pack: PackId,
        ordinal: u32,
        directory: &PackDirectory,
        needed: &HashSet<BlockId>,
    ) -> Result<()> {
        let path = self.hoard.place.pack(pack);
        let file = self.hoard.place.vfs().open(&path, OpenMode::Read);
        let file = file.context(|| format!("opening {}", path.display()))?;
        let (mut decoder, mut stored, mut added) = (FrameDecoder::new()?, Vec::new(), Added::default());
        for kind in [Kind::Page, Kind::Data, Kind::BootSet] {
            let empty = |domain| FrameBuilder::new(kind, domain, RAW_LENGTH_DEFAULT);
            let (mut frame, mut domain) = (empty(Domain::SHARED), Domain::SHARED);
            for (row, ids) in directory.iter().filter(|(row, _)| row.kind == kind) {
                let address = row.address(ordinal);
                if !ids.iter().any(|id| needed.contains(id)) {
                    continue;
                }
                read_row(&*file, row, ids, &mut stored)?;
                let (header, contents) = decoder.decode(&stored, Verify::Hashes)?;
                if header.domain != domain {
                    self.flush(std::mem::replace(&mut frame, empty(header.domain)), &mut added)?;
                    domain = header.domain;
                }
                let mut start = 0;
                for block in &header.blocks {
                    let end = start + block.length as usize;
                    let is_here = self.hoard.locate(&block.id)?.is_some_and(|place| place.frame == address);
                    if is_here && needed.contains(&block.id) {
                        self.push(&mut frame, block.id, &contents[start..end], &mut added)?;
                    }
                    start = end;
                }
            }
            self.flush(frame, &mut added)?;
        }
        Ok(())
    }

    fn push(
        &mut self,
        frame: &mut FrameBuilder,
        id: BlockId,
        contents: &[u8],
        added: &mut Added,
    ) -> Result<()> {
        if frame.is_full_for(contents.len()) {
            let full = frame.take();
            self.flush(full, added)?;
        }
        frame.push(id, contents);
        added.blocks += 1;
        added.raw_bytes += contents.len() as u64;
        Ok(())
    }

    fn flush(&mut self, frame: FrameBuilder, added: &mut Added) -> Result<()> {
        if frame.is_empty() {
            return Ok(());
        }
        let frame = frame.encode(&mut self.compressor)?;
        added.stored_bytes += frame.stored.len() as u64;
        self.append(&frame)
    }

    /// Appends a frame unchanged. All of its blocks are new here.
    fn keep(&mut self, frame: &EncodedFrame, added: &mut Added) -> Result<()> {
        added.blocks += frame.blocks.len() as u64;
        added.raw_bytes += u64::from(frame.raw_length);
        added.stored_bytes += frame.stored.len() as u64;
        self.append(frame)
    }

    fn append(&mut self, frame: &EncodedFrame) -> Result<()> {
        let is_full = self.open.as_ref().is_some_and(|open| open.is_full_for(frame));
        if is_full || self.open_length >= PACK_LENGTH {
            self.seal()?;
        }
        if self.open.is_none() {
            self.open = Some(PackWriter::create(&self.hoard.place, OWNER)?);
        }
        let Some(open) = self.open.as_mut() else { return Err(Error::bug("a pack that was just begun")) };
        open.append(frame)?;
        self.open_length += frame.stored.len() as u64;
        self.new.extend(ids(&frame.blocks));
        Ok(())
    }

    /// Seals the open pack: makes it durable and adds it to the index.
    fn seal(&mut self) -> Result<()> {
        self.open_length = 0;
        let Some(open) = self.open.take() else { return Ok(()) };
        let sealed = open.seal()?;
        let mut state = self.hoard.view().state.clone();
        state.packs.push(sealed.id.to_string());
        self.write(&state)?;
        self.new.clear();
        Ok(())
    }

    fn write(&self, state: &ReplicaState) -> Result<()> {
        replica_file::write(&self.hoard.place, state)?;
        self.hoard.refresh()
    }
}

/// Removes packs that do not count: those that an interrupted update left open, or did not remove yet.
fn remove_strangers(place: &StorePlace, state: &ReplicaState) -> Result<()> {
    for pack in place.list_packs()?.into_iter().filter(|pack| !state.packs.contains(&pack.to_string())) {
        place.remove_if_there(&place.pack(pack))?;
    }
    Ok(())
}

/// The blocks of a boot that are still to be added, each with its position in the boot.
struct RemainingBlocks(HashMap<BlockId, usize>);

impl RemainingBlocks {
    /// Returns whether a frame holds this block, only blocks that are needed soon after it, and enough bytes.
    fn is_worth_keeping(&self, header: &FrameHeader, id: &BlockId) -> bool {
        let Some(at) = self.0.get(id) else { return false };
        let is_soon = |id: &BlockId| self.0.get(id).is_some_and(|place| *place < at + NEAR);
        header.kind == Kind::Data
            && header.raw_length >= RAW_LENGTH_KEPT_MIN
            && header.blocks.iter().any(|block| block.id == *id)
            && header.blocks.iter().all(|block| is_soon(&block.id))
    }
}

/// A block that was read from a source.
enum SourceBlock<'a> {
    /// The whole frame of the block, hashed. All of its blocks are needed soon.
    Frame(EncodedFrame),
    /// The block's contents.
    Block(&'a [u8]),
}

/// The most recently used frames of a source, decoded and hashed.
struct DecodedFrames {
    decoder: FrameDecoder,
    stored: Vec<u8>,
    frames: HashMap<FrameAddress, (FrameHeader, Vec<u8>)>,
    order: VecDeque<FrameAddress>,
}

impl DecodedFrames {
    fn new() -> Result<Self> {
        let (frames, order) = (HashMap::new(), VecDeque::new());
        Ok(Self { decoder: FrameDecoder::new()?, stored: Vec::new(), frames, order })
    }

    /// Returns a block, or its whole frame if that was just read and holds only blocks that are needed soon.
    fn find(
        &mut self,
        source: &(impl FrameSource + ?Sized),
        id: &BlockId,
        domain: Domain,
        left: &RemainingBlocks,
    ) -> Result<SourceBlock<'_>> {
        let lease = lease(source, id)?;
        let address = lease.place.frame;
        if !self.frames.contains_key(&address) {
            source.read_leased(&lease, &mut self.stored)?;
            let within = |error: Error| error.within(format!("block {id}"));
            let decoded = self.decoder.decode(&self.stored, Verify::Hashes);
            let (header, raw) = judged(source, address, decoded).map_err(within)?;
            if header.domain != domain {
                return Err(within(Error::corrupt("its frame is of another identity domain")));
            }
            if left.is_worth_keeping(&header, id) {
                let (stored, raw_length) = (std::mem::take(&mut self.stored), header.raw_length);
                let blocks = header.blocks;
                return Ok(SourceBlock::Frame(EncodedFrame { kind: Kind::Data, stored, blocks, raw_length }));
            }
            let frame = (header, raw.to_vec());
            if self.order.len() >= DECODED_FRAMES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.frames.remove(&oldest);
            }
            self.order.push_back(address);
            self.frames.insert(address, frame);
        }
        let absent = || Error::corrupt(format!("block {id} is not in the frame that should hold it"));
        let (header, raw) = self.frames.get(&address).ok_or_else(absent)?;
        let mut start = 0;
        for block in &header.blocks {
            let end = start + block.length as usize;
            if block.id == *id && header.kind == Kind::Data {
                return Ok(SourceBlock::Block(&raw[start..end]));
            }
            start = end;
        }
        Err(absent())
    }
}
