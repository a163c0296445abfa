//! Which devices may be installed to, and which may be captured: the guard before anything is opened.
//!
//! The kernel's tables are read once ([`kernel`]), what they say of the device and of the store is put together
//! ([`evidence`]), and the decision is a pure function of that ([`decide`]). Nothing is opened for writing here, and
//! nothing changes. A refusal names every reason at once, and what would help.

mod decide;
mod evidence;
mod kernel;

use std::path::{Path, PathBuf};

use platter_image::{Error, Result};

pub use decide::{Reason, Refusal};

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
    /// What the user insists on, by name.
    pub force: &'a [Reason],
}

/// Checks whether a path may be installed to. A regular file need not exist.
///
/// # Errors
/// `Refused` with every reason that was not forced; `Io` if the kernel's tables cannot be read.
pub fn check_target(path: &Path, check: &TargetCheck<'_>) -> Result<()> {
    let machine = kernel::Machine::read()?;
    let evidence = evidence::of_target(path, check, &machine)?;
    refuse(path, "installed to", &decide::target(&evidence), check.force)
}

/// Checks whether a path may be captured: nobody may have it to write to. Tells whether it is in use all the same, so that
/// nobody can open it alone: mounted read-only, or in a way that the user forces.
///
/// # Errors
/// `Refused` with every reason that was not forced; `Io` if the kernel's tables cannot be read.
pub fn check_source(path: &Path, force: &[Reason]) -> Result<bool> {
    let machine = kernel::Machine::read()?;
    let evidence = evidence::of_source(path, &machine)?;
    refuse(path, "captured", &decide::source(&evidence), force)?;
    Ok(evidence.is_busy)
}

fn refuse(path: &Path, action: &str, refusals: &[Refusal], force: &[Reason]) -> Result<()> {
    let standing: Vec<String> = refusals
        .iter()
        .filter(|refusal| !(refusal.reason.can_be_forced() && force.contains(&refusal.reason)))
        .map(|refusal| match refusal.reason.can_be_forced() {
            true => format!("{} (or insist: {})", refusal.text, refusal.reason.name()),
            false => refusal.text.clone(),
        })
        .collect();
    if standing.is_empty() {
        return Ok(());
    }
    Err(Error::refused(format!("{} cannot be {action}: {}", path.display(), standing.join("; "))))
}
