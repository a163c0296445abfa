//! The directory of an index: opens it, adds packs, removes it.
//!
//! Why a crash leaves the old index or the new one: a segment is complete and synced before a manifest names it, and manifests are
//! replaced atomically. Files that no manifest names are removed by the next writer. Only one process writes at a time: the one
//! that holds the store's lock. Readers take no lock. A reader that finds a file missing reads the newer manifest.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use platter_image::{Error, ErrorKind, IoContext, Result};
use platter_records::{PackId, StoreId};
use platter_vfs::{OpenMode, Vfs, create_dirs, read_whole, remove_if_there, replace};

use crate::entry::Entry;
use crate::manifest::{CoveredPack, MANIFEST_LENGTH_MAX, Manifest, SegmentRow};
use crate::merge::{choose, merge};
use crate::segment::{Segment, SegmentId, SegmentWriter};
use crate::snapshot::Snapshot;

const MANIFEST: &str = "manifest";
/// A file that exists while the index is written, so that this does not use up the last space of the disk: a catalog needs some
/// to forget versions.
const ROOM: &str = "room";
const ROOM_LENGTH: usize = 256 << 10;
/// How often a reader tries again because files were replaced while it opened them.
const OPEN_TRIES: u32 = 5;

/// When the index on disk is written, and how much memory it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLimits {
    /// So many blocks, or more, are moved from memory to the index on disk.
    pub blocks: u64,
    /// So many packs, or more, are moved.
    pub packs: usize,
    /// Bytes of fences and filters in memory.
    pub memory: u64,
}

impl IndexLimits {
    /// The limits of a store.
    pub const USUAL: Self = Self { blocks: 8 << 10, packs: 16, memory: 128 << 20 };
}

/// The directory of an index.
#[derive(Clone, Copy, Debug)]
pub struct IndexFolder<'a> {
    vfs: &'a dyn Vfs,
    dir: &'a std::path::Path,
    store: StoreId,
    memory: u64,
}

/// A pack to add.
#[derive(Clone, Debug)]
pub struct NewPack {
    /// The pack.
    pub id: PackId,
    /// All of its blocks, in any order. Their pack numbers are set when they are added.
    pub entries: Vec<Entry>,
}

impl<'a> IndexFolder<'a> {
    /// The index of `store` in `dir`. Snapshots use about `memory` bytes for fences and filters.
    pub fn new(vfs: &'a dyn Vfs, dir: &'a std::path::Path, store: StoreId, memory: u64) -> Self {
        Self { vfs, dir, store, memory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Opens the index; `None` if there is none. If the manifest is that of `known`, returns `known`. Segments that `known` has open
    /// are not opened again.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged or belongs to another store; `Refused` when a newer Platter wrote it; `Io`.
    pub fn open(&self, known: Option<&Arc<Snapshot>>) -> Result<Option<Arc<Snapshot>>> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_open(known) {
                // The writer has replaced the manifest since, and removed the file.
                Err(error) if is_missing_file(&error) && tries < OPEN_TRIES => {}
                opened => return opened,
            }
        }
    }

    fn try_open(&self, known: Option<&Arc<Snapshot>>) -> Result<Option<Arc<Snapshot>>> {
        let path = self.path(MANIFEST);
        let read = read_whole(self.vfs, &path, MANIFEST_LENGTH_MAX);
        let Some(encoded) = read.context(|| format!("reading {}", path.display()))? else { return Ok(None) };
        if let Some(known) = known.filter(|known| known.encoded == encoded) {
            return Ok(Some(Arc::clone(known)));
        }
        let manifest = Manifest::decode(&encoded)?;
        if manifest.store != self.store {
            return Err(Error::corrupt(format!("the index belongs to store {}", manifest.store)));
        }
        let segments =
            manifest.segments.iter().map(|row| self.open_segment(row, known.map(|known| &**known)));
        let segments = segments.collect::<Result<Vec<_>>>()?;
        Ok(Some(Arc::new(Snapshot::new(manifest, encoded, segments, self.memory))))
    }

    fn open_segment(&self, row: &SegmentRow, known: Option<&Snapshot>) -> Result<Arc<Segment>> {
        let mut open = known.into_iter().flat_map(|known| &known.segments);
        if let Some(segment) = open.find(|segment| segment.head.id == row.id) {
            return Ok(Arc::clone(segment));
        }
        let path = self.path(&row.id.file_name());
        let file = self.vfs.open(&path, OpenMode::Read).context(|| format!("opening {}", path.display()))?;
        let segment = Segment::open(file, self.store);
        let segment = segment.map_err(|error| error.within(path.display().to_string()))?;
        if (segment.head.id, segment.head.entries) != (row.id, row.entries) {
            return Err(Error::corrupt(format!("{} is another segment", path.display())));
        }
        Ok(Arc::new(segment))
    }

    /// Adds packs to the index, and drops the packs that `keeps` denies. The new index is durable on return. After an error, the
    /// files of `base` are unchanged. The caller is the only writer.
    ///
    /// # Errors
    /// `Corrupt` when the index is damaged; `Io`.
    pub fn add(
        &self,
        base: Option<&Arc<Snapshot>>,
        packs: Vec<NewPack>,
        keeps: &dyn Fn(PackId) -> bool,
    ) -> Result<Arc<Snapshot>> {
        create_dirs(self.vfs, self.dir).context(|| format!("making {}", self.dir.display()))?;
        let mut manifest = base.map_or_else(|| Manifest::new(self.store), |base| base.manifest.clone());
        manifest.packs.retain(|pack| keeps(pack.id));
        let mut entries = Vec::with_capacity(packs.iter().map(|pack| pack.entries.len()).sum());
        for pack in packs {
            let number = manifest.next_number;
            let next = number.checked_add(1);
            manifest.next_number =
                next.ok_or_else(|| Error::refused("the index has no more pack numbers"))?;
            let blocks = pack.entries.len() as u32;
            manifest.packs.push(CoveredPack { id: pack.id, number, blocks });
            entries.extend(pack.entries.into_iter().map(|entry| Entry { pack: number, ..entry }));
        }
        entries.sort_unstable();
        entries.dedup();
        let mut segments = base.map_or_else(Vec::new, |base| base.segments.clone());
        let made =
            self.set_room_aside().and_then(|()| self.write_segments(&manifest, &entries, &mut segments));
        drop(entries);
        manifest.segments = segments.iter().map(|segment| row_of(segment)).collect();
        let encoded = manifest.encode();
        if let Err(error) = made.and_then(|()| self.replace_manifest(&encoded)) {
            self.undo(base);
            return Err(error);
        }
        // What cannot be removed is removed by the next writer.
        let _ = self.remove_others(&segments, true);
        Ok(Arc::new(Snapshot::new(manifest, encoded, segments, self.memory)))
    }

    /// Creates the file that is removed, with all that no manifest names, after the change.
    fn set_room_aside(&self) -> Result<()> {
        let path = self.path(ROOM);
        // Not compressible, so that it takes its space on any filesystem.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let words = (0..ROOM_LENGTH / 8).flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        let bytes: Vec<u8> = words.collect();
        let written = self.vfs.open(&path, OpenMode::Create).and_then(|file| file.write_all_at(&bytes, 0));
        written.context(|| format!("writing {}", path.display()))
    }

    fn replace_manifest(&self, encoded: &[u8]) -> Result<()> {
        // The names of the segments are durable before the manifest names them.
        self.vfs.sync_dir(self.dir).context(|| format!("syncing {}", self.dir.display()))?;
        let path = self.path(MANIFEST);
        replace(self.vfs, &path, encoded).context(|| format!("writing {}", path.display()))
    }

    /// Removes the files of a failed change, unless the manifest may name them.
    fn undo(&self, base: Option<&Arc<Snapshot>>) {
        let found = read_whole(self.vfs, &self.path(MANIFEST), MANIFEST_LENGTH_MAX);
        if let (Some(base), Ok(Some(found))) = (base, &found)
            && *found == base.encoded
        {
            let _ = self.remove_others(&base.segments, true);
        }
        if let (None, Ok(None)) = (base, &found) {
            let _ = self.remove_others(&[], false);
        }
        // Some filesystems give back the space only now.
        let _ = self.vfs.sync_dir(self.dir);
    }

    /// Writes a segment of new entries, and merges segments.
    fn write_segments(
        &self,
        manifest: &Manifest,
        new: &[Entry],
        segments: &mut Vec<Arc<Segment>>,
    ) -> Result<()> {
        let written =
            self.write(new.len() as u64, |writer| new.iter().try_for_each(|entry| writer.push(*entry)))?;
        segments.extend(written);
        let total: u64 = segments.iter().map(|segment| segment.head.entries).sum();
        // Most entries belong to packs that are gone: write everything again.
        if total / 2 > manifest.covered() {
            for segment in std::mem::take(segments) {
                segments.extend(self.write_merged(manifest, &[segment])?);
            }
        }
        loop {
            let entries: Vec<u64> = segments.iter().map(|segment| segment.head.entries).collect();
            let chosen = choose(&entries);
            if chosen.is_empty() {
                return Ok(());
            }
            let sources: Vec<Arc<Segment>> = chosen.iter().map(|at| Arc::clone(&segments[*at])).collect();
            let merged = self.write_merged(manifest, &sources)?;
            segments.retain(|segment| !sources.iter().any(|source| Arc::ptr_eq(source, segment)));
            segments.extend(merged);
        }
    }

    fn write_merged(&self, manifest: &Manifest, sources: &[Arc<Segment>]) -> Result<Option<Arc<Segment>>> {
        let entries = sources.iter().map(|segment| segment.head.entries).sum();
        self.write(entries, |writer| {
            let mut sources: Vec<_> = sources.iter().map(|segment| segment.in_order()).collect();
            merge(manifest, &mut sources, writer)
        })
    }

    /// Writes a segment; `None` if it would have no entries.
    fn write(
        &self,
        entries_max: u64,
        fill: impl FnOnce(&mut SegmentWriter<'_>) -> Result<()>,
    ) -> Result<Option<Arc<Segment>>> {
        if entries_max == 0 {
            return Ok(None);
        }
        let id = SegmentId(self.vfs.random_id().context(|| "naming an index segment".into())?);
        let path = self.path(&id.file_name());
        let context = || format!("making {}", path.display());
        let file = self.vfs.open(&path, OpenMode::CreateNew).context(context)?;
        let mut writer = SegmentWriter::new(&*file, id, self.store, entries_max);
        let Some(head) = fill(&mut writer).and_then(|()| writer.finish())? else { return Ok(None) };
        let segment = Segment::open(file, self.store)?;
        match segment.head == head {
            true => Ok(Some(Arc::new(segment))),
            false => Err(Error::corrupt(format!("{} was not written correctly", path.display()))),
        }
    }

    /// Removes the index. The next open finds none.
    ///
    /// # Errors
    /// `Io`.
    pub fn remove(&self) -> Result<()> {
        match self.vfs.exists(self.dir) {
            Ok(true) => self.remove_others(&[], false),
            Ok(false) => Ok(()),
            Err(error) => Err(Error::io(format!("looking for {}", self.dir.display()), error)),
        }
    }

    /// Removes all files except these segments and, if `has_manifest`, the manifest.
    fn remove_others(&self, kept: &[Arc<Segment>], has_manifest: bool) -> Result<()> {
        let mut names: BTreeSet<String> = kept.iter().map(|segment| segment.head.id.file_name()).collect();
        if has_manifest {
            names.insert(MANIFEST.to_owned());
        } else {
            // First, so that no manifest names a missing file.
            let path = self.path(MANIFEST);
            remove_if_there(self.vfs, &path)
                .and_then(|()| self.vfs.sync_dir(self.dir))
                .context(|| format!("removing {}", path.display()))?;
        }
        let listed = self.vfs.list(self.dir).context(|| format!("listing {}", self.dir.display()))?;
        for entry in listed.iter().filter(|entry| !entry.is_dir && !names.contains(&entry.name)) {
            let path = self.path(&entry.name);
            remove_if_there(self.vfs, &path).context(|| format!("removing {}", path.display()))?;
        }
        Ok(())
    }
}

fn row_of(segment: &Segment) -> SegmentRow {
    SegmentRow { id: segment.head.id, entries: segment.head.entries }
}

fn is_missing_file(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    error.kind() == ErrorKind::Io
        && source.is_some_and(|source| source.kind() == std::io::ErrorKind::NotFound)
}
