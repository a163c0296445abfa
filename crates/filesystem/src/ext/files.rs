//! The files of a clean ext filesystem: inodes, names, contents and attributes.
//!
//! It only reads, one inode at a time, and keeps none. All claims together are limited to a few times the
//! number of blocks in the filesystem, so every walk ends, whatever the disk contains. A caller that walks
//! directories must enter each one only once, because names may form cycles.
//!
//! As in the kernel, an inode with a wrong checksum does not exist, and neither does a block of a directory, of an extent tree or of
//! attributes: it may be that of another file.

use platter_image::{DiskRead, Error, ErrorKind, Extent, Result, SECTOR};

use super::attributes::{self, Stored, VALUE_LENGTH_MAX, Value};
use super::groups::{self, Group};
use super::inodes::{self, Inode, Mapping, ROOT};
use super::volume::Volume;
use super::walker::{Piece, Walker};
use super::{checksums, directory, features};
use crate::fields::{le16, le32};
use crate::files::{Attribute, FileContents, FileInode, FileKind, FileTree, Listing, Metadata, Run};

/// The length of the first part of contents stored in an inode.
const INLINE_LENGTH: usize = 60;
/// All claims together may be at most this many times the blocks of the filesystem.
const TIMES_MAX: u64 = 4;
/// Blocks that an attribute's value may claim. Values are shared by many files and are not charged to any.
const VALUE_BLOCKS_MAX: u64 = 256;
/// Files with more fragments are not read; so many take 128 MiB of memory.
const RUNS_MAX: usize = 1 << 22;
/// The most bytes of a symbolic link, as in the kernel.
const LINK_LENGTH_MAX: u64 = 4096;

const FLAG_INLINE_DATA: u32 = 0x1000_0000;
const FLAG_ENCRYPT: u32 = 0x800;
/// The number of its sectors counts blocks.
const FLAG_HUGE_FILE: u32 = 0x4_0000;
/// Flags that a user sees and sets, without those for the layout of contents: secrm, unrm, compr, sync,
/// immutable, append, nodump, noatime, encrypt, journal_data, notail, dirsync, topdir, verity, dax,
/// projinherit, casefold.
const FLAGS_SEEN: u32 = 0x6213_c8ff;

/// An inode as it is stored. Its number was checked when it was read.
fn view(inode: &FileInode) -> Inode<'_> {
    Inode::new(inode.number as u32, &inode.bytes)
}

/// The files of one filesystem.
pub struct Files<'d> {
    volume: Volume<'d>,
    groups: Vec<Group>,
    /// Blocks that may still be claimed.
    budget: u64,
}

impl<'d> Files<'d> {
    /// Opens the filesystem at the start of `extent`.
    ///
    /// # Errors
    /// `Corrupt` if there is no trustworthy filesystem; `Refused` if it needs recovery, because its newest
    /// files are then only in its journal; errors of reading the disk.
    pub fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        let volume = Volume::open(disk, extent)?;
        volume.superblock.check_recovery()?;
        let groups = groups::read(&volume)?;
        let mut files = Self { volume, groups, budget: 0 };
        files.renew();
        Ok(files)
    }

    /// Allows as much reading again as when the filesystem was opened.
    pub fn renew(&mut self) {
        self.budget = self.volume.superblock.blocks.saturating_mul(TIMES_MAX);
    }

    /// `ext2`, `ext3` or `ext4`.
    pub fn filesystem(&self) -> &'static str {
        self.volume.superblock.features.filesystem()
    }

    /// Its label and UUID, if it has them.
    pub fn names(&self) -> (Option<&str>, Option<&str>) {
        (self.volume.superblock.label.as_deref(), self.volume.superblock.uuid.as_deref())
    }

    /// Its block size in bytes.
    pub fn block_size(&self) -> u32 {
        self.volume.superblock.block_size
    }

    /// The number of the root directory's inode.
    pub fn root(&self) -> u64 {
        ROOT.into()
    }

    fn inodes(&self) -> u32 {
        self.volume.superblock.inodes()
    }

    /// Reads the inode of that number, to which a name refers.
    ///
    /// # Errors
    /// `Corrupt` if it does not exist, is not in use or has a wrong checksum; errors of reading the disk.
    pub fn inode(&self, number: u64) -> Result<FileInode> {
        let short =
            u32::try_from(number).map_err(|_| Error::corrupt(format!("there is no inode {number}")))?;
        let bytes = self.raw_inode(short)?;
        if !checksums::is_inode_correct(&self.volume.superblock, Inode::new(short, &bytes)) {
            return Err(Error::corrupt(format!("inode {number} has a wrong checksum")));
        }
        let metadata = metadata(&bytes, &self.volume).filter(|_| Inode::new(short, &bytes).is_in_use());
        let metadata =
            metadata.ok_or_else(|| Error::corrupt(format!("inode {number} has a name but is not in use")))?;
        Ok(FileInode { number, metadata, is_encrypted: flags(&bytes) & FLAG_ENCRYPT != 0, bytes })
    }

    fn raw_inode(&self, number: u32) -> Result<Vec<u8>> {
        let per_group = self.volume.superblock.inodes_per_group;
        let index = number.checked_sub(1);
        let used = index.and_then(|index| {
            let group = self.groups.get((index / per_group) as usize)?;
            (index % per_group < group.inodes).then_some(())
        });
        used.ok_or_else(|| Error::corrupt(format!("inode {number} was never used")))?;
        inodes::read_one(&self.volume, &self.groups, number)
    }

    /// The names in a directory.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be read, or the filesystem claims more blocks than it has; errors of reading
    /// the disk.
    pub fn list(&mut self, inode: &FileInode) -> Result<Listing> {
        let inodes = self.inodes();
        let mut listing = Listing::default();
        match self.contents(inode)? {
            FileContents::Packed => {}
            FileContents::Inline(bytes) => {
                // The parent's number, entries up to the end of the inode's own part, then further entries.
                let (own, rest) = bytes.split_at(bytes.len().min(INLINE_LENGTH));
                directory::add_block(&mut listing, own.get(4..).unwrap_or_default(), inodes)?;
                directory::add_block(&mut listing, rest, inodes)?;
            }
            FileContents::Runs(runs) => {
                let block_size = u64::from(self.block_size());
                let mut block = vec![0; block_size as usize];
                let size = inode.metadata.size;
                for run in runs {
                    let whole = Extent::between(run.file_offset, run.file_offset + run.place.length);
                    let inside = whole.end().min(size).saturating_sub(whole.offset).div_ceil(block_size);
                    for place in (0..inside).map(|number| run.place.offset + number * block_size) {
                        let number = (place - self.volume.extent.offset) / block_size;
                        self.volume.read(number, &mut block)?;
                        if !checksums::is_directory_block_correct(
                            &self.volume.superblock,
                            view(inode),
                            &block,
                        ) {
                            return Err(wrong_block(inode, "directory", number));
                        }
                        directory::add_block(&mut listing, &block, inodes)?;
                    }
                }
            }
        }
        Ok(listing.sorted())
    }

    /// Where the contents of an inode are: everything written, even past the end of the file.
    ///
    /// # Errors
    /// Those of [`Files::list`].
    pub fn contents(&mut self, inode: &FileInode) -> Result<FileContents> {
        if flags(&inode.bytes) & FLAG_INLINE_DATA != 0 {
            return self.inline_contents(inode).map(FileContents::Inline);
        }
        let block_size = u64::from(self.block_size());
        let mut runs: Vec<Run> = Vec::new();
        let is_sound = self.walk(inode, &mut |volume, piece| {
            if let Piece::Run { file_block, block, blocks, is_written: true } = piece {
                let run = Run { file_offset: file_block * block_size, place: volume.place(block, blocks) };
                let is_full = runs.len() > RUNS_MAX;
                let last = runs.last_mut().filter(|last| {
                    last.file_offset + last.place.length == run.file_offset
                        && last.place.end() == run.place.offset
                });
                match last {
                    Some(last) => last.place.length += run.place.length,
                    None if is_full => {}
                    None => runs.push(run),
                }
            }
        })?;
        if runs.len() > RUNS_MAX {
            return Err(Error::corrupt(format!(
                "the file has more than {RUNS_MAX} fragments and is not read"
            )));
        }
        runs.sort_unstable();
        let overlap = |pair: &[Run]| pair[0].file_offset + pair[0].place.length > pair[1].file_offset;
        if !is_sound || runs.windows(2).any(overlap) {
            return Err(Error::corrupt(format!("inode {} names invalid blocks", inode.number)));
        }
        Ok(FileContents::Runs(runs))
    }

    /// Calls `visit` with every disk extent that holds contents or attributes of an inode, including tree
    /// blocks. Returns `false` if some of them are unknown.
    ///
    /// # Errors
    /// Those of [`Files::list`].
    pub fn visit_places(&mut self, inode: &FileInode, visit: &mut dyn FnMut(Extent)) -> Result<bool> {
        if let Some(block) = self.attribute_block(inode) {
            // Values in other inodes may change without a change of this one.
            if !self.volume.holds(block, 1)
                || self.volume.superblock.features.incompat(features::INCOMPAT_EA_INODE)
            {
                return Ok(false);
            }
            visit(self.volume.place(block, 1));
        }
        if self.volume.superblock.features.incompat(features::INCOMPAT_EA_INODE) {
            return Ok(false);
        }
        self.walk(inode, &mut |volume, piece| match piece {
            Piece::Node(block) => visit(volume.place(block, 1)),
            Piece::Run { block, blocks, .. } => visit(volume.place(block, blocks)),
        })
    }

    fn walk(&mut self, inode: &FileInode, visit: &mut dyn FnMut(&Volume<'d>, Piece)) -> Result<bool> {
        let volume = &self.volume;
        let mut walker = Walker::with_budget(volume, self.budget);
        let walked = walker.walk(view(inode), &mut |piece| visit(volume, piece));
        self.budget = walker.budget();
        walked.map_err(|error| error.within(format!("inode {}", inode.number)))
    }

    fn inline_contents(&mut self, inode: &FileInode) -> Result<Vec<u8>> {
        let mut bytes = view(inode).block_area().to_vec();
        let rest = self.all_attributes(inode)?.into_iter().find(Stored::is_inline_data);
        bytes.extend(rest.into_iter().flat_map(|rest| rest.value));
        if inode.metadata.size > bytes.len() as u64 {
            return Err(Error::corrupt(format!(
                "inode {} claims to contain {} bytes, but contains {}",
                inode.number,
                inode.metadata.size,
                bytes.len()
            )));
        }
        bytes.truncate(inode.metadata.size as usize);
        Ok(bytes)
    }

    /// The target of a symbolic link; of an encrypted link, its stored form.
    ///
    /// # Errors
    /// Those of [`Files::list`].
    pub fn target(&mut self, inode: &FileInode) -> Result<Vec<u8>> {
        let size = inode.metadata.size;
        if size > LINK_LENGTH_MAX.min(u64::from(self.block_size())) {
            return Err(Error::corrupt(format!("a symbolic link of {size} bytes is too long")));
        }
        let inode_view = view(inode);
        if flags(&inode.bytes) & FLAG_INLINE_DATA == 0 && inode_view.mapping() == Mapping::None {
            let area = inode_view.block_area();
            return Ok(area[..area.len().min(size as usize)].to_vec());
        }
        match self.contents(inode)? {
            FileContents::Inline(bytes) => Ok(bytes),
            FileContents::Packed => Err(Error::bug("ext has no packed files")),
            FileContents::Runs(runs) => self.read_start(&runs, size as usize),
        }
    }

    /// The extended attributes, sorted by name.
    ///
    /// # Errors
    /// Those of [`Files::list`].
    pub fn attributes(&mut self, inode: &FileInode) -> Result<Vec<Attribute>> {
        let stored = self.all_attributes(inode)?.into_iter();
        let mut found: Vec<_> =
            stored.filter(|attribute| !attribute.is_inline_data()).map(Stored::decode).collect();
        found.sort_unstable();
        Ok(found)
    }

    fn attribute_block(&self, inode: &FileInode) -> Option<u64> {
        let is_64bit = self.volume.superblock.features.incompat(features::INCOMPAT_64BIT);
        view(inode).attribute_block(is_64bit)
    }

    fn all_attributes(&mut self, inode: &FileInode) -> Result<Vec<Stored>> {
        let mut found = Vec::new();
        let mut elsewhere = Vec::new();
        let mut visit = |index: u8, name: &[u8], value: Value<'_>| {
            let value = match value {
                Value::Here(value) => value.to_vec(),
                Value::Inode(number, length) => {
                    elsewhere.push((found.len(), number, length));
                    Vec::new()
                }
            };
            found.push(Stored { index, name: name.to_vec(), value });
            Ok(())
        };
        attributes::in_inode(&inode.bytes, &mut visit)?;
        if let Some(block) = self.attribute_block(inode) {
            let mut bytes = vec![0; self.block_size() as usize];
            self.volume.read(block, &mut bytes)?;
            if !checksums::is_attribute_block_correct(&self.volume.superblock, block, &bytes) {
                return Err(wrong_block(inode, "attributes", block));
            }
            attributes::in_block(&bytes, &mut visit)?;
        }
        for (place, number, length) in elsewhere {
            found[place].value = self.value(number, length)?;
        }
        Ok(found)
    }

    /// The value of an attribute that has an inode of its own.
    fn value(&mut self, number: u32, length: u32) -> Result<Vec<u8>> {
        let inode = self.inode(number.into())?;
        let is_value =
            inode.metadata.kind == FileKind::Regular && flags(&inode.bytes) & FLAG_INLINE_DATA == 0;
        if !is_value || length > VALUE_LENGTH_MAX {
            return Err(Error::corrupt(format!("inode {number} does not contain an attribute")));
        }
        let budget = std::mem::replace(&mut self.budget, VALUE_BLOCKS_MAX);
        let contents = self.contents(&inode);
        self.budget = budget;
        match contents? {
            FileContents::Runs(runs) => self.read_start(&runs, length as usize),
            FileContents::Inline(_) | FileContents::Packed => {
                Err(Error::new(ErrorKind::Corrupt, "the value of an attribute is stored inline in an inode"))
            }
        }
    }

    /// The first `length` bytes of contents.
    fn read_start(&self, runs: &[Run], length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let block_size = u64::from(self.block_size());
        for run in runs.iter().filter(|run| run.file_offset < length as u64) {
            let start = run.file_offset as usize;
            let end = length.min(start.saturating_add(run.place.length as usize));
            let block = (run.place.offset - self.volume.extent.offset) / block_size;
            self.volume.read(block, &mut bytes[start..end])?;
        }
        Ok(bytes)
    }
}

impl FileTree for Files<'_> {
    fn filesystem(&self) -> &'static str {
        self.filesystem()
    }

    fn block_size(&self) -> u32 {
        self.block_size()
    }

    fn names(&self) -> (Option<&str>, Option<&str>) {
        self.names()
    }

    fn root(&self) -> u64 {
        self.root()
    }

    fn renew(&mut self) {
        Files::renew(self);
    }

    fn inode(&mut self, number: u64) -> Result<FileInode> {
        Files::inode(self, number)
    }

    fn list(&mut self, directory: &FileInode) -> Result<Listing> {
        self.list(directory)
    }

    fn disk(&self) -> &dyn DiskRead {
        self.volume.disk
    }

    fn contents(&mut self, file: &FileInode) -> Result<FileContents> {
        self.contents(file)
    }

    fn visit_places(&mut self, file: &FileInode, visit: &mut dyn FnMut(Extent)) -> Result<bool> {
        self.visit_places(file, visit)
    }

    fn target(&mut self, link: &FileInode) -> Result<Vec<u8>> {
        self.target(link)
    }

    fn attributes(&mut self, file: &FileInode) -> Result<Vec<Attribute>> {
        self.attributes(file)
    }
}

fn wrong_block(inode: &FileInode, what: &str, block: u64) -> Error {
    Error::corrupt(format!("inode {}: block {block} of its {what} has a wrong checksum", inode.number))
}

fn flags(inode: &[u8]) -> u32 {
    le32(inode, 0x20)
}

/// The major and minor number, from the two forms in an inode: 16 bits, or 32 bits in the upper half.
fn device(bytes: &[u8]) -> (u32, u32) {
    let (old, new) = (le32(bytes, 0x28), le32(bytes, 0x2c));
    if old != 0 {
        return (old >> 8 & 0xff, old & 0xff);
    }
    ((new & 0xf_ff00) >> 8, (new & 0xff) | (new >> 12 & 0xf_ff00))
}

fn metadata(bytes: &[u8], volume: &Volume<'_>) -> Option<Metadata> {
    let mode = le16(bytes, 0);
    let kind = FileKind::of_mode(mode.into())?;
    let is_wide = match kind {
        FileKind::Directory => volume.superblock.features.incompat(features::INCOMPAT_LARGEDIR),
        kind => kind == FileKind::Regular,
    };
    let high = if is_wide { u64::from(le32(bytes, 0x6c)) << 32 } else { 0 };
    let is_device = matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice);
    // Fields after the first 128 bytes exist as far as the inode says.
    let extra = if bytes.len() > 128 { usize::from(le16(bytes, 0x80)) } else { 0 };
    let further = |offset: usize| if offset + 4 <= 128 + extra { le32(bytes, offset) } else { 0 };
    let time = |offset: usize, fine: usize| {
        let (seconds, fine) = (le32(bytes, offset).cast_signed(), further(fine));
        (i64::from(seconds) + (i64::from(fine & 3) << 32), fine >> 2)
    };
    let features = &volume.superblock.features;
    let is_huge = features.ro_compat(features::RO_COMPAT_HUGE_FILE);
    let high_sectors = if is_huge { u64::from(le16(bytes, 0x74)) << 32 } else { 0 };
    let in_blocks = is_huge && flags(bytes) & FLAG_HUGE_FILE != 0;
    let unit = if in_blocks { u64::from(volume.superblock.block_size) } else { SECTOR };
    let size = u64::from(le32(bytes, 4)) | high;
    // The kernel counts contents in an inode as sectors, too.
    let is_inside = kind == FileKind::Regular && flags(bytes) & FLAG_INLINE_DATA != 0;
    let inside = if is_inside { size.div_ceil(SECTOR).saturating_mul(SECTOR) } else { 0 };
    let sectors = u64::from(le32(bytes, 0x1c)) | high_sectors;
    Some(Metadata {
        kind,
        mode: mode & 0xfff,
        owner: (
            u32::from(le16(bytes, 2)) | u32::from(le16(bytes, 0x78)) << 16,
            u32::from(le16(bytes, 0x18)) | u32::from(le16(bytes, 0x7a)) << 16,
        ),
        size,
        allocated: sectors.saturating_mul(unit).saturating_add(inside),
        mtime: time(0x10, 0x88),
        atime: time(0x8, 0x8c),
        ctime: time(0xc, 0x84),
        links: le16(bytes, 0x1a).into(),
        device: if is_device { device(bytes) } else { (0, 0) },
        flags: (flags(bytes) & FLAGS_SEEN).into(),
        project: further(0x9c),
    })
}
