//! The one way to write a target: install, receive and export use it.
//!
//! A target is checked, then the user confirms the loss of its contents, then it is opened (the same one that was
//! checked), and written with its first and last MiB last. If that ends early, the state of the target is reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use platter_disk::install::{EdgesLast, FreeSpace, TargetState};
use platter_disk::refusal::{CheckedTarget, Consent, ImageGeometry, Reason, TargetCheck, check_target};
use platter_disk::{Target, TargetOptions};
use platter_image::recipe::Root;
use platter_image::{DiskWrite, Error, ErrorKind, IoContext, Result};

/// Bytes behind the image that are zeroed by one call.
const ZEROED_AT_ONCE: u64 = 1 << 30;

/// The request to write a target.
#[derive(Clone, Debug)]
pub struct TargetRequest {
    /// A block device, or a file that is created if it is missing.
    pub path: PathBuf,
    /// How to treat free space.
    pub free: FreeSpace,
    /// Read everything back and compare.
    pub read_back: bool,
    /// Which refusals the user overrides; `None` if the command has no option for that.
    pub force: Option<Vec<Reason>>,
    /// Whether its contents may be overwritten.
    pub consent: Consent,
    /// The state of the target. Created for the same path, and shared with the code that reports it after an
    /// interruption.
    pub state: Arc<TargetState>,
}

impl TargetRequest {
    /// A request for a new file: nothing is overwritten, forced or read back, and free space is left alone.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            free: FreeSpace::Skip,
            read_back: false,
            force: None,
            consent: Consent::NewFile,
            state: Arc::new(TargetState::new(path)),
        }
    }

    /// Refuses forbidden targets, and asks for confirmation if something would be overwritten. Without an image, only
    /// size and sectors remain to be checked.
    ///
    /// # Errors
    /// `Refused`, with every reason; `Io` when the kernel's tables cannot be read.
    pub(crate) fn agree(&self, image: Option<&Root>, forbidden: &[PathBuf]) -> Result<CheckedTarget> {
        let checked = self.check(image, forbidden)?;
        checked.agree(&self.consent)?;
        Ok(checked)
    }

    fn check(&self, image: Option<&Root>, forbidden: &[PathBuf]) -> Result<CheckedTarget> {
        let image =
            image.map(|root| ImageGeometry { length: root.disk_length, sector_size: root.sector_size });
        check_target(&self.path, &TargetCheck { image, forbidden, force: self.force.as_deref() })
    }

    /// Opens the confirmed target for the disk of this recipe, and clears its edges. Checks it again, because it may
    /// have been mounted meanwhile.
    ///
    /// # Errors
    /// As [`TargetRequest::agree`]; `Refused` when another device or file is there now.
    pub(crate) fn open(
        &self,
        agreed: &CheckedTarget,
        root: &Root,
        forbidden: &[PathBuf],
        direct: Option<bool>,
    ) -> Result<EdgesLast<Target>> {
        let checked = self.check(Some(root), forbidden)?;
        let options = TargetOptions {
            direct,
            exclusive: checked.is_exclusive(),
            sector_size: root.sector_size,
            expected: Some(agreed.identity()),
            ..TargetOptions::new(root.disk_length)
        };
        let target = Target::open(&self.path, &options)?;
        if DiskWrite::length(&target) < root.disk_length {
            return Err(Error::bug("an opened target is too short"));
        }
        let begun = EdgesLast::begin(target, root.disk_length, self.state.clone());
        begun
            .and_then(|target| self.clear_behind(&target, root.disk_length).map(|()| target))
            .map_err(|error| self.explain(error))
    }

    /// A longer target has more free space behind the image.
    fn clear_behind(&self, target: &dyn DiskWrite, mut position: u64) -> Result<()> {
        while self.free == FreeSpace::Zero && position < target.length() {
            let length = (target.length() - position).min(ZEROED_AT_ONCE);
            target
                .write_zeroes(position, length)
                .context(|| format!("writing {length} zeros at offset {position}, behind the image"))?;
            position += length;
        }
        Ok(())
    }

    /// Adds the state of the target to an error. If nothing was written, the error is unchanged.
    pub(crate) fn explain(&self, error: Error) -> Error {
        use platter_disk::install::Phase;
        if self.state.phase() == Phase::Untouched {
            return error;
        }
        let state = self.state.abandon();
        let kind = error.kind();
        error.within(match kind {
            ErrorKind::Corrupt => {
                format!("{state}, once `platter check --read-data` and `platter heal` repaired the store")
            }
            _ => state,
        })
    }
}
