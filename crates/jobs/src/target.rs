//! The one way to write a target: install, receive and export use it.
//!
//! A target is checked, then the user confirms the loss of its contents, then it is opened (the same one that was
//! checked), and written with its first and last MiB last. If that ends early, the state of the target is reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use platter_disk::install::{Delta, EdgesLast, FreeSpace, LostWrite, TargetState, is_alike};
use platter_disk::partition::{Grown, TableChanges};
use platter_disk::refusal::{
    CheckedTarget, Consent, ImageGeometry, NameImage, Reason, TargetCheck, check_target,
};
use platter_disk::{Source, Target, TargetOptions};
use platter_formats::{Format, Wrapping};
use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe, Root};
use platter_image::{DiskRead, DiskWrite, Error, ErrorKind, Extent, Extents, IoContext, Result};

use crate::Progress;
use crate::capture::refuse_other_format;
use crate::grow::GrownPlace;
use platter_transport::random_bytes;

/// Bytes behind the image that are zeroed by one call.
const ZEROED_AT_ONCE: u64 = 1 << 30;

/// Whether to look first for what the target already holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeltaChoice {
    /// If a few samples say that it holds much of the disk.
    #[default]
    Alike,
    /// Yes.
    Always,
    /// No: fetch and write everything.
    Never,
}

/// The request to write a target.
#[derive(Clone, Debug)]
pub struct TargetRequest {
    /// A block device, or a file that is created if it is missing.
    pub path: PathBuf,
    /// How to treat free space.
    pub free: FreeSpace,
    /// The number of the only partition to write, at the start of the target; `None` for the whole disk.
    pub part: Option<u32>,
    /// Grow the last partition and its file system to the end of the target.
    pub grow: bool,
    /// Give the disk and its partitions new random ids.
    pub new_ids: bool,
    /// Read everything back and compare.
    pub read_back: bool,
    /// Whether to keep what the target already holds.
    pub delta: DeltaChoice,
    /// Other disks that may hold blocks of the disk; they are only read.
    pub from: Vec<PathBuf>,
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
            part: None,
            grow: false,
            new_ids: false,
            read_back: false,
            delta: DeltaChoice::Never,
            from: Vec::new(),
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
        if self.part.is_some() && self.new_ids {
            return Err(Error::refused(
                "--new-ids is for whole disks: the id of a partition is in the table of its disk",
            ));
        }
        let checked = self.check(image, forbidden)?;
        checked.agree(&self.consent)?;
        Ok(checked)
    }

    fn check(&self, image: Option<&Root>, forbidden: &[PathBuf]) -> Result<CheckedTarget> {
        let image = image.map(|root| ImageGeometry {
            length: root.disk_length,
            sector_size: root.sector_size,
            is_partition: self.part.is_some(),
        });
        let image_name: NameImage =
            |first, last| platter_formats::wrapping(first, last).map(|found| found.name);
        let (force, image_name) = (self.force.as_deref(), Some(image_name));
        check_target(&self.path, &TargetCheck { image, forbidden, force, image_name })
    }

    /// Opens the confirmed target for the disk of this recipe, and clears its edges: [`TargetRequest::open_unchanged`]
    /// and [`TargetRequest::begin`].
    ///
    /// # Errors
    /// Those of these two.
    pub(crate) fn open(
        &self,
        agreed: &CheckedTarget,
        root: &Root,
        forbidden: &[PathBuf],
        direct: Option<bool>,
    ) -> Result<EdgesLast<Target>> {
        self.begin(self.open_unchanged(agreed, root, forbidden, direct)?, root)
    }

    /// Clears the edges of an open target. From now on it is incomplete.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn begin(&self, target: Target, root: &Root) -> Result<EdgesLast<Target>> {
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

    /// The changes to the partition table of the written disk; `None` if the target gets one partition.
    ///
    /// # Errors
    /// `Io` without random numbers.
    pub(crate) fn table_changes(&self) -> Result<Option<TableChanges>> {
        let new_ids = self.new_ids.then(random_bytes).transpose()?;
        Ok(self.part.is_none().then_some(TableChanges { grow: self.grow, new_ids }))
    }

    /// The parts of a range of a disk that hold data, if something is to grow: nothing grows over them.
    ///
    /// # Errors
    /// Those of reading the recipe.
    pub(crate) fn data_to_keep<P: PageSource>(&self, recipe: &Recipe<P>, range: Extent) -> Result<Extents> {
        if self.grow { data_in(recipe, range) } else { Ok(Extents::new()) }
    }

    /// What has grown on a written target that is still open. `data`: what its disk fills. A target for one partition may be larger than it.
    pub(crate) fn grown_place(
        &self,
        target: &dyn DiskRead,
        disk_length: u64,
        grown: Option<Grown>,
        data: &Extents,
    ) -> Option<GrownPlace> {
        let (before, after) = (Extent::new(0, disk_length), Extent::new(0, target.length()));
        let is_larger_part = self.grow && self.part.is_some() && before != after;
        let grown = grown.or(is_larger_part.then_some(Grown { number: None, before, after }));
        grown.map(|grown| GrownPlace::of(target, grown, data))
    }

    /// Whether [`TargetRequest::wants_delta`] may say yes.
    pub(crate) fn may_want_delta(&self, agreed: &CheckedTarget) -> bool {
        match self.delta {
            DeltaChoice::Never => false,
            DeltaChoice::Always => true,
            DeltaChoice::Alike => !self.from.is_empty() || agreed.contents().is_some(),
        }
    }

    /// Whether what the target holds is to be compared with a range of a disk, before the target is changed.
    ///
    /// # Errors
    /// Those of reading the recipe.
    pub(crate) fn wants_delta<P: PageSource>(
        &self,
        agreed: &CheckedTarget,
        recipe: &Recipe<P>,
        range: Extent,
        target: &dyn DiskRead,
    ) -> Result<bool> {
        let is_sure = self.delta == DeltaChoice::Always || !self.from.is_empty();
        Ok(self.may_want_delta(agreed) && (is_sure || is_alike(recipe, range, target)?))
    }

    /// Finds out what of a range of the disk is already on this machine. The target must be unchanged, unless
    /// `is_changed`: then only blocks at their places are found on it.
    ///
    /// # Errors
    /// Those of reading the recipe; `Io` or `Refused` when one of the other disks cannot be opened.
    pub(crate) fn find_delta<P: PageSource + Sync>(
        &self,
        recipe: &Recipe<P>,
        range: Extent,
        (target, is_changed): (&dyn DiskRead, bool),
        progress: &dyn Progress,
    ) -> Result<Delta> {
        progress.begin("comparing", range.length);
        let advance = |bytes| progress.advance(bytes);
        let mut delta = Delta::of_target(recipe, range, self.free, target, true, &advance)?;
        progress.begin("searching for moved blocks", 0);
        if !is_changed {
            delta.search_target(recipe, target);
        }
        for path in &self.from {
            let source = Source::open(path, None)?;
            let name = path.display().to_string();
            let hint = |_: &Wrapping| "--from reads devices and raw files".to_owned();
            refuse_other_format(&source, &name, Format::Raw, false, hint)?;
            let data = source.data_extents()?;
            delta.search_other(recipe, Box::new(source), data.as_ref());
        }
        Ok(delta)
    }

    /// Opens the confirmed target for the disk of this recipe. Checks it again, because it may have been mounted
    /// meanwhile.
    ///
    /// # Errors
    /// As [`TargetRequest::agree`]; `Refused` when another device or file is there now.
    pub(crate) fn open_unchanged(
        &self,
        agreed: &CheckedTarget,
        root: &Root,
        forbidden: &[PathBuf],
        direct: Option<bool>,
    ) -> Result<Target> {
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
        Ok(target)
    }

    /// Adds the state of the target to an error. If nothing was written, the error is unchanged.
    pub(crate) fn explain(&self, error: Error) -> Error {
        use platter_disk::install::Phase;
        if self.state.phase() == Phase::Untouched {
            return error;
        }
        let state = self.state.abandon();
        let context = match error.kind() {
            ErrorKind::Corrupt if !LostWrite::is_cause_of(&error) => {
                format!("{state}, once `platter check --read-data` and `platter heal` repaired the store")
            }
            _ => state,
        };
        error.within(context)
    }
}

/// The parts of a range that the disk of a recipe fills with data.
///
/// # Errors
/// Those of reading the recipe.
pub(crate) fn data_in<P: PageSource>(recipe: &Recipe<P>, range: Extent) -> Result<Extents> {
    let mut data = Extents::new();
    for entry in recipe.entries(range) {
        let entry = entry?;
        if matches!(entry.state, State::Data { .. }) {
            entry.extent.intersect(&range).into_iter().for_each(|extent| data.push(extent));
        }
    }
    Ok(data)
}
