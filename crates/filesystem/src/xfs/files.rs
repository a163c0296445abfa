//! The files of an XFS filesystem.

use platter_image::{DiskRead, Error, Extent, Result};

use super::attributes::{self, Blocks};
use super::directory;
use super::inodes::{Fork, Inode};
use super::log::Log;
use super::mapping::{Mapper, Piece};
use super::volume::Volume;
use crate::fields::{be16, be32, be64};
use crate::files::{
    Attribute, FileContents, FileInode, FileKind, FileTree, Listing, Metadata, Run, lsattr, lsattr_flags,
};
use crate::reader::unsupported;

/// All nodes and blocks of directories that are read may be at most this many times the blocks of the filesystem.
const TIMES_MAX: u64 = 4;
/// A small filesystem may read as many blocks anyway.
const BLOCKS_MIN: u64 = 1 << 16;
/// Files with more fragments are not read; so many take 128 MiB of memory.
const RUNS_MAX: usize = 1 << 22;
/// The longest directory block, in bytes.
const DIRECTORY_BLOCK_MAX: u32 = 65536;
/// The most bytes of a symbolic link, as in the kernel.
const LINK_LENGTH_MAX: u64 = 1024;

const FLAG2_WIDE_TIMES: u64 = 8;
/// Wide times count from here: the smallest number of seconds in 32 bits.
const WIDE_TIMES_START: i64 = i32::MIN as i64;

/// The second word of flags, after the first 16 bits. With its first bit, a file is read past the cache.
const FLAGS2: u32 = 16;
/// Flags that `lsattr` shows.
const FLAGS_KNOWN: [(u64, u32); 7] = [
    (0x8, lsattr::IMMUTABLE),
    (0x10, lsattr::APPEND),
    (0x20, lsattr::SYNC),
    (0x40, lsattr::NO_ACCESS_TIME),
    (0x80, lsattr::NO_DUMP),
    (0x200, lsattr::INHERIT_PROJECT),
    (1 << FLAGS2, lsattr::DIRECT_ACCESS),
];
/// Flags that only `xfs_io` shows: contents in real time and its inheritance, no links, hints of the size of extents and their
/// inheritance, no defragmentation, streams, and the hint for shared extents. Not those of the layout, which XFS sets itself.
const FLAGS_OWN: u64 = 0x1 | 0x100 | 0x400 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 4 << FLAGS2;

/// The files of one filesystem.
pub(crate) struct Files<'d> {
    disk: &'d dyn DiskRead,
    volume: Volume<'d>,
    /// Nodes and blocks of directories that may still be read.
    budget: u64,
}

/// The data or the attributes of an inode.
#[derive(Clone, Copy)]
enum Which {
    Data,
    Attributes,
}

impl<'d> Files<'d> {
    /// Opens the filesystem at the start of `extent`.
    ///
    /// # Errors
    /// `Corrupt` if there is no trustworthy filesystem; `Refused` if its log must be applied first; errors of reading the disk.
    pub(crate) fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        let volume = Volume::open(disk, extent)?;
        let superblock = &volume.superblock;
        if let Some(reason) = &superblock.unsupported {
            return Err(unsupported(reason.clone()));
        }
        let size = superblock.directory_block_size;
        if !size.is_power_of_two() || !(superblock.block_size..=DIRECTORY_BLOCK_MAX).contains(&size) {
            return Err(Error::corrupt(format!("its directories have the impossible block size {size}")));
        }
        Log::check(&volume)?;
        let mut files = Self { disk, volume, budget: 0 };
        files.renew();
        Ok(files)
    }

    /// Where an inode is on the disk.
    fn place(&self, number: u64) -> Option<u64> {
        let superblock = &self.volume.superblock;
        let bits = superblock.block_inode_bits;
        let block = self.volume.place(number >> bits, 1)?;
        let index = number & ((1 << bits) - 1);
        Some(block.offset + index * u64::from(superblock.inode_size))
    }

    /// The runs of a fork that is not in the inode, in order.
    fn runs(&mut self, inode: &FileInode, which: Which) -> Result<Vec<Run>> {
        let of_inode = |error: Error| error.within(format!("inode {}", inode.number));
        let parsed = Inode::parse(&self.volume, inode.number, &inode.bytes).map_err(of_inode)?;
        let mut runs = Vec::new();
        let mut visit = |piece| {
            if let Piece::Run { file_offset, place, is_written: true } = piece {
                if runs.len() >= RUNS_MAX {
                    return Err(Error::corrupt(format!(
                        "it has more than {RUNS_MAX} fragments and is not read"
                    )));
                }
                runs.push(Run { file_offset, place });
            }
            Ok(())
        };
        let mut mapper = Mapper::with_budget(&self.volume, self.budget);
        let fork = match which {
            Which::Data => parsed.data,
            Which::Attributes => parsed.attributes,
        };
        let walked = match fork {
            Fork::Nothing | Fork::Inside(_) => Ok(()),
            Fork::List(bytes, count) => mapper.list(bytes, count, &mut visit),
            Fork::Tree(root) => mapper.tree(root, &mut visit),
        };
        self.budget = mapper.budget();
        walked.map_err(of_inode)?;
        Ok(runs)
    }

    /// The bytes of a fork that are in the inode; `None` if they are elsewhere.
    fn inside(&self, inode: &FileInode, which: Which) -> Result<Option<Vec<u8>>> {
        let parsed = Inode::parse(&self.volume, inode.number, &inode.bytes)?;
        let fork = match which {
            Which::Data => parsed.data,
            Which::Attributes => parsed.attributes,
        };
        Ok(if let Fork::Inside(bytes) = fork { Some(bytes.to_vec()) } else { None })
    }

    fn spend(&mut self, blocks: u64) -> Result<()> {
        self.budget = self
            .budget
            .checked_sub(blocks)
            .ok_or_else(|| Error::corrupt("its files name more blocks than the filesystem has"))?;
        Ok(())
    }
}

impl FileTree for Files<'_> {
    fn filesystem(&self) -> &'static str {
        "xfs"
    }

    fn block_size(&self) -> u32 {
        self.volume.superblock.block_size
    }

    fn names(&self) -> (Option<&str>, Option<&str>) {
        (self.volume.superblock.label.as_deref(), self.volume.superblock.uuid.as_deref())
    }

    fn root(&self) -> u64 {
        self.volume.superblock.root_inode
    }

    fn renew(&mut self) {
        self.budget = self.volume.superblock.blocks.saturating_mul(TIMES_MAX).max(BLOCKS_MIN);
    }

    fn inode(&mut self, number: u64) -> Result<FileInode> {
        let place =
            self.place(number).ok_or_else(|| Error::corrupt(format!("there is no inode {number}")))?;
        let mut bytes = vec![0; self.volume.superblock.inode_size as usize];
        self.volume.read(place, &mut bytes)?;
        Inode::parse(&self.volume, number, &bytes)
            .map_err(|error| error.within(format!("inode {number}")))?;
        let metadata = metadata(&bytes, self.volume.block_size()).filter(|metadata| metadata.links > 0);
        let metadata =
            metadata.ok_or_else(|| Error::corrupt(format!("inode {number} has a name but is not in use")))?;
        Ok(FileInode { number, metadata, is_encrypted: false, bytes })
    }

    fn list(&mut self, directory: &FileInode) -> Result<Listing> {
        let mut listing = Listing::default();
        let of_directory = |error: Error| error.within(format!("directory {}", directory.number));
        if let Some(bytes) = self.inside(directory, Which::Data)? {
            directory::add_inside(&mut listing, &self.volume.superblock, &bytes).map_err(of_directory)?;
            return Ok(listing.sorted());
        }
        let size = u64::from(self.volume.superblock.directory_block_size);
        // A block may be in several extents.
        let mut block: Vec<u8> = Vec::new();
        let mut next = 0;
        for run in self.runs(directory, Which::Data)? {
            if run.file_offset >= directory::DATA_END {
                break;
            }
            if !block.is_empty() && run.file_offset != next {
                return Err(of_directory(Error::corrupt("a part of a block of it is missing")));
            }
            let mut at = 0;
            while at < run.place.length {
                let have = block.len() as u64;
                let part = (size - have).min(run.place.length - at);
                self.spend(part.div_ceil(self.volume.block_size()))?;
                block.resize((have + part) as usize, 0);
                self.volume.read(run.place.offset + at, &mut block[have as usize..])?;
                at += part;
                if block.len() as u64 == size {
                    let offset = run.file_offset + at - size.min(run.file_offset + at);
                    directory::add_block(&mut listing, &self.volume.superblock, &block, offset)
                        .map_err(of_directory)?;
                    block.clear();
                }
            }
            next = run.file_offset + run.place.length;
        }
        if !block.is_empty() {
            return Err(of_directory(Error::corrupt("a part of its last block is missing")));
        }
        Ok(listing.sorted())
    }

    fn disk(&self) -> &dyn DiskRead {
        self.disk
    }

    fn contents(&mut self, file: &FileInode) -> Result<FileContents> {
        Ok(match self.inside(file, Which::Data)? {
            Some(bytes) => FileContents::Inline(bytes),
            None => FileContents::Runs(self.runs(file, Which::Data)?),
        })
    }

    fn visit_places(&mut self, file: &FileInode, visit: &mut dyn FnMut(Extent)) -> Result<bool> {
        for which in [Which::Data, Which::Attributes] {
            self.runs(file, which)?.iter().for_each(|run| visit(run.place));
        }
        // Nodes of trees are missing.
        Ok(false)
    }

    fn target(&mut self, link: &FileInode) -> Result<Vec<u8>> {
        let length = link.metadata.size;
        if length > LINK_LENGTH_MAX {
            return Err(Error::corrupt(format!("a symbolic link of {length} bytes is too long")));
        }
        let mut target = match self.inside(link, Which::Data)? {
            Some(bytes) => bytes,
            None => {
                let mut target = Vec::new();
                for run in self.runs(link, Which::Data)? {
                    let mut bytes = vec![0; run.place.length.min(DIRECTORY_BLOCK_MAX.into()) as usize];
                    self.volume.read(run.place.offset, &mut bytes)?;
                    let part = attributes::link_part(&self.volume.superblock, link.number, &bytes)?;
                    target.extend_from_slice(part);
                    if target.len() as u64 >= length {
                        break;
                    }
                }
                target
            }
        };
        if (target.len() as u64) < length {
            return Err(Error::corrupt(format!("the target of link {} is incomplete", link.number)));
        }
        target.truncate(length as usize);
        Ok(target)
    }

    fn attributes(&mut self, file: &FileInode) -> Result<Vec<Attribute>> {
        let mut found = match self.inside(file, Which::Attributes)? {
            Some(bytes) => attributes::inside(&bytes)?,
            None => {
                let runs = self.runs(file, Which::Attributes)?;
                if runs.is_empty() {
                    return Ok(Vec::new());
                }
                let blocks = &mut ForkBlocks { volume: &self.volume, runs: &runs };
                attributes::in_blocks(self.volume.superblock.has_checksums, blocks)
                    .map_err(|error| error.within(format!("inode {}", file.number)))?
            }
        };
        found.sort_unstable();
        Ok(found)
    }
}

/// The blocks of an attribute fork.
struct ForkBlocks<'f, 'd> {
    volume: &'f Volume<'d>,
    runs: &'f [Run],
}

impl Blocks for ForkBlocks<'_, '_> {
    fn read(&mut self, number: u32) -> Result<Vec<u8>> {
        let size = self.volume.block_size();
        let offset = u64::from(number) * size;
        let after = self.runs.partition_point(|run| run.file_offset <= offset);
        let run = after.checked_sub(1).and_then(|at| self.runs.get(at));
        let run = run.filter(|run| offset - run.file_offset < run.place.length);
        let run =
            run.ok_or_else(|| Error::corrupt(format!("block {number} of its attributes is missing")))?;
        let mut bytes = vec![0; size as usize];
        self.volume.read(run.place.offset + (offset - run.file_offset), &mut bytes)?;
        Ok(bytes)
    }
}

fn metadata(bytes: &[u8], block_size: u64) -> Option<Metadata> {
    let mode = be16(bytes, 2);
    let kind = FileKind::of_mode(mode.into())?;
    let version = bytes.get(4).copied().unwrap_or(0);
    let is_device = matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice);
    let device = be32(bytes, if version == 3 { 176 } else { 100 });
    let flags2 = if version == 3 { be64(bytes, 120) } else { 0 };
    let is_wide = flags2 & FLAG2_WIDE_TIMES != 0;
    let time = |offset: usize| match is_wide {
        true => {
            let time = be64(bytes, offset);
            let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
            (WIDE_TIMES_START.saturating_add_unsigned(seconds), rest as u32)
        }
        false => (i64::from(be32(bytes, offset).cast_signed()), be32(bytes, offset + 4)),
    };
    let flags = u64::from(be16(bytes, 90)) | flags2 << FLAGS2;
    Some(Metadata {
        mode: mode & 0xfff,
        owner: (be32(bytes, 8), be32(bytes, 12)),
        size: be64(bytes, 56),
        allocated: be64(bytes, 64).saturating_mul(block_size),
        mtime: time(40),
        atime: time(32),
        ctime: time(48),
        links: if version == 1 { be16(bytes, 6).into() } else { be32(bytes, 16) },
        device: if is_device { (device >> 18, device & 0x3_ffff) } else { (0, 0) },
        flags: lsattr_flags(flags, &FLAGS_KNOWN) | (flags & FLAGS_OWN) << 32,
        project: if version == 1 { 0 } else { u32::from(be16(bytes, 20)) | u32::from(be16(bytes, 22)) << 16 },
        ..Metadata::new(kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Immutable, preallocated, without defragmentation; in the second word direct access and wide times.
    #[test]
    fn flags_and_project_are_those_that_users_see() {
        let mut bytes = vec![0; 176];
        bytes[2] = 0x81;
        bytes[20..24].copy_from_slice(&[0, 5, 0, 1]);
        bytes[90..92].copy_from_slice(&0x200a_u16.to_be_bytes());
        bytes[120..128].copy_from_slice(&9_u64.to_be_bytes());
        for (version, flags, project) in [
            (1, 0x10 | 0x2000 << 32, 0),
            (2, 0x10 | 0x2000 << 32, 0x1_0005),
            (3, 0x200_0010 | 0x2000 << 32, 0x1_0005),
        ] {
            bytes[4] = version;
            let metadata = metadata(&bytes, 4096).unwrap();
            assert_eq!((metadata.flags, metadata.project), (flags, project), "version {version}");
        }
    }
}
