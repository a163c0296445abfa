//! The packs of an opened store: their ordinals, states, pins, and a bounded number of open files.

use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use platter_image::{Error, FrameAddress, IoContext, Pin, Result};
use platter_vfs::{OpenMode, VfsFile};

use crate::catalog::PackState;
use crate::identity::PackId;
use crate::pack::read_frame;
use crate::place::StorePlace;

/// Most pack files open for reading at once.
const FILES_OPEN_MAX: usize = 256;

/// One pack.
#[derive(Debug)]
pub(crate) struct Pack {
    pub(crate) id: PackId,
    state: AtomicU8,
    /// Held by every pin: while it has more than one owner, collection keeps the pack.
    pins: Arc<PackPins>,
}

/// What pins hold on to.
#[derive(Debug)]
struct PackPins;

impl Pack {
    /// Whether blocks in it may be referred to.
    pub(crate) fn may_be_referred_to(&self) -> bool {
        let state = self.state.load(Ordering::Acquire);
        state == PackState::Open as u8 || state == PackState::Live as u8
    }

    pub(crate) fn set_state(&self, state: PackState) {
        self.state.store(state as u8, Ordering::Release);
    }

    pub(crate) fn pin(&self) -> Pin {
        Pin::new(self.pins.clone())
    }
}

/// All packs that have been opened, numbered in the order in which they were.
#[derive(Debug)]
pub(crate) struct PackSet {
    place: StorePlace,
    packs: RwLock<Vec<Arc<Pack>>>,
    /// Open files, the one used last at the end.
    files: Mutex<VecDeque<(u32, Arc<dyn VfsFile>)>>,
}

impl PackSet {
    pub(crate) fn new(place: StorePlace) -> Self {
        Self { place, packs: RwLock::new(Vec::new()), files: Mutex::new(VecDeque::new()) }
    }

    /// Adds a pack; gives its ordinal.
    pub(crate) fn add(&self, id: PackId, state: PackState) -> u32 {
        let pack = Pack { id, state: AtomicU8::new(state as u8), pins: Arc::new(PackPins) };
        let mut packs = self.packs.write();
        packs.push(Arc::new(pack));
        packs.len() as u32 - 1
    }

    /// The pack of that ordinal.
    pub(crate) fn get(&self, ordinal: u32) -> Result<Arc<Pack>> {
        let packs = self.packs.read();
        let pack = packs.get(ordinal as usize).cloned();
        pack.ok_or_else(|| Error::bug(format!("pack number {ordinal}, but {} are open", packs.len())))
    }

    /// Every pack, by ordinal.
    pub(crate) fn all(&self) -> Vec<Arc<Pack>> {
        self.packs.read().clone()
    }

    /// The pack's file, opened if need be.
    pub(crate) fn file(&self, ordinal: u32) -> Result<Arc<dyn VfsFile>> {
        let mut files = self.files.lock();
        if let Some(at) = files.iter().rposition(|(number, _)| *number == ordinal) {
            let last = files.len() - 1;
            if at + 8 < last {
                // Only now and then: moving costs more than the order is worth.
                files.swap(at, last);
                return Ok(files[last].1.clone());
            }
            return Ok(files[at].1.clone());
        }
        let path = self.place.pack(self.get(ordinal)?.id);
        let opened = self.place.vfs().open(&path, OpenMode::Read);
        let file: Arc<dyn VfsFile> = Arc::from(opened.context(|| format!("opening {}", path.display()))?);
        if files.len() == FILES_OPEN_MAX {
            files.pop_front();
        }
        files.push_back((ordinal, file.clone()));
        Ok(file)
    }

    /// Reads the frame at an address, or the start of it, behind the ids of its blocks, and makes it whole ([`read_frame`]).
    pub(crate) fn read_frame(&self, address: FrameAddress, blocks: usize, stored: &mut [u8]) -> Result<()> {
        let file = self.file(address.pack)?;
        read_frame(&*file, address.offset, address.length as usize, blocks, stored).map_err(|error| {
            let pack = self.get(address.pack).map(|pack| pack.id.to_string()).unwrap_or_default();
            error.within(format!("reading pack {pack}"))
        })
    }
}
