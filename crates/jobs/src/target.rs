//! The one way to a target: install, receive and export all write through here.
//!
//! A target is checked, then whoever must agrees to what it holds, then it is opened (the same one that was checked),
//! and written with its first and last MiB after everything else. Whatever ends that early says what it leaves.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use platter_disk::install::{EdgesLast, FreeSpace, TargetState};
use platter_disk::refusal::{CheckedTarget, Consent, ImageGeometry, Reason, TargetCheck, check_target};
use platter_disk::{Target, TargetOptions};
use platter_image::recipe::Root;
use platter_image::{DiskWrite, Error, Result};

/// Where to write a disk, and how.
#[derive(Clone, Debug)]
pub struct TargetRequest {
    /// A block device, or a file that is made if it is missing.
    pub path: PathBuf,
    /// What to do with space nobody can read.
    pub free: FreeSpace,
    /// Read everything back and compare.
    pub read_back: bool,
    /// Which refusals the user overrides; `None` if the command has no option for that.
    pub force: Option<Vec<Reason>>,
    /// Whether what it holds may be overwritten.
    pub consent: Consent,
    /// What state it is in. Made for the same path, and shared with whoever says so when the job is interrupted.
    pub state: Arc<TargetState>,
}

impl TargetRequest {
    /// A new file of that name: nothing is overwritten, forced or read back, and free space is left alone.
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

    /// Refuses what must not be written, and asks for agreement where something would be overwritten. Without an image,
    /// only its size and sectors are left to be checked.
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

    /// Opens the target that was agreed to, for the disk of that recipe, and empties its edges. Looks at it once more:
    /// it may have been mounted meanwhile.
    ///
    /// # Errors
    /// As [`TargetRequest::agree`]; `Refused` when another device or file stands there now.
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
            return Err(Error::bug("a target was opened that is too short"));
        }
        EdgesLast::begin(target, root.disk_length, self.state.clone()).map_err(|error| self.explain(error))
    }

    /// The same error, and before it what state the target is left in. If nothing was written, the error says enough.
    pub(crate) fn explain(&self, error: Error) -> Error {
        use platter_disk::install::Phase;
        if self.state.phase() == Phase::Untouched {
            return error;
        }
        error.within(self.state.abandon())
    }
}
