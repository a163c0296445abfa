//! Which devices may be installed to, and which may be captured: the check before anything is written.
//!
//! It reads the kernel's tables once ([`kernel`]), gathers what they say about the device and the store
//! ([`evidence`]), and examines the target's contents ([`contents`]); the decision is a pure function of
//! these ([`decide`]). Nothing is opened for writing or changed here. A refusal states all reasons at once,
//! and what would help. Contents of a target are shown, and overwritten only with the user's consent
//! ([`Consent`]).

mod consent;
mod contents;
mod decide;
mod evidence;
mod kernel;
mod locks;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use platter_image::{Error, IoContext, Result};

pub use consent::{CheckedTarget, Consent};
pub use contents::{PartContents, TargetContents};
pub use decide::{Reason, Refusal};

use crate::device::{Identity, NodeKind, block_geometry, has_data};

/// Requirements of an image for its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageGeometry {
    /// Bytes that must fit.
    pub length: u64,
    /// The sector size for which the image was made, 512 or 4096; files accept any.
    pub sector_size: u32,
    /// It is one partition, without a partition table: smaller sectors are no obstacle to its file system.
    pub is_partition: bool,
}

/// Names the format of an image file with these first and last bytes, with an article; `None` if it is not known to be one.
pub type NameImage = fn(first: &[u8], last: &[u8]) -> Option<&'static str>;

/// The bytes at each end of a file by which an image is recognized.
pub const IMAGE_END_LENGTH: u64 = 512;

/// The conditions that a target must meet.
#[derive(Clone, Debug, Default)]
pub struct TargetCheck<'a> {
    /// The image. `None` while it is unknown, before a cast is joined: then everything else is checked.
    pub image: Option<ImageGeometry>,
    /// Directories that must not be overwritten: the store's.
    pub forbidden: &'a [PathBuf],
    /// The reasons that the user overrides with `--force REASON`. `None` for a command without that option.
    pub force: Option<&'a [Reason]>,
    /// Recognizes files that hold a disk in another form than byte by byte: they would lose their form.
    pub image_name: Option<NameImage>,
}

/// Checks whether a path may be installed to. A regular file need not exist.
///
/// # Errors
/// `Refused` with every reason that was not overridden; `Io` if the kernel's tables cannot be read.
pub fn check_target(path: &Path, check: &TargetCheck<'_>) -> Result<CheckedTarget> {
    let machine = kernel::Machine::read()?;
    let held = hold(path)?;
    let metadata = match &held {
        Some(file) => Some(file.metadata().context(|| format!("examining {}", path.display()))?),
        // It may also be a directory or a pipe, which is not opened.
        None => std::fs::metadata(path).ok(),
    };
    let mut evidence = evidence::of_target(path, held.as_ref(), metadata.as_ref(), check, &machine)?;
    let identity = Identity::of(metadata.as_ref());
    let contents = match (&held, &metadata) {
        (Some(file), Some(metadata)) => look(path, file, metadata, &machine)?,
        _ => None,
    };
    let is_file = matches!(identity, Identity::Regular { .. });
    // Files of the kernel have another length than they say.
    let is_readable = is_file && contents.is_some() && evidence.wrong_kind.is_none();
    if let (Some(file), Some(metadata), Some(name), true) = (&held, &metadata, check.image_name, is_readable)
    {
        let read = |offset: u64| {
            let mut bytes = vec![0; IMAGE_END_LENGTH.min(metadata.len()) as usize];
            let read = file.read_exact_at(&mut bytes, offset).map(|()| bytes);
            read.context(|| format!("examining {}", path.display()))
        };
        let (first, last) = (read(0)?, read(metadata.len().saturating_sub(IMAGE_END_LENGTH))?);
        evidence.image = name(&first, &last);
    }
    evidence.no_disk = contents
        .as_ref()
        .filter(|it| is_file && evidence.image.is_none() && !it.is_disk())
        .map(|it| it.length);
    let refusals = decide::target(&evidence);
    let option = |reason: Reason| check.force.map(|_| format!("--force {}", reason.name()));
    refuse(path, "written to", &refusals, check.force.unwrap_or_default(), option)?;
    let is_used = refusals.iter().any(|refusal| refusal.reason.is_use());
    Ok(CheckedTarget { identity, is_exclusive: !is_used, contents, _held: held })
}

/// Opens the device or file at a path, so that it stays the same; `None` if there is nothing that can be a
/// disk.
fn hold(path: &Path) -> Result<Option<File>> {
    // Check the kind before opening: opening a pipe or a tape drive has side effects.
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(format!("examining {}", path.display()), error)),
    };
    if NodeKind::of(&metadata, path).is_err() {
        return Ok(None);
    }
    File::open(path).map(Some).context(|| format!("opening {} to examine its contents", path.display()))
}

/// Examines the contents that would be overwritten: those of a block device, or of a file with data.
fn look(
    path: &Path,
    file: &File,
    metadata: &std::fs::Metadata,
    machine: &kernel::Machine,
) -> Result<Option<TargetContents>> {
    match Identity::of(Some(metadata)) {
        Identity::Block { number } => {
            let (length, sector_size) = block_geometry(file, path)?;
            let contents = TargetContents::look(path, file, length, Some(sector_size));
            Ok(Some(contents.with_hardware(machine, kernel::DeviceNumber::from_stat(number))))
        }
        Identity::Regular { .. } if has_data(file, metadata.len()) => {
            Ok(Some(TargetContents::look(path, file, metadata.len(), None)))
        }
        _ => Ok(None),
    }
}

/// Checks whether a path may be captured: no one else may be able to write to it. Returns whether it is in
/// use anyway, so that it cannot be opened exclusively: mounted read-only, or in a way that the user
/// overrides.
///
/// # Errors
/// `Refused` with every reason that was not overridden; `Io` if the kernel's tables cannot be read.
pub fn check_source(path: &Path, force: &[Reason]) -> Result<bool> {
    let machine = kernel::Machine::read()?;
    let evidence = evidence::of_source(path, &machine)?;
    refuse_source(path, &evidence, force)?;
    Ok(evidence.is_busy)
}

/// Like [`check_source`], without overriding, for a source that is being captured: if it is open exclusively, it is so by
/// this capture.
///
/// # Errors
/// Those of [`check_source`].
pub fn check_source_again(path: &Path) -> Result<()> {
    let machine = kernel::Machine::read()?;
    let evidence = decide::Evidence { is_busy: false, ..evidence::of_source(path, &machine)? };
    refuse_source(path, &evidence, &[])
}

fn refuse_source(path: &Path, evidence: &decide::Evidence, force: &[Reason]) -> Result<()> {
    // `capture` is the only command that reads a disk; its --force takes no reason.
    refuse(path, "captured", &decide::source(evidence), force, |_| Some("--force".to_owned()))
}

/// Refuses for all reasons that are not overridden. `option` is the command's option that overrides a reason,
/// if it has one.
fn refuse(
    path: &Path,
    action: &str,
    refusals: &[Refusal],
    force: &[Reason],
    option: impl Fn(Reason) -> Option<String>,
) -> Result<()> {
    let standing: Vec<String> = refusals
        .iter()
        .filter(|refusal| !(refusal.reason.can_be_forced() && force.contains(&refusal.reason)))
        .map(|refusal| match Some(refusal.reason).filter(|it| it.can_be_forced()).and_then(&option) {
            Some(option) => format!("{} (override with {option})", refusal.text),
            None => refusal.text.clone(),
        })
        .collect();
    if standing.is_empty() {
        return Ok(());
    }
    Err(Error::refused(format!("{} cannot be {action}: {}", path.display(), standing.join("; "))))
}
