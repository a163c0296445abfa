//! The hoard as a node keeps it: a directory of packs with frames of its own, laid out in the order of boots, and
//! `hoard.json`, which says which revision they make whole (`docs/formats/hoard.md`).
//!
//! Why it may be killed anywhere: a pack counts when it was sealed and synced and `hoard.json` names it; that says that it
//! has a revision when all that the revision names is in such packs; and only after that is a pack removed that nothing
//! needs. What was sealed for an update that did not come to its end is found by the next one. Whatever is lost can be had
//! again from the origin.
//!
//! Readers go on while another process updates it: they look at it again now and then, and what they cannot read any more
//! they have from where everybody has it.

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use platter_image::frame::FrameDecoder;
use platter_image::recipe::PageSource;
use platter_image::{
    BlockId, BlockPlace, Error, ErrorKind, FrameAddress, FrameSource, IoContext, Kind, Result,
};
use platter_vfs::OpenMode;
use serde::Serialize;

use super::read_ahead::ReadAhead;
use super::replica_file::{self, ReplicaState};
use crate::boot_set::{BootSet, BootSetHead};
use crate::catalog::PackState;
use crate::hoard_member::HoardSnapshot;
use crate::identity::{PackId, StoreId};
use crate::index::Index;
use crate::pack::{PackDirectory, lay_ids, read_directory};
use crate::pack_set::PackSet;
use crate::place::StorePlace;

/// What packs of a hoard name as their store: blocks are named by their contents, whichever store they were of.
pub(super) const OWNER: StoreId = StoreId(*b"platter-hoard-v1");
/// Frames that a reader is told of ahead of where it is.
const FRAMES_AHEAD: usize = 8;
/// Most decoders kept between pages.
const DECODERS_KEPT_MAX: usize = 4;

/// A hoard that is read. Many processes may do that, beside one that updates it.
pub struct Hoard {
    pub(super) place: StorePlace,
    packs: PackSet,
    view: RwLock<View>,
    ahead: Mutex<ReadAhead>,
    decoders: Mutex<Vec<FrameDecoder>>,
}

/// The hoard as it was when it was looked at.
#[derive(Default)]
pub(super) struct View {
    pub(super) state: ReplicaState,
    /// The bytes of `hoard.json`.
    file: Vec<u8>,
    index: Index,
    /// What stood in packs that went with the last update: who located it before is still told what it was.
    gone: Index,
    pub(super) ordinals: BTreeMap<PackId, u32>,
    disk_bytes: u64,
    raw_bytes: u64,
}

/// What a hoard holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReplicaFacts {
    /// The revision that is whole here.
    pub revision: u64,
    /// Its run of revisions.
    pub epoch: String,
    /// Boot sets.
    pub members: usize,
    /// Different blocks, pages and parts of boot sets.
    pub blocks: usize,
    /// Bytes of its packs.
    pub disk_bytes: u64,
    /// Bytes in them before compression.
    pub raw_bytes: u64,
    /// Memory of its index, in bytes.
    pub index_bytes: usize,
}

impl Hoard {
    /// Opens the hoard in a directory, which may be empty, or missing.
    ///
    /// # Errors
    /// `Corrupt` when its `hoard.json` is damaged; `Refused` when a newer Platter made it; `Io`.
    pub fn open(place: &StorePlace) -> Result<Arc<Self>> {
        let hoard = Self::closed(place);
        hoard.refresh()?;
        Ok(Arc::new(hoard))
    }

    pub(super) fn closed(place: &StorePlace) -> Self {
        let packs = PackSet::new(place.clone());
        let (view, ahead, decoders) = (RwLock::default(), Mutex::default(), Mutex::default());
        Self { place: place.clone(), packs, view, ahead, decoders }
    }

    /// Sees what another process has made of it since.
    ///
    /// # Errors
    /// As [`Hoard::open`]; it then shows what it showed before.
    pub fn refresh(&self) -> Result<()> {
        let (state, file) = replica_file::read(&self.place)?;
        if self.view().file == file {
            return Ok(());
        }
        self.load(state, file)
    }

    /// Indexes all packs that count.
    fn load(&self, state: ReplicaState, file: Vec<u8>) -> Result<()> {
        let known = self.view().ordinals.clone();
        let mut view = View { state, file, ..View::default() };
        for pack in view.state.packs.clone().iter().filter_map(|name| PackId::from_hex(name)) {
            // Damaged at its end, or gone: its blocks are had from elsewhere.
            let Some((directory, length)) = open_directory(&self.place, pack)? else { continue };
            let ordinal = match known.get(&pack) {
                Some(ordinal) => *ordinal,
                None => self.packs.add(pack, PackState::Live),
            };
            view.ordinals.insert(pack, ordinal);
            view.disk_bytes += length;
            view.index.reserve(directory.blocks(), directory.frames());
            for (row, ids) in directory.iter() {
                view.raw_bytes += u64::from(row.raw_length);
                view.index.push_frame(row.address(ordinal), ids.iter().copied())?;
            }
        }
        let mut current = self.view.write();
        let here: HashSet<u32> = view.ordinals.values().copied().collect();
        for (address, ids) in current.index.frames().filter(|(address, _)| !here.contains(&address.pack)) {
            view.gone.push_frame(address, ids.iter().copied())?;
        }
        *current = view;
        Ok(())
    }

    /// The revision that is whole here, and its members.
    pub fn snapshot(&self) -> HoardSnapshot {
        self.view().state.snapshot.clone()
    }

    /// What it holds.
    pub fn facts(&self) -> ReplicaFacts {
        let view = self.view();
        ReplicaFacts {
            revision: view.state.snapshot.revision,
            epoch: view.state.snapshot.epoch.clone(),
            members: view.state.snapshot.members.len(),
            blocks: view.index.len(),
            disk_bytes: view.disk_bytes,
            raw_bytes: view.raw_bytes,
            index_bytes: view.index.memory_bytes() + view.gone.memory_bytes(),
        }
    }

    /// Whether that block or page is here.
    pub fn holds(&self, id: &BlockId) -> bool {
        self.view().index.locate(id).is_some()
    }

    /// The blocks of the frame at an address that [`FrameSource::locate`] gave, in their order, as far as that is still
    /// known.
    pub fn blocks_at(&self, address: FrameAddress) -> Option<Vec<BlockId>> {
        self.view().ids_at(address).map(<[BlockId]>::to_vec)
    }

    /// Every frame that is here, in order, with its blocks.
    pub fn frames(&self) -> Vec<(FrameAddress, Vec<BlockId>)> {
        self.view().index.frames().map(|(address, ids)| (address, ids.to_vec())).collect()
    }

    /// Reads a boot set that is kept here.
    ///
    /// # Errors
    /// `Missing` when it is not here; `Corrupt`, `Io`.
    pub fn boot_set(&self, id: &BlockId) -> Result<BootSet> {
        let mut bytes = self.read_block(Kind::BootSet, id)?;
        for part in &BootSetHead::decode(&bytes)?.parts {
            bytes.extend_from_slice(&self.read_block(Kind::BootSet, part)?);
        }
        BootSet::decode(id, &bytes)
    }

    /// Reads a block and verifies it by its name.
    ///
    /// # Errors
    /// `Missing` when it is not here; `Corrupt`, `Io`.
    pub fn read_data(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.read_block(Kind::Data, id)
    }

    pub(super) fn read_block(&self, kind: Kind, id: &BlockId) -> Result<Vec<u8>> {
        let place = self.locate(id)?;
        let place = place.ok_or_else(|| Error::missing(format!("{kind:?} {id} is not in the hoard")))?;
        let mut stored = Vec::new();
        self.read_frame(place.frame, &mut stored)?;
        let kept = self.decoders.lock().pop();
        let mut decoder = kept.map_or_else(FrameDecoder::new, Ok)?;
        let contents = decoder.decode_block(&stored, kind, place.slot, id).map(<[u8]>::to_vec);
        let mut decoders = self.decoders.lock();
        if decoders.len() < DECODERS_KEPT_MAX {
            decoders.push(decoder);
        }
        contents
    }

    pub(super) fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read()
    }
}

impl View {
    fn ids_at(&self, address: FrameAddress) -> Option<&[BlockId]> {
        self.index.ids_at(address).or_else(|| self.gone.ids_at(address))
    }
}

impl FrameSource for Hoard {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        Ok(self.view().index.locate(id))
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        let laid = self.view().ids_at(address).map(|ids| lay_ids(ids, address.length as usize, stored));
        let blocks =
            laid.ok_or_else(|| Error::missing("a frame that the hoard had before it was updated"))?;
        self.packs.read_frame(address, blocks, stored)
    }

    fn read_on(&self, address: FrameAddress) -> Option<Vec<BlockId>> {
        let ahead = self.ahead.lock().note(address);
        let Some(range) = ahead else { return Some(Vec::new()) };
        if !range.is_empty() {
            // Without it, they are read when they are wanted.
            let _ = self
                .packs
                .file(address.pack)
                .map(|file| file.will_read(range.start, range.end - range.start));
        }
        let view = self.view();
        let behind = view.index.frames_behind(address).take(FRAMES_AHEAD);
        Some(behind.filter_map(|(_, ids)| ids.first().copied()).collect())
    }
}

impl PageSource for Hoard {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.read_block(Kind::Page, id)
    }
}

/// What a pack holds, and its length; `None` for one that is damaged at its end, or gone.
pub(super) fn open_directory(place: &StorePlace, pack: PackId) -> Result<Option<(PackDirectory, u64)>> {
    let path = place.pack(pack);
    let file = match place.vfs().open(&path, OpenMode::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.context(|| format!("opening {}", path.display()))?,
    };
    match read_directory(&*file, pack, OWNER) {
        Ok(directory) => {
            let length = file.length().context(|| format!("reading {}", path.display()))?;
            Ok(Some((directory, length)))
        }
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        Err(error) => Err(error),
    }
}
