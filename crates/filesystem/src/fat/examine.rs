//! Determines which bytes of a FAT volume are kept: follows every chain, and combines what they claim with the table.

use platter_image::{DiskRead, Error, ErrorKind, Extent, Extents, IoContext, Result};

use super::boot_sector::BootSector;
use super::copies::{self, Copies};
use super::directory::{self, DIRECTORY_LENGTH_MAX, Entry};
use crate::clusters::{Claims, Clusters, length_of, read_directory};
use crate::label;
use crate::reader::{Identity, Map, Reader, check_fits, read_boot_sector};

/// The number of the first cluster.
pub(super) const FIRST_CLUSTER: u64 = 2;

/// A FAT volume that begins at the start of an extent and fits into it.
pub(crate) struct Fat<'d> {
    disk: &'d dyn DiskRead,
    extent: Extent,
    boot: BootSector,
}

impl<'d> Reader<'d> for Fat<'d> {
    const NAME: &'static str = "vfat";

    fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        let boot = BootSector::parse(&read_boot_sector(disk, extent)?)?;
        check_fits(boot.length, extent)?;
        Ok(Self { disk, extent, boot })
    }

    fn identity(&self) -> Identity {
        Identity {
            filesystem: Self::NAME.to_owned(),
            label: label(self.disk, self.extent, Self::NAME),
            uuid: self.boot.serial.clone(),
            block_size: self.boot.cluster_size as u32,
            length: self.boot.length,
        }
    }

    fn map(&self) -> Result<Map> {
        let boot = &self.boot;
        let volume = Extent::new(self.extent.offset, boot.length);
        let data = volume.offset + boot.data;
        let clusters =
            Clusters::new(self.disk, volume, data, (boot.cluster_size, boot.clusters), FIRST_CLUSTER)?;
        let copies = copies::read(self.disk, volume.offset, boot)?;
        if boot.is_dirty || copies::is_dirty(&copies.table, boot.width) {
            return Err(Error::corrupt("it was not unmounted, or has errors; fsck.fat may repair it"));
        }
        let mut walk =
            Walk { fat: self, clusters: &clusters, copies: &copies, claims: Claims::new(&clusters) };
        walk.all()?;
        let claims = walk.claims;
        if let Some(index) = claims.claimed().first_beyond(&copies.used) {
            let cluster = index + FIRST_CLUSTER;
            return Err(Error::corrupt(format!("cluster {cluster} is in use, but marked as free")));
        }
        let mut notes = Vec::new();
        if copies.differences > 0 && boot.active.is_none() {
            notes.push(format!(
                "its two allocation tables differ in {} entries: clusters that either calls used are stored",
                copies.differences
            ));
        }
        let used = copies.used.places(&clusters)?;
        let outside = Extents::from_unsorted(vec![clusters.all()]).complement(volume);
        let unread = Extents::from_unsorted(claims.unwritten);
        let allocated: Extents = used.subtract(&unread).iter().chain(&outside).copied().collect();
        let mut files = claims.files;
        files.sort();
        Ok(Map { allocated, files: files.into_vec(), notes, ..Map::default() })
    }
}

impl Fat<'_> {
    pub(super) fn boot(&self) -> &BootSector {
        &self.boot
    }

    /// The root directory of FAT12 and FAT16.
    pub(super) fn read_root(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.boot.root_length as usize];
        let offset = self.extent.offset + self.boot.root;
        self.disk
            .read_exact_at(&mut bytes, offset)
            .context(|| format!("reading the root directory at offset {offset}"))?;
        Ok(bytes)
    }
}

/// The walk over all directories.
struct Walk<'w, 'd> {
    fat: &'w Fat<'d>,
    clusters: &'w Clusters<'d>,
    copies: &'w Copies,
    claims: Claims<'w, 'd>,
}

impl Walk<'_, '_> {
    fn all(&mut self) -> Result<()> {
        let mut directories = Vec::new();
        match self.fat.boot.root_cluster {
            Some(cluster) => directories.push(cluster),
            None => {
                let bytes = self.fat.read_root()?;
                self.entries(&bytes, "the root directory", &mut directories)?;
            }
        }
        // Each directory is claimed once, so there are no more of them than clusters.
        while let Some(cluster) = directories.pop() {
            let name = format!("the directory in cluster {cluster}");
            let bytes = self.directory(cluster).map_err(|error| named(error, &name))?;
            self.entries(&bytes, &name, &mut directories)?;
        }
        Ok(())
    }

    /// The contents of a directory.
    fn directory(&mut self, cluster: u64) -> Result<Vec<u8>> {
        let runs = self.claims.chain(&self.copies.table, cluster)?;
        read_directory(self.clusters, &runs, DIRECTORY_LENGTH_MAX)
    }

    fn entries(&mut self, bytes: &[u8], directory: &str, directories: &mut Vec<u64>) -> Result<()> {
        for (offset, entry) in directory::entries(bytes, self.fat.boot.root_cluster.is_some()) {
            let name = || format!("the file at byte {offset} of {directory}");
            match entry {
                Entry { is_directory: true, cluster, .. } => directories.push(cluster),
                Entry { cluster: 0, length: 0, .. } => {}
                Entry { cluster: 0, .. } => return Err(named(Error::corrupt("it has no clusters"), &name())),
                Entry { cluster, length, .. } => {
                    let runs = self
                        .claims
                        .chain(&self.copies.table, cluster)
                        .map_err(|error| named(error, &name()))?;
                    if length.div_ceil(self.fat.boot.cluster_size) > length_of(&runs) {
                        return Err(named(Error::corrupt("its chain ends before it does"), &name()));
                    }
                    self.claims.file(&runs, length, length)?;
                }
            }
            if directories.len() as u64 > self.fat.boot.clusters {
                return Err(Error::corrupt("it has more directories than clusters"));
            }
        }
        Ok(())
    }
}

/// A reason to keep the volume, with the file that is wrong.
fn named(error: Error, name: &str) -> Error {
    match error.kind() {
        ErrorKind::Corrupt => Error::corrupt(format!("{name}: {error}")),
        _ => error,
    }
}
