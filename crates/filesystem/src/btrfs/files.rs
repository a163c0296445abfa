//! The files of a btrfs filesystem: those of the top-level subvolume, in which all others appear as directories.
//!
//! The number of a file is that of its inode in the lower 40 bits, and that of its subvolume in the upper ones.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use platter_image::{DiskRead, Error, Extent, IoContext, Result};

use super::chunks::Chunks;
use super::claims::{EXTENT_DATA, EXTENT_DATA_LENGTH, INLINE, ROOT_ITEM, UNWRITTEN, WRITTEN, root_of_item};
use super::node::Key;
use super::reader::unapplied_log;
use super::search::Search;
use super::superblock::Root;
use super::unpack::{LENGTH_MAX, Method};
use super::volume::Volume;
use crate::fields::{le16, le32, le64};
use crate::files::{
    Attribute, AttributeList, FileContents, FileInode, FileKind, FileTree, Listing, Metadata, Piece, Run,
    Visit, lsattr, lsattr_flags,
};
use crate::reader::unsupported;

const INODE_ITEM: u8 = 1;
const XATTR_ITEM: u8 = 24;
const DIR_INDEX: u8 = 96;
const ROOT_REF: u8 = 156;

/// The tree of the top-level subvolume, and the inode of the root directory of each.
const TOP: u64 = 5;
const ROOT_INODE: u64 = 256;
/// The part of an inode's item up to its times.
const INODE_LENGTH: usize = 160;
/// The part of a directory's or attribute's item before the name.
const NAME: usize = 30;

/// Bits of a file's number for its inode.
const INODE_BITS: u32 = 40;
/// Marks the number of an empty directory. In a snapshot, the kernel shows one where the original has a subvolume; the other bits are
/// the subvolume's tree.
const EMPTY: u64 = 1 << 39;
/// The part of a subvolume's reference before the name.
const ROOT_REF_NAME: usize = 18;
/// More subvolumes are not entered.
const SUBVOLUMES_MAX: usize = 1 << 16;
/// All nodes that are read may be at most this many times those that fit into the filesystem.
const TIMES_MAX: u64 = 16;
const NODES_MIN: u64 = 1 << 20;
/// The most bytes of a symbolic link.
const LINK_LENGTH_MAX: u64 = 4096;
/// Bytes read at once.
const STEP: u64 = 1 << 20;
/// A file with more extents is not read.
const EXTENTS_MAX: usize = 1 << 21;

/// Flags that `lsattr` shows.
const FLAGS_KNOWN: [(u64, u32); 9] = [
    (0x2, lsattr::NO_COPY_ON_WRITE),
    (0x8, lsattr::NO_COMPRESSION),
    (0x20, lsattr::SYNC),
    (0x40, lsattr::IMMUTABLE),
    (0x80, lsattr::APPEND),
    (0x100, lsattr::NO_DUMP),
    (0x200, lsattr::NO_ACCESS_TIME),
    (0x400, lsattr::SYNC_DIRECTORY),
    (0x800, lsattr::COMPRESS),
];
/// Another flag that `lsattr` shows, but not where ext has it: bytes past the end of a file do not matter here.
const FLAG_VERITY: u64 = 1 << 32;
/// The root directory of a subvolume that cannot be written. No inode has this flag, but the subvolume.
const FLAG_READ_ONLY: u64 = 1 << 33;
/// The same in the item of the subvolume, and the offset of its flags there.
const SUBVOLUME_READ_ONLY: u64 = 1;
const SUBVOLUME_FLAGS: usize = 208;
/// In the inode at the start of that item: the flags are not what memory contained, as in items of old kernels.
const INODE_FLAGS: usize = 64;
const HAS_SUBVOLUME_FLAGS: u64 = 1 << 31;

/// This directory in the root tree has one name, for the subvolume that is mounted by default.
const DEFAULT_DIRECTORY: u64 = 6;
const DIR_ITEM: u8 = 84;

/// The files of one filesystem.
pub(crate) struct Files<'d> {
    disk: &'d dyn DiskRead,
    volume: Volume<'d>,
    chunks: Chunks,
    search: Search,
    /// The subvolumes that were found, by number.
    subvolumes: HashMap<u64, Subvolume>,
    /// The number and the extents of the file that was read last.
    last: Option<(u64, Arc<Vec<FileExtent>>)>,
}

#[derive(Clone, Copy)]
struct Subvolume {
    root: Root,
    is_read_only: bool,
}

/// An extent of a file.
struct FileExtent {
    /// Offset in the file, and length there.
    offset: u64,
    length: u64,
    bytes: Stored,
}

enum Stored {
    /// In the item: encoded bytes, their method, and the length when decoded.
    Inline(Vec<u8>, u8, u64),
    /// At an address, as they are.
    Plain(u64),
    /// At an address: encoded length, method, decoded length, and the part of it that the file has.
    Packed { address: u64, stored: u64, method: u8, decoded: u64, skip: u64 },
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
        if superblock.has_log {
            return Err(unapplied_log());
        }
        let chunks = volume.chunks()?;
        let (search, subvolumes) = (Search::new(0), HashMap::new());
        let mut files = Self { disk, volume, chunks, search, subvolumes, last: None };
        files.renew();
        files.subvolume(TOP)?;
        Ok(files)
    }

    fn subvolume(&mut self, tree: u64) -> Result<Subvolume> {
        if let Some(subvolume) = self.subvolumes.get(&tree) {
            return Ok(*subvolume);
        }
        let range = (
            Key { object: tree, kind: ROOT_ITEM, offset: 0 },
            Key { object: tree, kind: ROOT_ITEM, offset: u64::MAX },
        );
        let mut found = None;
        let root = self.volume.superblock.root_tree;
        self.search.range((&self.volume, &self.chunks), root, range, &mut |key, item| {
            let is_read_only = le64(item, SUBVOLUME_FLAGS) & SUBVOLUME_READ_ONLY != 0
                && le64(item, INODE_FLAGS) & HAS_SUBVOLUME_FLAGS != 0;
            found = root_of_item(key, item)?.map(|root| Subvolume { root, is_read_only });
            Ok(found.is_none())
        })?;
        let found = found.ok_or_else(|| Error::corrupt(format!("subvolume {tree} does not exist")))?;
        if self.subvolumes.len() >= SUBVOLUMES_MAX {
            return Err(Error::refused(format!("it has more than {SUBVOLUMES_MAX} subvolumes")));
        }
        self.subvolumes.insert(tree, found);
        Ok(found)
    }

    /// Whether a directory is the one that contains a subvolume under this name. A snapshot has copies of the names of subvolumes,
    /// but does not contain these.
    fn contains(&mut self, directory: u64, tree: u64, name: &[u8]) -> Result<bool> {
        let (own, object) = (directory >> INODE_BITS, directory & ((1 << INODE_BITS) - 1));
        let key = Key { object: own, kind: ROOT_REF, offset: tree };
        let root = self.volume.superblock.root_tree;
        let mut is_contained = false;
        self.search.range((&self.volume, &self.chunks), root, (key, key), &mut |_, item| {
            let length = item.get(16..ROOT_REF_NAME).map_or(0, |bytes| usize::from(le16(bytes, 0)));
            let found = item.get(ROOT_REF_NAME..ROOT_REF_NAME + length);
            is_contained = found == Some(name) && le64(item, 0) == object;
            Ok(false)
        })?;
        Ok(is_contained)
    }

    /// Passes all items of one kind that a file has.
    fn items(
        &mut self,
        number: u64,
        kind: u8,
        visit: &mut dyn FnMut(Key, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let (tree, object) = (number >> INODE_BITS, number & ((1 << INODE_BITS) - 1));
        let root = self.subvolume(tree)?.root;
        let range = (Key { object, kind, offset: 0 }, Key { object, kind, offset: u64::MAX });
        self.search.range((&self.volume, &self.chunks), root, range, visit)
    }

    fn extents(&mut self, file: &FileInode) -> Result<Arc<Vec<FileExtent>>> {
        if let Some((_, extents)) = self.last.as_ref().filter(|(number, _)| *number == file.number) {
            return Ok(extents.clone());
        }
        let mut found: Vec<FileExtent> = Vec::new();
        self.items(file.number, EXTENT_DATA, &mut |key, item| {
            let extent = extent(key.offset, item)?;
            let is_after = found
                .last()
                .is_none_or(|last| last.offset.checked_add(last.length).is_some_and(|end| end <= key.offset));
            if !is_after || found.len() >= EXTENTS_MAX {
                return Err(Error::corrupt(format!(
                    "its extent at offset {} overlaps another, or it has too many",
                    key.offset
                )));
            }
            found.extend(extent);
            Ok(true)
        })?;
        let extents = Arc::new(found);
        self.last = Some((file.number, extents.clone()));
        Ok(extents)
    }

    /// Where the first copy of the bytes at an address is on the disk.
    fn place(&self, address: u64, length: u64) -> Result<Extent> {
        let chunk = self.chunks.find(address, length);
        let chunk = chunk.ok_or_else(|| {
            Error::corrupt(format!("its {length} bytes at address {address} are in no chunk"))
        })?;
        let place = Chunks::place(chunk, 0, address, length);
        Ok(Extent::new(self.volume.extent.offset + place.offset, length))
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<()> {
        let length = buffer.len() as u64;
        let at = self.place(address, length)?.offset;
        self.disk
            .read_exact_at(buffer, at)
            .context(|| format!("reading {length} bytes of a file at offset {at}"))
    }

    /// Passes the part of an extent that is in `range`, or all of it if it is encoded.
    fn visit_extent(
        &self,
        extent: &FileExtent,
        (range, size): (&Range<u64>, u64),
        visit: Visit<'_>,
    ) -> Result<()> {
        let wanted = extent.length.min(size.saturating_sub(extent.offset));
        let sector = self.volume.superblock.sector_size as usize;
        match &extent.bytes {
            Stored::Plain(address) => {
                let mut buffer = Vec::new();
                let from = range.start.saturating_sub(extent.offset).min(wanted);
                let wanted = wanted.min(range.end.saturating_sub(extent.offset));
                for at in (from..wanted).step_by(STEP as usize) {
                    buffer.resize(STEP.min(wanted - at) as usize, 0);
                    self.read(address.saturating_add(at), &mut buffer)?;
                    visit(extent.offset + at, Piece::Bytes(&buffer))?;
                }
                Ok(())
            }
            Stored::Inline(bytes, 0, _) => {
                let used = bytes.len().min(wanted as usize);
                visit(extent.offset, Piece::Bytes(&bytes[..used]))
            }
            Stored::Inline(bytes, method, decoded) => {
                let bytes = Method::from_number(*method)?.decode(bytes, *decoded as usize, sector)?;
                visit(extent.offset, Piece::Bytes(&bytes[..bytes.len().min(wanted as usize)]))
            }
            Stored::Packed { address, stored, method, decoded, skip } => {
                let mut bytes = vec![0; *stored as usize];
                self.read(*address, &mut bytes)?;
                let bytes = Method::from_number(*method)?.decode(&bytes, *decoded as usize, sector)?;
                let part = bytes.get(*skip as usize..).and_then(|rest| rest.get(..wanted as usize));
                let part = part.ok_or_else(|| Error::corrupt("it uses more of an extent than there is"))?;
                visit(extent.offset, Piece::Bytes(part))
            }
        }
    }
}

/// Decodes the item of an extent; `None` for a hole.
fn extent(offset: u64, item: &[u8]) -> Result<Option<FileExtent>> {
    let wrong = |what: &str| Error::corrupt(format!("its extent at offset {offset} {what}"));
    let (decoded, method) = (le64(item, 8), item.get(16).copied().unwrap_or(0));
    if item.get(17..20) != Some(&[0; 3]) {
        return Err(wrong("is cut off, or encoded in an unknown way"));
    }
    let kind = item.get(20).copied().unwrap_or(u8::MAX);
    if decoded > LENGTH_MAX && (method != 0 || kind == INLINE) {
        return Err(wrong(&format!("decodes to {decoded} bytes")));
    }
    if kind == INLINE {
        let bytes = item.get(21..).unwrap_or_default().to_vec();
        return Ok(Some(FileExtent {
            offset,
            length: decoded,
            bytes: Stored::Inline(bytes, method, decoded),
        }));
    }
    if !matches!(kind, WRITTEN | UNWRITTEN) || item.len() < EXTENT_DATA_LENGTH {
        return Err(wrong(&format!("is cut off or has the unknown type {kind}")));
    }
    let [address, stored, skip, length] = [21, 29, 37, 45].map(|at| le64(item, at));
    if address == 0 || kind == UNWRITTEN {
        return Ok(None);
    }
    let whole = if method == 0 { stored } else { decoded };
    if skip.checked_add(length).is_none_or(|end| end > whole) || method != 0 && stored > LENGTH_MAX {
        return Err(wrong(&format!("uses {length} bytes from {skip} on of {whole}")));
    }
    let bytes = match method {
        0 => Stored::Plain(address.saturating_add(skip)),
        method => Stored::Packed { address, stored, method, decoded, skip },
    };
    Ok(Some(FileExtent { offset, length, bytes }))
}

impl FileTree for Files<'_> {
    fn filesystem(&self) -> &'static str {
        "btrfs"
    }

    fn block_size(&self) -> u32 {
        self.volume.superblock.sector_size
    }

    fn names(&self) -> (Option<&str>, Option<&str>) {
        (self.volume.superblock.label.as_deref(), self.volume.superblock.uuid.as_deref())
    }

    fn root(&self) -> u64 {
        TOP << INODE_BITS | ROOT_INODE
    }

    fn default_subvolume(&mut self) -> Result<Option<u64>> {
        let range = (
            Key { object: DEFAULT_DIRECTORY, kind: DIR_ITEM, offset: 0 },
            Key { object: DEFAULT_DIRECTORY, kind: DIR_ITEM, offset: u64::MAX },
        );
        let (root, mut found) = (self.volume.superblock.root_tree, TOP);
        self.search.range((&self.volume, &self.chunks), root, range, &mut |_, item| {
            found = Key::parse(item).object;
            Ok(false)
        })?;
        Ok(Some(found))
    }

    fn renew(&mut self) {
        let superblock = &self.volume.superblock;
        let nodes = superblock.length / u64::from(superblock.node_size);
        self.search.renew(nodes.saturating_mul(TIMES_MAX).max(NODES_MIN));
    }

    fn inode(&mut self, number: u64) -> Result<FileInode> {
        if number & EMPTY != 0 {
            let metadata = Metadata { mode: 0o755, ..Metadata::new(FileKind::Directory) };
            return Ok(FileInode { number, metadata, is_encrypted: false, bytes: Vec::new() });
        }
        let mut bytes = Vec::new();
        self.items(number, INODE_ITEM, &mut |_, item| {
            bytes = item.to_vec();
            Ok(false)
        })?;
        let sector = self.volume.superblock.sector_size.into();
        let metadata = metadata(&bytes, sector).filter(|_| bytes.len() >= INODE_LENGTH);
        let object = number & ((1 << INODE_BITS) - 1);
        let mut metadata = metadata.ok_or_else(|| {
            Error::corrupt(format!("inode {object} has a name but does not exist, or is invalid"))
        })?;
        if object == ROOT_INODE && self.subvolume(number >> INODE_BITS)?.is_read_only {
            metadata.flags |= FLAG_READ_ONLY;
        }
        Ok(FileInode { number, metadata, is_encrypted: false, bytes })
    }

    fn list(&mut self, directory: &FileInode) -> Result<Listing> {
        let mut listing = Listing::without_dots();
        let own = directory.number >> INODE_BITS;
        let mut subvolumes: Vec<(Vec<u8>, u64)> = Vec::new();
        self.items(directory.number, DIR_INDEX, &mut |_, item| {
            let length = usize::from(le16(item, 27));
            let Some(name) = item.get(NAME..NAME + length) else {
                listing.fault("a name of it is cut off".to_owned());
                return Ok(true);
            };
            let target = Key::parse(item);
            match target.kind {
                INODE_ITEM if target.object < EMPTY => {
                    listing.add(name, own << INODE_BITS | target.object)?;
                }
                ROOT_ITEM if subvolumes.len() < SUBVOLUMES_MAX && target.object >> (64 - INODE_BITS) == 0 => {
                    subvolumes.push((name.to_vec(), target.object));
                }
                _ => {
                    listing.fault(format!("{:?} refers to something unknown", String::from_utf8_lossy(name)));
                }
            }
            Ok(true)
        })?;
        for (name, tree) in subvolumes {
            if !self.contains(directory.number, tree, &name)? {
                listing.add(&name, own << INODE_BITS | EMPTY | tree)?;
                continue;
            }
            match self.subvolume(tree) {
                Ok(_) => listing.add(&name, tree << INODE_BITS | ROOT_INODE)?,
                Err(error) => listing.fault(format!("{:?}: {error}", String::from_utf8_lossy(&name))),
            }
        }
        Ok(listing.sorted())
    }

    fn disk(&self) -> &dyn DiskRead {
        self.disk
    }

    fn contents(&mut self, file: &FileInode) -> Result<FileContents> {
        let extents = self.extents(file)?;
        let mut runs = Vec::new();
        for extent in extents.iter() {
            match &extent.bytes {
                // Inline contents are the only ones of their file, or the first before it grew.
                Stored::Inline(bytes, 0, _) if extents.len() == 1 => {
                    return Ok(FileContents::Inline(bytes.clone()));
                }
                Stored::Plain(address) => {
                    let place = self.place(*address, extent.length)?;
                    runs.push(Run { file_offset: extent.offset, place });
                }
                _ => return Ok(FileContents::Packed),
            }
        }
        Ok(FileContents::Runs(runs))
    }

    fn visit_places(&mut self, file: &FileInode, visit: &mut dyn FnMut(Extent)) -> Result<bool> {
        for extent in self.extents(file)?.iter() {
            match extent.bytes {
                Stored::Inline(..) => {}
                Stored::Plain(address) => visit(self.place(address, extent.length)?),
                Stored::Packed { address, stored, .. } => visit(self.place(address, stored)?),
            }
        }
        // Tree blocks are missing.
        Ok(false)
    }

    fn visit_packed(&mut self, file: &FileInode, range: Range<u64>, visit: Visit<'_>) -> Result<()> {
        let size = file.metadata.size;
        let end = range.end.min(size);
        let mut position = range.start;
        let extents = self.extents(file)?;
        let before = |extent: &FileExtent| extent.offset.saturating_add(extent.length) <= range.start;
        let first = extents.partition_point(before);
        for extent in extents[first..].iter().take_while(|extent| extent.offset < end) {
            if extent.offset > position {
                visit(position, Piece::Zeros(extent.offset - position))?;
                position = extent.offset;
            }
            self.visit_extent(extent, (&range, size), &mut |at, piece| {
                let length = match piece {
                    Piece::Zeros(length) => length,
                    Piece::Bytes(bytes) => bytes.len() as u64,
                };
                position = at + length;
                if length > 0 { visit(at, piece) } else { Ok(()) }
            })?;
        }
        if position < end { visit(position, Piece::Zeros(end - position)) } else { Ok(()) }
    }

    fn target(&mut self, link: &FileInode) -> Result<Vec<u8>> {
        let size = link.metadata.size;
        if size > LINK_LENGTH_MAX {
            return Err(Error::corrupt(format!("a symbolic link of {size} bytes is too long")));
        }
        let mut target = Vec::new();
        self.visit_contents(link, &mut |_, piece| {
            match piece {
                Piece::Bytes(bytes) => target.extend_from_slice(bytes),
                Piece::Zeros(length) => target.resize(target.len() + length as usize, 0),
            }
            Ok(())
        })?;
        Ok(target)
    }

    fn attributes(&mut self, file: &FileInode) -> Result<Vec<Attribute>> {
        let mut found = AttributeList::default();
        self.items(file.number, XATTR_ITEM, &mut |_, mut item| {
            // Attributes with the same hash share an item.
            while !item.is_empty() {
                let (value, name) = (usize::from(le16(item, 25)), usize::from(le16(item, 27)));
                let all = item.get(NAME..NAME + name).zip(item.get(NAME + name..NAME + name + value));
                let (text, contents) = all.ok_or_else(|| Error::corrupt("an attribute is cut off"))?;
                found.add(Attribute { name: text.to_vec(), value: contents.to_vec() })?;
                item = &item[NAME + name + value..];
            }
            Ok(true)
        })?;
        Ok(found.sorted())
    }
}

fn metadata(item: &[u8], sector: u64) -> Option<Metadata> {
    let mode = le32(item, 52);
    let kind = FileKind::of_mode(mode)?;
    let is_device = matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice);
    let (device, flags) = (le64(item, 56), le64(item, INODE_FLAGS));
    let time = |offset: usize| (le64(item, offset).cast_signed(), le32(item, offset + 8));
    Some(Metadata {
        mode: (mode & 0xfff) as u16,
        owner: (le32(item, 44), le32(item, 48)),
        size: if kind == FileKind::Directory { 0 } else { le64(item, 16) },
        allocated: le64(item, 24).checked_next_multiple_of(sector).unwrap_or(u64::MAX),
        mtime: time(136),
        atime: time(112),
        ctime: time(124),
        links: le32(item, 40),
        device: if is_device { ((device >> 20) as u32, (device & 0xf_ffff) as u32) } else { (0, 0) },
        flags: lsattr_flags(flags, &FLAGS_KNOWN) | flags & FLAG_VERITY,
        ..Metadata::new(kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without copies on write, without checksums, immutable, preallocated, with fs-verity. The last is not where ext has it.
    #[test]
    fn flags_are_those_that_users_see() {
        let mut item = vec![0; INODE_LENGTH];
        item[53] = 0x81;
        item[64..72].copy_from_slice(&0x1_0000_0053_u64.to_le_bytes());
        let metadata = metadata(&item, 4096).unwrap();
        assert_eq!(metadata.flags, 0x1_0080_0010);
        let file = FileInode { number: 0, metadata, is_encrypted: false, bytes: item };
        assert!(!file.has_verity());
    }
}
