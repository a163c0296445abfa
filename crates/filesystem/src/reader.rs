//! What a reader of a filesystem is, and the one place that decides what is kept of it (design: proof).
//!
//! A reader says what the filesystem is ([`Identity`]), and either which bytes of it can still be read ([`Map`]) or why
//! that cannot be said. [`read`] turns this into [`Contents`]:
//!
//! | the reader's answer | what is kept |
//! | --- | --- |
//! | a map | the map, and everything after the end of the filesystem; volatile contents only on request |
//! | [`ErrorKind::Corrupt`]: inconsistent | all of it, with a note that says why |
//! | [`unsupported`]: something that the reader does not know | the same |
//! | [`ErrorKind::Refused`]: consistent only after recovery | nothing: an error that says what to do; all of it if forced |
//! | other errors | nothing: the disk cannot be read |
//!
//! No reader drops a byte in any other way, and no reader decides anything else.

use std::fmt;

use platter_image::chunking::FileRun;
use platter_image::{DiskRead, Error, ErrorKind, Extent, Extents, IoContext, Result};

use crate::Contents;

/// A longer rest after the end of a filesystem is noted, in bytes.
const TAIL_NOTED: u64 = 1 << 20;

/// Options for what is kept beyond the necessary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExamineOptions {
    /// Keep all of a filesystem that needs recovery, instead of refusing it.
    pub force: bool,
    /// Keep contents that mean nothing to the next boot, such as page files.
    pub all: bool,
}

/// A filesystem's identity, from its own superblock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its name as in `blkid`, such as `ext4`.
    pub filesystem: String,
    /// Its label, if it has one.
    pub label: Option<String>,
    /// Its UUID, if it has one.
    pub uuid: Option<String>,
    /// Its block size in bytes.
    pub block_size: u32,
    /// Its length in bytes, at most that of its place.
    pub length: u64,
}

/// The proven extents of a filesystem. All offsets are those of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// What can still be read, inside the filesystem and in whole sectors.
    pub allocated: Extents,
    /// The part of `allocated` that is stored as zeros without being read.
    pub zeroed: Extents,
    /// The part of `allocated` whose contents mean nothing to the next boot, such as page files: stored as zeros, too,
    /// unless all is to be kept.
    pub volatile: Extents,
    /// Where files lie: ascending, without overlap, inside `allocated`.
    pub files: Vec<FileRun>,
    /// Peculiarities, in sentences.
    pub notes: Vec<String>,
}

/// A reader of one kind of filesystem. It trusts no number, and its time and memory are bounded by the length of the
/// filesystem and by limits with names.
pub trait Reader<'d>: Sized {
    /// The filesystem's name as long as its superblock is not understood.
    const NAME: &'static str;

    /// Reads the superblock at the start of `extent`.
    ///
    /// # Errors
    /// `Corrupt` if there is no filesystem, or if it does not fit into `extent`; [`unsupported`] if the reader does not know it;
    /// errors of reading the disk.
    fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self>;

    /// What the superblock says.
    fn identity(&self) -> Identity;

    /// Which bytes can still be read, and where files lie.
    ///
    /// # Errors
    /// `Refused` if it needs recovery; `Corrupt` if anything contradicts anything else; [`unsupported`] if anything is not known
    /// to the reader; errors of reading the disk.
    fn map(&self) -> Result<Map>;
}

/// The cause of an error: the filesystem states more bytes than its place has.
#[derive(Debug)]
struct CutOff;

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the end of the filesystem is missing")
    }
}

impl std::error::Error for CutOff {}

/// The cause of a refusal: what the user can do about it, as a sentence without its point.
#[derive(Debug)]
struct Remedy(&'static str);

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Remedy {}

/// The error for a filesystem that needs recovery, for that reason.
pub(crate) fn needs_recovery(reason: impl Into<String>, remedy: &'static str) -> Error {
    Error::refused(reason).with_source(Remedy(remedy))
}

/// The cause of a refusal: the reader does not know something of the filesystem. This says nothing about damage.
#[derive(Debug)]
struct Unsupported;

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it may be intact, but this version of Platter cannot read it")
    }
}

impl std::error::Error for Unsupported {}

/// The error for a filesystem with something that its reader does not know: its files are refused, and all of it is kept.
pub(crate) fn unsupported(reason: impl Into<String>) -> Error {
    Error::refused(reason).with_source(Unsupported)
}

/// Whether all of a filesystem is to be kept because of that error.
fn is_distrusted(error: &Error) -> bool {
    let mut causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    error.kind() == ErrorKind::Corrupt || causes.any(<dyn std::error::Error>::is::<Unsupported>)
}

/// Checks that a filesystem of that length fits into `extent`.
///
/// # Errors
/// `Corrupt`.
pub(crate) fn check_fits(length: u64, extent: Extent) -> Result<()> {
    match length > extent.length {
        true => Err(Error::corrupt(format!(
            "it claims to have {length} bytes, but its place has {}",
            extent.length
        ))
        .with_source(CutOff)),
        false => Ok(()),
    }
}

/// Reads the boot sector at the start of `extent`.
///
/// # Errors
/// `Corrupt` if the extent is shorter; `Io`.
pub(crate) fn read_boot_sector<const LENGTH: usize>(
    disk: &dyn DiskRead,
    extent: Extent,
) -> Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    if extent.length < bytes.len() as u64 {
        return Err(Error::corrupt("there is no boot sector"));
    }
    disk.read_exact_at(&mut bytes, extent.offset)
        .context(|| format!("reading the boot sector at offset {}", extent.offset))?;
    Ok(bytes)
}

/// Examines the filesystem at the start of `extent`.
///
/// # Errors
/// `Refused` if it needs recovery, unless it is forced (then all of it is kept); errors of reading the disk.
pub(crate) fn read<'d, R: Reader<'d>>(
    disk: &'d dyn DiskRead,
    extent: Extent,
    options: ExamineOptions,
) -> Result<Contents> {
    let reader = match R::open(disk, extent) {
        Ok(reader) => reader,
        Err(error) if is_distrusted(&error) => return Ok(distrusted(R::NAME, extent, &error)),
        Err(error) => return Err(error),
    };
    let identity = reader.identity();
    let filesystem = &identity.filesystem;
    let contents = match reader.map() {
        Ok(map) => {
            let end = extent.offset.saturating_add(identity.length);
            proved(map, Extent::between(end, extent.end()), options)
        }
        Err(error) if is_distrusted(&error) => distrusted(filesystem, extent, &error),
        Err(error) if error.kind() == ErrorKind::Refused && options.force => {
            distrusted(filesystem, extent, &error)
        }
        Err(error) if error.kind() == ErrorKind::Refused => {
            return Err(refusal(&identity, extent, &error));
        }
        Err(error) => return Err(error),
    };
    Ok(Contents {
        filesystem: identity.filesystem,
        label: identity.label,
        uuid: identity.uuid,
        block_size: identity.block_size,
        ..contents
    })
}

fn proved(map: Map, tail: Extent, options: ExamineOptions) -> Contents {
    let Map { mut allocated, mut zeroed, volatile, files, mut notes } = map;
    if !options.all && !volatile.is_empty() {
        notes.push(format!(
            "the contents of page files and hibernation files, {} bytes, are stored as zeros; --all stores them",
            volatile.total()
        ));
        zeroed = zeroed.iter().chain(&volatile).copied().collect();
    }
    if tail.length > TAIL_NOTED {
        notes.push(format!("{} bytes after its end are stored, too", tail.length));
    }
    match allocated.as_slice().last() {
        // There may be millions of them: do not copy them.
        Some(last) if last.offset <= tail.offset => allocated.push(tail),
        _ => allocated = allocated.iter().copied().chain([tail]).collect(),
    }
    Contents { allocated, zeroed, files, notes, ..Contents::default() }
}

/// All of a filesystem, or of a container of others, whose maps cannot be trusted.
pub(crate) fn distrusted(filesystem: &str, extent: Extent, reason: &Error) -> Contents {
    let cause = std::error::Error::source(reason);
    let is_cut_off = matches!(cause, Some(cause) if cause.is::<CutOff>());
    let contents = Contents { is_cut_off, ..Contents::whole(filesystem, extent) };
    contents.with_note(format!("stored in full, including unused blocks: {reason}"))
}

fn refusal(identity: &Identity, extent: Extent, reason: &Error) -> Error {
    let label = identity.label.as_deref().unwrap_or("no label");
    let cause = std::error::Error::source(reason).and_then(|cause| cause.downcast_ref());
    let remedy = cause.map(|Remedy(remedy)| format!(". {remedy}")).unwrap_or_default();
    Error::refused(format!(
        "the allocation maps of the {} filesystem at offset {} ({label}) cannot be trusted: {reason}{remedy}; \
         `platter capture --force` stores all of it, including unused blocks",
        identity.filesystem, extent.offset
    ))
}
