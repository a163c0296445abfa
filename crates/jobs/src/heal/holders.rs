//! The kinds of holders that a store is healed from. What they return is verified by the store.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use platter_disk::Source as Disk;
use platter_fetch::{IdleCache, OpenStore, Opened, SourceOptions, StoreLocation};
use platter_image::frame::FrameDecoder;
use platter_image::{BlockId, DiskRead, Domain, Error, ErrorKind, IoContext, Kind, Result, SECTOR, Score};
use platter_store::{HealSource, Hoard, StorePlace, WantedBlock};
use platter_vdisk::Source;

use super::Holder;
use crate::hoard::hoard_place;

/// Maximum length of a block.
const BLOCK_LENGTH_MAX: u64 = 128 * SECTOR;

/// Opens a holder. A node's directory can have both a cache and a replica of the hoard.
///
/// # Errors
/// `Refused` when a directory is none of these, or a store of another domain than the store to be healed; the errors of
/// opening.
pub(super) fn open(holder: &Holder, domain: Domain) -> Result<Vec<Box<dyn HealSource>>> {
    match holder {
        Holder::Store(location) => Ok(vec![Box::new(OtherStore::open(location, domain)?)]),
        Holder::Disk(path) => Ok(vec![Box::new(OnDisk { disk: Disk::open(path, None)? })]),
        Holder::Directory(dir) => {
            let place = StorePlace::on_system(dir);
            if place.is_store()? {
                return Ok(vec![Box::new(OtherStore::open(&place.into(), domain)?)]);
            }
            let mut sources: Vec<Box<dyn HealSource>> = Vec::new();
            let replica = if dir.join("hoard.json").exists() { place } else { hoard_place(dir) };
            if replica.dir().join("hoard.json").exists() {
                let name = format!("the hoard in {}", replica.dir().display());
                sources.push(Box::new(OfHoard { hoard: Hoard::open(&replica)?, name }));
            }
            if dir.join("cache.json").exists() {
                let name = format!("the cache in {}", dir.display());
                sources.push(Box::new(OfCache { cache: IdleCache::open(dir)?, name }));
            }
            if sources.is_empty() {
                let what = "is neither a store, nor the cache of a node, nor a replica of a hoard";
                return Err(Error::refused(format!("{} {what}", dir.display())));
            }
            Ok(sources)
        }
    }
}

fn name_of(path: &Path) -> String {
    path.display().to_string()
}

/// Another store, or an origin.
struct OtherStore {
    store: OpenStore,
    name: String,
    /// The sources of recipes that were asked before.
    sources: HashMap<Score, Arc<dyn Source>>,
    decoder: FrameDecoder,
}

impl OtherStore {
    fn open(location: &StoreLocation, domain: Domain) -> Result<Self> {
        let name = match location {
            StoreLocation::Local(place) => name_of(place.dir()),
            StoreLocation::Remote(origin) => origin.server.address.to_string(),
        };
        let store = OpenStore::open_reader(location)?;
        let found = store.domain()?;
        if found != domain {
            let difference = match (found.is_encrypted(), domain.is_encrypted()) {
                (true, true) => "both are encrypted, with different keys",
                (true, false) => "it is encrypted, and the store to heal is not",
                _ => "it is not encrypted, and the store to heal is",
            };
            return Err(Error::refused(format!(
                "{name} cannot heal this store: {difference}, so its blocks have other ids; name a store with the same key, or \
                 a disk with the lost data (such as an export of the version)"
            )));
        }
        Ok(Self { store, name, sources: HashMap::new(), decoder: FrameDecoder::new()? })
    }

    fn read(&mut self, score: Score, kind: Kind, id: &BlockId) -> Result<Option<Vec<u8>>> {
        let store = &self.store;
        let source =
            self.sources.entry(score).or_insert_with(|| store.source(score, SourceOptions::default()));
        // Over the network a lease asks for data blocks only.
        if kind == Kind::Page && matches!(store.opened(), Opened::Remote(_)) {
            return source.page(id).map(Some);
        }
        let Some(lease) = source.lease(id)? else { return Ok(None) };
        let mut stored = Vec::new();
        source.read_leased(&lease, &mut stored)?;
        self.decoder.decode_block(&stored, kind, lease.place.slot, id).map(|block| Some(block.to_vec()))
    }
}

impl HealSource for OtherStore {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn find(&mut self, wanted: &WantedBlock) -> Result<Option<Vec<u8>>> {
        // An origin sends blocks of the recipes that it has. A store in a directory needs no recipe.
        let scores = match wanted.scores.is_empty() {
            true => vec![Score(wanted.id)],
            false => wanted.scores.clone(),
        };
        let mut failure = None;
        for score in scores {
            match self.read(score, wanted.kind, &wanted.id) {
                Ok(None) => {}
                Ok(Some(found)) => return Ok(Some(found)),
                Err(error) if error.kind() == ErrorKind::Missing => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(None), Err)
    }
}

/// The cache of a node that is stopped.
struct OfCache {
    cache: IdleCache,
    name: String,
}

impl HealSource for OfCache {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn find(&mut self, wanted: &WantedBlock) -> Result<Option<Vec<u8>>> {
        self.cache.read(wanted.kind, &wanted.id)
    }
}

/// A replica of the hoard.
struct OfHoard {
    hoard: Arc<Hoard>,
    name: String,
}

impl HealSource for OfHoard {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn find(&mut self, wanted: &WantedBlock) -> Result<Option<Vec<u8>>> {
        match self.hoard.holds(&wanted.id) {
            true => self.hoard.read_block(wanted.kind, &wanted.id).map(Some),
            false => Ok(None),
        }
    }
}

/// A disk that may still have what a version had at the same place.
struct OnDisk {
    disk: Disk,
}

impl HealSource for OnDisk {
    fn name(&self) -> String {
        name_of(self.disk.path())
    }

    fn find(&mut self, wanted: &WantedBlock) -> Result<Option<Vec<u8>>> {
        if wanted.kind != Kind::Data {
            return Ok(None);
        }
        let mut tried = BTreeSet::new();
        for piece in &wanted.pieces {
            let Some(start) = piece.disk_offset.checked_sub(piece.block_offset) else { continue };
            if tried.insert(start)
                && let Some(block) = self.block_at(start, wanted)?
            {
                return Ok(Some(block));
            }
        }
        self.of_pieces(wanted)
    }
}

impl OnDisk {
    /// Puts a block together from pieces in different places, with zeros where no version needs it.
    fn of_pieces(&self, wanted: &WantedBlock) -> Result<Option<Vec<u8>>> {
        let mut block = Vec::new();
        for piece in &wanted.pieces {
            let end = (piece.block_offset + piece.length).min(BLOCK_LENGTH_MAX);
            let length = end.saturating_sub(piece.block_offset);
            if piece.disk_offset + length > self.disk.length() {
                continue;
            }
            let (start, end) = (piece.block_offset as usize, end as usize);
            block.resize(block.len().max(end), 0);
            let read = self.disk.read_exact_at(&mut block[start..end], piece.disk_offset);
            read.context(|| {
                format!("reading {} at offset {}", self.disk.path().display(), piece.disk_offset)
            })?;
        }
        // A piece may reach past the block's end, where the disk has zeros.
        let sector = SECTOR as usize;
        while block.len() >= sector {
            if wanted.is(&block) {
                return Ok(Some(block));
            }
            let last = block.len() - sector;
            if block[last..].iter().any(|byte| *byte != 0) {
                break;
            }
            block.truncate(last);
        }
        Ok(None)
    }

    /// Looks for a block that begins at that offset. Recipes do not say how long blocks are, so every length is tried that does not
    /// end in a zero sector.
    fn block_at(&self, start: u64, wanted: &WantedBlock) -> Result<Option<Vec<u8>>> {
        let length = BLOCK_LENGTH_MAX.min(self.disk.length().saturating_sub(start));
        let mut bytes = vec![0; length as usize];
        let read = self.disk.read_exact_at(&mut bytes, start);
        read.context(|| format!("reading {} at offset {start}", self.disk.path().display()))?;
        let sector = SECTOR as usize;
        while bytes.len() >= sector {
            let last = bytes.len() - sector;
            if bytes[last..].iter().any(|byte| *byte != 0) && wanted.is(&bytes) {
                return Ok(Some(bytes));
            }
            bytes.truncate(last);
        }
        Ok(None)
    }
}
