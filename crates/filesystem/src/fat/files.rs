//! The files of a FAT volume.
//!
//! A file has no inode, so its number is the place of its directory entry: the offset in the volume, in entries.

use platter_image::{DiskRead, Error, Extent, IoContext, Result};

use super::directory::{DIRECTORY_LENGTH_MAX, ENTRY_LENGTH};
use super::examine::{FIRST_CLUSTER, Fat};
use super::names;
use crate::clusters::{Chains, Clusters, Table, dos_time, read_directory};
use crate::fields::{le16, le32};
use crate::files::{Attribute, DOS_FLAGS, FileContents, FileInode, FileKind, FileTree, Listing, Metadata};
use crate::label;
use crate::reader::Reader;

/// The number of the root directory, which has no entry; the boot sector is at this place.
const ROOT: u64 = 1;

const ATTRIBUTE_READ_ONLY: u8 = 1;
const ATTRIBUTE_DIRECTORY: u8 = 0x10;

/// The files of one volume.
pub(crate) struct Files<'d> {
    disk: &'d dyn DiskRead,
    fat: Fat<'d>,
    chains: Chains<'d>,
    label: Option<String>,
    /// Where the volume is on the disk.
    volume: Extent,
}

impl<'d> Files<'d> {
    /// Opens the volume at the start of `extent`.
    ///
    /// # Errors
    /// `Corrupt` if there is no trustworthy volume; errors of reading the disk.
    pub(crate) fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        let fat = Fat::open(disk, extent)?;
        let boot = fat.boot();
        let volume = Extent::new(extent.offset, boot.length);
        let clusters = Clusters::new(
            disk,
            volume,
            volume.offset + boot.data,
            (boot.cluster_size, boot.clusters),
            FIRST_CLUSTER,
        )?;
        let table = volume.offset + boot.tables + boot.active.unwrap_or(0) * boot.table_length;
        let table = Table::read(disk, table, boot.width, boot.clusters + FIRST_CLUSTER)?;
        let label = label(disk, extent, Fat::NAME);
        Ok(Self { disk, chains: Chains::new(clusters, table), fat, label, volume })
    }

    /// The first cluster of a file or directory; 0 if it has none.
    fn cluster(&self, file: &FileInode) -> u64 {
        match self.fat.boot().root_cluster {
            Some(root) if file.number == ROOT => root,
            Some(_) => u64::from(le16(&file.bytes, 20)) << 16 | u64::from(le16(&file.bytes, 26)),
            None => le16(&file.bytes, 26).into(),
        }
    }

    /// Adds the names in a part of a directory that is in one place on the disk.
    fn add_names(&self, listing: &mut Listing, bytes: &[u8], place: impl Fn(u64) -> u64) -> Result<()> {
        names::named(bytes).into_iter().try_for_each(|(index, name)| {
            let offset = place((index * ENTRY_LENGTH) as u64);
            listing.add(name.as_bytes(), (offset - self.volume.offset) / ENTRY_LENGTH as u64)
        })
    }
}

impl FileTree for Files<'_> {
    fn filesystem(&self) -> &'static str {
        Fat::NAME
    }

    fn block_size(&self) -> u32 {
        self.fat.boot().cluster_size as u32
    }

    fn names(&self) -> (Option<&str>, Option<&str>) {
        (self.label.as_deref(), self.fat.boot().serial.as_deref())
    }

    fn root(&self) -> u64 {
        ROOT
    }

    fn renew(&mut self) {
        self.chains.renew();
    }

    fn inode(&mut self, number: u64) -> Result<FileInode> {
        if number == ROOT {
            let metadata = Metadata { mode: 0o755, ..Metadata::new(FileKind::Directory) };
            return Ok(FileInode { number, metadata, is_encrypted: false, bytes: Vec::new() });
        }
        let offset = number.saturating_mul(ENTRY_LENGTH as u64);
        if offset >= self.volume.length {
            return Err(Error::corrupt(format!("there is no file {number}")));
        }
        let mut bytes = vec![0; ENTRY_LENGTH];
        let offset = self.volume.offset + offset;
        self.disk
            .read_exact_at(&mut bytes, offset)
            .context(|| format!("reading a directory entry at offset {offset}"))?;
        let is_directory = bytes[11] & ATTRIBUTE_DIRECTORY != 0;
        let kind = if is_directory { FileKind::Directory } else { FileKind::Regular };
        let mode = if is_directory { 0o755 } else { 0o644 };
        let is_read_only = bytes[11] & ATTRIBUTE_READ_ONLY != 0;
        let size = if is_directory { 0 } else { le32(&bytes, 28).into() };
        let date =
            |date: usize, time: u16| (dos_time(u32::from(le16(&bytes, date)) << 16 | u32::from(time)), 0);
        let mtime = date(24, le16(&bytes, 22));
        let metadata = Metadata {
            mode: if is_read_only { mode & !0o222 } else { mode },
            size,
            allocated: self.chains.clusters().round_up(size),
            mtime,
            atime: if le16(&bytes, 18) == 0 { mtime } else { date(18, 0) },
            ctime: mtime,
            flags: u64::from(bytes[11]) & DOS_FLAGS,
            ..Metadata::new(kind)
        };
        Ok(FileInode { number, metadata, is_encrypted: false, bytes })
    }

    fn list(&mut self, directory: &FileInode) -> Result<Listing> {
        let mut listing = Listing::default();
        match self.cluster(directory) {
            0 if directory.number == ROOT => {
                let start = self.volume.offset + self.fat.boot().root;
                self.add_names(&mut listing, &self.fat.read_root()?, |offset| start + offset)?;
            }
            // Some systems make directories without clusters, which are empty.
            0 => {}
            cluster => {
                let runs = self.chains.chain(cluster, None);
                let read = runs.and_then(|runs| {
                    Ok((read_directory(self.chains.clusters(), &runs, DIRECTORY_LENGTH_MAX)?, runs))
                });
                let (bytes, runs) =
                    read.map_err(|error| error.within(format!("the directory in cluster {cluster}")))?;
                self.add_names(&mut listing, &bytes, |offset| self.chains.offset_in(&runs, offset))?;
            }
        }
        Ok(listing.sorted())
    }

    fn disk(&self) -> &dyn DiskRead {
        self.disk
    }

    fn contents(&mut self, file: &FileInode) -> Result<FileContents> {
        let (cluster, size) = (self.cluster(file), file.metadata.size);
        let runs = match (cluster, size) {
            (_, 0) => Vec::new(),
            (0, _) => return Err(Error::corrupt("it has no clusters")),
            _ => self.chains.chain(cluster, Some(size))?,
        };
        Ok(FileContents::Runs(self.chains.places(&runs, size)))
    }

    fn target(&mut self, _link: &FileInode) -> Result<Vec<u8>> {
        Err(Error::bug("FAT has no symbolic links"))
    }

    fn attributes(&mut self, _file: &FileInode) -> Result<Vec<Attribute>> {
        Ok(Vec::new())
    }
}
