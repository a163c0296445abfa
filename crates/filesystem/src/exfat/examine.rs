//! Determines which bytes of an exFAT volume are kept: compares everything that directories name with the bitmap.

use platter_image::{DiskRead, Error, ErrorKind, Extent, Extents, Result};

use super::boot_region::BootRegion;
use super::directory;
use super::entry_set::{Entry, Stream};
use super::label::label;
use crate::clusters::{Claims, ClusterSet, Clusters, Run, Table, Width, length_of};
use crate::reader::{Identity, Map, Reader, check_fits};

/// The number of the first cluster.
pub(super) const FIRST_CLUSTER: u64 = 2;

/// An exFAT volume that begins at the start of an extent and fits into it.
pub(crate) struct ExFat<'d> {
    disk: &'d dyn DiskRead,
    extent: Extent,
    boot: BootRegion,
}

impl<'d> Reader<'d> for ExFat<'d> {
    const NAME: &'static str = "exfat";

    fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        let boot = BootRegion::read(disk, extent)?;
        check_fits(boot.length, extent)?;
        Ok(Self { disk, extent, boot })
    }

    fn identity(&self) -> Identity {
        Identity {
            filesystem: Self::NAME.to_owned(),
            label: label(self.disk, self.extent),
            uuid: Some(self.boot.serial.clone()),
            block_size: self.boot.cluster_size as u32,
            length: self.boot.length,
        }
    }

    fn map(&self) -> Result<Map> {
        let boot = &self.boot;
        if boot.tables > 1 {
            return Err(Error::corrupt("it has two allocation tables and bitmaps (TexFAT)"));
        }
        if boot.is_dirty {
            return Err(Error::corrupt("it was not unmounted; fsck.exfat may repair it"));
        }
        let volume = Extent::new(self.extent.offset, boot.length);
        let heap = volume.offset + boot.heap;
        let clusters =
            Clusters::new(self.disk, volume, heap, (boot.cluster_size, boot.clusters), FIRST_CLUSTER)?;
        let entries = boot.clusters + FIRST_CLUSTER;
        let table = Table::read(self.disk, volume.offset + boot.table, Width::Bits32, entries)?;
        let mut walk =
            Walk { clusters: &clusters, table: &table, claims: Claims::new(&clusters), bitmap: None };
        walk.all(boot.root_cluster)?;
        let Walk { claims, bitmap: Some(used), .. } = walk else {
            return Err(Error::corrupt("its root directory does not name an allocation bitmap"));
        };
        if let Some(index) = claims.claimed().first_beyond(&used) {
            let cluster = index + FIRST_CLUSTER;
            return Err(Error::corrupt(format!(
                "cluster {cluster} is in use, but its bitmap marks it as free"
            )));
        }
        let outside = Extents::from_unsorted(vec![clusters.all()]).complement(volume);
        let unread = Extents::from_unsorted(claims.unwritten);
        let used = used.places(&clusters)?;
        let allocated: Extents = used.subtract(&unread).iter().chain(&outside).copied().collect();
        let mut files = claims.files;
        files.sort();
        Ok(Map { allocated, files: files.into_vec(), ..Map::default() })
    }
}

/// The walk over all directories.
struct Walk<'w, 'd> {
    clusters: &'w Clusters<'d>,
    table: &'w Table,
    claims: Claims<'w, 'd>,
    bitmap: Option<ClusterSet>,
}

impl Walk<'_, '_> {
    fn all(&mut self, root: u64) -> Result<()> {
        let mut directories = vec![self.claims.chain(self.table, root)?];
        let mut is_root = true;
        // Each directory is claimed once, so there are no more of them than clusters.
        while let Some(runs) = directories.pop() {
            let number = runs.first().map_or(root, |run| run.first);
            directory::for_each_entry(self.clusters, &runs, |entry| {
                directories.extend(self.entry(entry, is_root)?);
                Ok(())
            })
            .map_err(|error| match error.kind() {
                ErrorKind::Corrupt => Error::corrupt(format!("the directory in cluster {number}: {error}")),
                _ => error,
            })?;
            is_root = false;
        }
        Ok(())
    }

    /// Claims what an entry names. Returns the clusters of a directory.
    fn entry(&mut self, entry: Entry, is_root: bool) -> Result<Option<Vec<Run>>> {
        match entry {
            Entry::Bitmap(stream) => {
                let expected = self.clusters.count().div_ceil(8);
                if !is_root || self.bitmap.is_some() || stream.length != expected {
                    return Err(Error::corrupt(format!(
                        "it names an allocation bitmap of {} bytes where one of {expected} is expected once",
                        stream.length
                    )));
                }
                let runs = self.claim(stream)?;
                self.bitmap = Some(self.read_bitmap(&runs, expected)?);
                Ok(None)
            }
            Entry::Upcase(stream) => self.claim(stream).map(|_| None),
            Entry::Directory(stream) => self.claim(stream).map(Some),
            Entry::File(stream, valid) => {
                let runs = self.claim(stream)?;
                self.claims.file(&runs, valid, stream.length)?;
                Ok(None)
            }
        }
    }

    fn claim(&mut self, stream: Stream) -> Result<Vec<Run>> {
        let needed = stream.length.div_ceil(self.clusters.size());
        if stream.is_one_piece {
            let run = Run { first: stream.cluster, count: needed };
            self.claims.claim(run)?;
            return Ok(vec![run]);
        }
        let runs = self.claims.chain(self.table, stream.cluster)?;
        match needed <= length_of(&runs) {
            true => Ok(runs),
            false => Err(Error::corrupt(format!(
                "the chain from cluster {} on ends before its {} bytes do",
                stream.cluster, stream.length
            ))),
        }
    }

    fn read_bitmap(&self, runs: &[Run], length: u64) -> Result<ClusterSet> {
        let mut bits = vec![0; length as usize];
        let mut rest = bits.as_mut_slice();
        for run in runs {
            let piece = rest.len().min((run.count * self.clusters.size()) as usize);
            let (piece, after) = rest.split_at_mut(piece);
            self.clusters.read(run.first, 0, piece)?;
            rest = after;
        }
        Ok(ClusterSet::from_bitmap(bits, self.clusters.count()))
    }
}
