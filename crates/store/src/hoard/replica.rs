//! A node's replica of the hoard: a directory of packs with the node's own frames in boot order, and `hoard.json`, which states
//! which revision is complete (`docs/formats/hoard.md`).
//!
//! Why it may be killed at any point: a pack counts once it is sealed, synced and named in `hoard.json`. `hoard.json` claims a
//! revision once all data of that revision is in such packs. Only then are packs removed that nothing needs any more. The next
//! update finds what an interrupted update sealed. Lost data can be fetched from the origin again.
//!
//! Readers continue while another process updates the replica. They refresh their view from time to time; frames that
//! have vanished are read from the layers below the hoard.

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use platter_image::frame::DecoderPool;
use platter_image::recipe::PageSource;
use platter_image::{
    BlockId, BlockPlace, Error, ErrorKind, FrameAddress, FrameIndex, FrameSource, IoContext, Kind, Lease,
    Result,
};
use platter_vfs::OpenMode;
use serde::Serialize;

use super::read_ahead::ReadAhead;
use super::replica_file::{self, ReplicaState};
use crate::catalog::PackState;
use crate::pack_set::PackSet;
use crate::place::StorePlace;
use platter_index::Index;
use platter_pack::{PackDirectory, lay_ids, read_directory};
use platter_records::HoardSnapshot;
use platter_records::{BootSet, BootSetHead};
use platter_records::{PackId, StoreId};

/// The store that a hoard's packs name as their owner. Blocks are named by contents, so it does not matter from which store they
/// came.
pub(super) const OWNER: StoreId = StoreId(*b"platter-hoard-v1");
/// Number of following frames that a reader is told about.
const FRAMES_AHEAD: usize = 8;

/// A hoard opened for reading. Several processes may read it while another one updates it.
pub struct Hoard {
    pub(super) place: StorePlace,
    packs: PackSet,
    view: RwLock<View>,
    ahead: Mutex<ReadAhead>,
    decoders: DecoderPool,
}

/// The state of the hoard at the last refresh.
#[derive(Default)]
pub(super) struct View {
    pub(super) state: ReplicaState,
    /// The bytes of `hoard.json`.
    file: Vec<u8>,
    index: Index,
    /// Frames of packs that the last update removed. A reader that located one before can still learn which blocks it had.
    gone: Index,
    pub(super) ordinals: BTreeMap<PackId, u32>,
    disk_bytes: u64,
    raw_bytes: u64,
}

/// Size and state of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReplicaFacts {
    /// The revision that is complete.
    pub revision: u64,
    /// The epoch of that revision, see [`HoardSnapshot::epoch`].
    pub epoch: String,
    /// Number of boot sets.
    pub members: usize,
    /// Number of distinct blocks, pages and parts of boot sets.
    pub blocks: usize,
    /// Length of its packs in bytes.
    pub disk_bytes: u64,
    /// Contents of its packs in bytes, before compression.
    pub raw_bytes: u64,
    /// Memory that its index uses, in bytes.
    pub index_bytes: usize,
}

impl Hoard {
    /// Opens the hoard in a directory, which may be empty or missing.
    ///
    /// # Errors
    /// `Corrupt` when `hoard.json` is damaged; `Refused` when a newer Platter wrote it; `Io`.
    pub fn open(place: &StorePlace) -> Result<Arc<Self>> {
        let hoard = Self::closed(place);
        hoard.refresh()?;
        Ok(Arc::new(hoard))
    }

    pub(super) fn closed(place: &StorePlace) -> Self {
        let packs = PackSet::new(place.clone());
        let (view, ahead, decoders) = (RwLock::default(), Mutex::default(), DecoderPool::default());
        Self { place: place.clone(), packs, view, ahead, decoders }
    }

    /// Reloads the hoard if another process has updated it.
    ///
    /// # Errors
    /// As [`Hoard::open`]; the previous view then stays.
    pub fn refresh(&self) -> Result<()> {
        let (state, file) = replica_file::read(&self.place)?;
        if self.view().file == file {
            return Ok(());
        }
        self.load(state, file)
    }

    /// Indexes all packs named in `state`.
    fn load(&self, state: ReplicaState, file: Vec<u8>) -> Result<()> {
        let known = self.view().ordinals.clone();
        let mut view = View { state, file, ..View::default() };
        for pack in view.state.packs.clone().iter().filter_map(|name| PackId::from_hex(name)) {
            // The pack is missing or its footer is damaged: its blocks come from elsewhere.
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

    /// Returns the revision that is complete, and its members.
    pub fn snapshot(&self) -> HoardSnapshot {
        self.view().state.snapshot.clone()
    }

    /// Returns size and state.
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

    /// Returns whether the hoard has this block or page.
    pub fn holds(&self, id: &BlockId) -> bool {
        self.view().index.locate(id).is_some()
    }

    /// Returns the blocks of the frame at an address that [`FrameSource::locate`] returned, in order; `None` if that frame is no
    /// longer known.
    pub fn blocks_at(&self, address: FrameAddress) -> Option<Vec<BlockId>> {
        self.view().ids_at(address).map(<[BlockId]>::to_vec)
    }

    /// Returns every frame in order, with its blocks.
    pub fn frames(&self) -> Vec<(FrameAddress, Vec<BlockId>)> {
        self.view().index.frames().map(|(address, ids)| (address, ids.to_vec())).collect()
    }

    /// Reads a boot set from the hoard.
    ///
    /// # Errors
    /// `Missing` when the hoard does not have it; `Corrupt`, `Io`.
    pub fn boot_set(&self, id: &BlockId) -> Result<BootSet> {
        let mut bytes = self.read_block(Kind::BootSet, id)?;
        for part in &BootSetHead::decode(&bytes)?.parts {
            bytes.extend_from_slice(&self.read_block(Kind::BootSet, part)?);
        }
        BootSet::decode(id, &bytes)
    }

    /// Reads a block and verifies its hash.
    ///
    /// # Errors
    /// `Missing` when the hoard does not have it; `Corrupt`, `Io`.
    pub fn read_data(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.read_block(Kind::Data, id)
    }

    /// Reads a block, page or boot set and verifies its hash.
    ///
    /// # Errors
    /// `Missing` when the hoard does not have it; `Corrupt`, `Io`.
    pub fn read_block(&self, kind: Kind, id: &BlockId) -> Result<Vec<u8>> {
        let place = self.locate(id)?;
        let place = place.ok_or_else(|| Error::missing(format!("{kind:?} {id} is not in the hoard")))?;
        let mut stored = Vec::new();
        self.read_frame(place.frame, &mut stored)?;
        self.decoders.with(|decoder| decoder.decode_block(&stored, kind, place.slot, id).map(<[u8]>::to_vec))
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
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        Ok(self.locate(id)?.map(Lease::in_place))
    }

    fn read_leased(&self, lease: &Lease, stored: &mut Vec<u8>) -> Result<()> {
        self.read_frame(lease.place.frame, stored)
    }

    fn read_on(&self, address: FrameAddress) -> Option<Vec<BlockId>> {
        let ahead = self.ahead.lock().note(address);
        let Some(range) = ahead else { return Some(Vec::new()) };
        if !range.is_empty() {
            // An error does not matter: the bytes are then read when they are requested.
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

impl FrameIndex for Hoard {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        Ok(self.view().index.locate(id))
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        let laid = self.view().ids_at(address).map(|ids| lay_ids(ids, address.length as usize, stored));
        let blocks =
            laid.ok_or_else(|| Error::missing("a frame that the hoard had before it was updated"))?;
        self.packs.read_frame(address, blocks, stored)
    }
}

impl PageSource for Hoard {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.read_block(Kind::Page, id)
    }
}

/// Reads a pack's directory and length; `None` when the pack is missing or its footer is damaged.
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
