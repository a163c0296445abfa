//! The packs of an opened store: their ordinals, states, pins, and a bounded number of open files.

use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use platter_image::{Error, FrameAddress, IoContext, Pin, Result};
use platter_vfs::{OpenMode, VfsFile};

use crate::catalog::PackState;
use crate::place::StorePlace;
use platter_pack::read_frame;
use platter_records::PackId;

/// Maximum number of pack files that are open for reading.
const FILES_OPEN_MAX: usize = 256;

/// One pack.
#[derive(Debug)]
pub(crate) struct Pack {
    pub(crate) id: PackId,
    state: AtomicU8,
    /// Every pin holds a reference. Collection keeps the pack while there is more than one owner.
    pins: Arc<PackPins>,
}

/// The object to which pins refer.
#[derive(Debug)]
struct PackPins;

impl Pack {
    pub(crate) fn state(&self) -> PackState {
        PackState::of(self.state.load(Ordering::Acquire))
    }

    /// Returns whether the pack was collected: nothing new refers to it, and its file may be gone.
    pub(crate) fn is_collected(&self) -> bool {
        matches!(self.state(), PackState::Dead | PackState::Deleted)
    }

    /// Returns a condemned pack to live. Returns whether this call did so.
    pub(crate) fn rescue(&self) -> bool {
        let (from, to) = (PackState::Condemned as u8, PackState::Live as u8);
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns whether anybody holds a pin. New pins are taken under the index lock for reading only.
    pub(crate) fn is_pinned(&self) -> bool {
        Arc::strong_count(&self.pins) > 1
    }

    pub(crate) fn set_state(&self, state: PackState) {
        self.state.store(state as u8, Ordering::Release);
    }

    pub(crate) fn pin(&self) -> Pin {
        Pin::new(self.pins.clone())
    }
}

/// All packs that were opened. Their ordinals follow the order of opening.
#[derive(Debug)]
pub(crate) struct PackSet {
    place: StorePlace,
    packs: RwLock<Vec<Arc<Pack>>>,
    /// Open files, the most recently used at the end.
    files: Mutex<VecDeque<(u32, Arc<dyn VfsFile>)>>,
}

impl PackSet {
    pub(crate) fn new(place: StorePlace) -> Self {
        Self { place, packs: RwLock::new(Vec::new()), files: Mutex::new(VecDeque::new()) }
    }

    /// Adds a pack and returns its ordinal.
    pub(crate) fn add(&self, id: PackId, state: PackState) -> u32 {
        let pack = Pack { id, state: AtomicU8::new(state as u8), pins: Arc::new(PackPins) };
        let mut packs = self.packs.write();
        packs.push(Arc::new(pack));
        packs.len() as u32 - 1
    }

    /// Returns the pack with that ordinal.
    pub(crate) fn get(&self, ordinal: u32) -> Result<Arc<Pack>> {
        let packs = self.packs.read();
        let pack = packs.get(ordinal as usize).cloned();
        pack.ok_or_else(|| {
            Error::bug(format!("there is no pack number {ordinal}: {} packs are open", packs.len()))
        })
    }

    /// Returns all packs, by ordinal.
    pub(crate) fn all(&self) -> Vec<Arc<Pack>> {
        self.packs.read().clone()
    }

    /// Closes the pack's file, so that its space is free once it is deleted.
    pub(crate) fn close(&self, ordinal: u32) {
        self.files.lock().retain(|(number, _)| *number != ordinal);
    }

    /// Opens a pack's file. It is not kept open for others.
    pub(crate) fn open(&self, id: PackId) -> Result<Arc<dyn VfsFile>> {
        let path = self.place.pack(id);
        let opened = self.place.vfs().open(&path, OpenMode::Read);
        Ok(Arc::from(opened.context(|| format!("opening {}", path.display()))?))
    }

    /// Returns the pack's file, and opens it if necessary.
    pub(crate) fn file(&self, ordinal: u32) -> Result<Arc<dyn VfsFile>> {
        let mut files = self.files.lock();
        if let Some(at) = files.iter().rposition(|(number, _)| *number == ordinal) {
            let last = files.len() - 1;
            if at + 8 < last {
                // Only if it is far from the end: an exact order is not worth the moves.
                files.swap(at, last);
                return Ok(files[last].1.clone());
            }
            return Ok(files[at].1.clone());
        }
        let file = self.open(self.get(ordinal)?.id)?;
        if files.len() == FILES_OPEN_MAX {
            files.pop_front();
        }
        files.push_back((ordinal, file.clone()));
        Ok(file)
    }

    /// Reads a frame, or its start, after the ids that [`lay_ids`](platter_pack::lay_ids) put into `stored` ([`read_frame`]).
    pub(crate) fn read_frame(&self, address: FrameAddress, blocks: usize, stored: &mut [u8]) -> Result<()> {
        let file = self.file(address.pack)?;
        read_frame(&*file, address.offset, address.length as usize, blocks, stored).map_err(|error| {
            let pack = self.get(address.pack).map(|pack| pack.id.to_string()).unwrap_or_default();
            error.within(format!("reading pack {pack}"))
        })
    }
}
