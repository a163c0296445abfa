//! Which devices may be installed to, and which may be captured: the guard before anything is written.
//!
//! The kernel's tables are read once ([`kernel`]), what they say of the device and of the store is put together
//! ([`evidence`]), what the target holds is looked at ([`contents`]), and the decision is a pure function of that
//! ([`decide`]). Nothing is opened for writing here, and nothing changes. A refusal names every reason at once, and
//! what would help. What holds data is shown, and overwritten only when somebody agrees ([`Consent`]).

mod consent;
mod contents;
mod decide;
mod evidence;
mod kernel;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use platter_image::{Error, IoContext, Result};

pub use consent::{CheckedTarget, Consent};
pub use contents::{PartContents, TargetContents};
pub use decide::{Reason, Refusal};

use crate::device::{Identity, NodeKind, block_geometry, has_data};

/// What an image needs of the disk that it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageGeometry {
    /// Bytes that have to fit.
    pub length: u64,
    /// The sector size that the image was made for, 512 or 4096; files take any.
    pub sector_size: u32,
}

/// What is asked of a target.
#[derive(Clone, Debug, Default)]
pub struct TargetCheck<'a> {
    /// The image. `None` as long as it is not known, before a cast is joined: everything else is checked then.
    pub image: Option<ImageGeometry>,
    /// Directories that must not be overwritten: the store's.
    pub forbidden: &'a [PathBuf],
    /// What the user insists on with `--force REASON`. `None` for a command without that option.
    pub force: Option<&'a [Reason]>,
}

/// Checks whether a path may be installed to. A regular file need not exist.
///
/// # Errors
/// `Refused` with every reason that was not forced; `Io` if the kernel's tables cannot be read.
pub fn check_target(path: &Path, check: &TargetCheck<'_>) -> Result<CheckedTarget> {
    let machine = kernel::Machine::read()?;
    let held = hold(path)?;
    let metadata = match &held {
        Some(file) => Some(file.metadata().context(|| format!("looking at {}", path.display()))?),
        // It may also be a directory or a pipe, which nobody opens.
        None => std::fs::metadata(path).ok(),
    };
    let mut evidence = evidence::of_target(path, metadata.as_ref(), check, &machine)?;
    let identity = Identity::of(metadata.as_ref());
    let contents = match (&held, &metadata) {
        (Some(file), Some(metadata)) => look(path, file, metadata, &machine)?,
        _ => None,
    };
    let is_file = matches!(identity, Identity::Regular { .. });
    evidence.no_disk = contents.as_ref().filter(|it| is_file && !it.is_disk()).map(|it| it.length);
    let refusals = decide::target(&evidence);
    let option = |reason: Reason| check.force.map(|_| format!("--force {}", reason.name()));
    refuse(path, "written to", &refusals, check.force.unwrap_or_default(), option)?;
    let is_used = refusals.iter().any(|refusal| refusal.reason.is_use());
    Ok(CheckedTarget { identity, is_exclusive: !is_used, contents, _held: held })
}

/// Opens what stands at a path, so that it stays the same; `None` if that is nothing, or nothing that could be a disk.
fn hold(path: &Path) -> Result<Option<File>> {
    // Told apart before opening: opening a pipe or a tape drive has consequences.
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(format!("looking at {}", path.display()), error)),
    };
    if NodeKind::of(&metadata, path).is_err() {
        return Ok(None);
    }
    File::open(path).map(Some).context(|| format!("opening {} to see what it holds", path.display()))
}

/// What would be overwritten: anything that a block device holds, and a file with data.
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

/// Checks whether a path may be captured: nobody may have it to write to. Tells whether it is in use all the same, so that
/// nobody can open it alone: mounted read-only, or in a way that the user forces.
///
/// # Errors
/// `Refused` with every reason that was not forced; `Io` if the kernel's tables cannot be read.
pub fn check_source(path: &Path, force: &[Reason]) -> Result<bool> {
    let machine = kernel::Machine::read()?;
    let evidence = evidence::of_source(path, &machine)?;
    // `capture`, the one command that reads a disk, takes no reason.
    refuse(path, "captured", &decide::source(&evidence), force, |_| Some("--force".to_owned()))?;
    Ok(evidence.is_busy)
}

/// Refuses for all reasons that are not forced. `option` is what the user adds to the command at hand to force one, if the
/// command has such an option.
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
            Some(option) => format!("{} (or insist: {option})", refusal.text),
            None => refusal.text.clone(),
        })
        .collect();
    if standing.is_empty() {
        return Ok(());
    }
    Err(Error::refused(format!("{} cannot be {action}: {}", path.display(), standing.join("; "))))
}
