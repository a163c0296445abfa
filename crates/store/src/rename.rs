//! Renames images: writes version records with the new name, and switches the catalog to them in one commit.
//!
//! Why a crash leaves either the old or the new name: a record that says it was renamed counts only if the catalog lists it. The
//! next writer does not take such a record from an interrupted pack (see `salvage`). Why a rebuild never finds two disks
//! under one number: a version takes a number that was not used under the new name, or one that it had itself under that
//! name. A version that returns to its first name gets, byte for byte, its first record.

use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder, RAW_LENGTH_DEFAULT};
use platter_image::{BlockId, Domain, Error, ErrorKind, Kind, PinSet, Result};

use crate::catalog::Change;
use crate::session::RECORD_LEVEL;
use crate::store::Store;
use platter_records::Version;
use platter_records::VersionRecord;
use platter_records::edit_lock_refusal;
use platter_records::{ImageName, VersionName};

/// A version that was renamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// Its previous name.
    pub from: VersionName,
    /// Its new name.
    pub to: VersionName,
}

/// The planned rename of one version.
struct PlannedRename {
    from: VersionName,
    record_id: BlockId,
    record: VersionRecord,
    bytes: Vec<u8>,
}

impl Store {
    /// Renames an image and all images below it in one commit, durable on return. Scores, numbers and times stay the same. The
    /// `cloned_from` fields of other versions keep the old name.
    ///
    /// # Errors
    /// `Missing` when there is no image of that name or below it; `Refused` when the new name is invalid, exists, or was used for
    /// other versions with the same numbers, or when one of the images is being edited; after any other error the store accepts
    /// no more writes until it is opened again, and the images have either the old or the new name.
    pub fn rename(&self, from: &ImageName, to: &ImageName) -> Result<Vec<Renamed>> {
        if from == to || is_below(to, from) {
            return Err(Error::refused(format!(
                "{from} cannot be renamed to {to}: the new name is the same or below the old one"
            )));
        }
        let mut compressor = Compressor::new(RECORD_LEVEL)?;
        // An inner error means refused: nothing has changed, and the store stays usable.
        self.session()?.commit(|change, state, session| {
            let moves = match self.moves(change, from, to) {
                Err(error) if is_answer(&error) => return Ok(Err(error)),
                moves => moves?,
            };
            let (frames, _pins) = self.new_records(&moves, &mut compressor)?;
            for frame in frames {
                session.append_to(state, &frame)?;
            }
            let mut renamed = Vec::with_capacity(moves.len());
            for PlannedRename { from, record_id, record, .. } in moves {
                change.remove_version(&from)?;
                if !change.add_version(record_id, &record)? {
                    return Err(Error::bug(format!("{} already exists", record.name())));
                }
                // Forgotten versions under the old name have used numbers, too.
                change.raise_last_number(&record.image, change.last_number(&from.image)?)?;
                renamed.push(Renamed { from, to: record.name() });
            }
            let moved: Vec<_> =
                renamed.iter().map(|version| (version.from.clone(), Some(version.to.clone()))).collect();
            change.move_members(&moved)?;
            Ok(Ok(renamed))
        })
    }

    /// Plans the rename of all versions of an image and of the images below it.
    fn moves(&self, change: &Change<'_>, from: &ImageName, to: &ImageName) -> Result<Vec<PlannedRename>> {
        let versions = change.versions_below(from)?;
        if versions.is_empty() {
            return Err(Error::missing(format!("there is no image {from} and no image below it")));
        }
        versions.into_iter().map(|version| self.move_of(change, version, from, to)).collect()
    }

    fn move_of(
        &self,
        change: &Change<'_>,
        version: Version,
        from: &ImageName,
        to: &ImageName,
    ) -> Result<PlannedRename> {
        let old = version.name;
        let rest = old.image.as_str().get(from.as_str().len()..).unwrap_or_default();
        let image: ImageName = format!("{to}{rest}").parse()?;
        for name in [&old.image, &image] {
            if let Some(refusal) = edit_lock_refusal(name, None, change.edit_lock(name)?.as_ref()) {
                return Err(refusal);
            }
        }
        if change.versions_below(&image)?.iter().any(|version| version.name.image == image) {
            return Err(Error::refused(format!("the image {image} already exists: rename it first")));
        }
        let mut record = version.record;
        let first = record.renamed_from.take().unwrap_or_else(|| old.clone());
        record.renamed_from = (first.image != image).then_some(first);
        record.image = image;
        let bytes = record.encode()?;
        let record_id = BlockId::of(Kind::Version, &bytes);
        let last = change.last_number(&record.image)?;
        if record.number <= last && !self.has(&record_id) {
            return Err(Error::refused(format!(
                "the number of {} was used by another version, and numbers are never used twice: choose an unused name, or clone",
                record.name()
            )));
        }
        Ok(PlannedRename { from: old, record_id, record, bytes })
    }

    /// Encodes the records that no pack has yet, and pins the others.
    fn new_records(
        &self,
        moves: &[PlannedRename],
        compressor: &mut Compressor,
    ) -> Result<(Vec<EncodedFrame>, PinSet)> {
        let (mut frames, mut pins) = (Vec::new(), PinSet::default());
        let mut frame = FrameBuilder::new(Kind::Version, Domain::SHARED, RAW_LENGTH_DEFAULT);
        for PlannedRename { record_id, bytes, .. } in moves {
            if let Some((_, pin)) = self.0.lookup_and_pin(record_id)? {
                pins.insert(pin);
                continue;
            }
            if frame.is_full_for(bytes.len()) {
                frames.push(frame.take().encode(compressor)?);
            }
            frame.push(*record_id, bytes);
        }
        if !frame.is_empty() {
            frames.push(frame.encode(compressor)?);
        }
        Ok((frames, pins))
    }
}

/// Returns whether an error means that the request was refused, and not that the store failed.
fn is_answer(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Refused | ErrorKind::Missing)
}

/// Returns whether an image is below another in the tree of names.
fn is_below(image: &ImageName, above: &ImageName) -> bool {
    image.as_str().strip_prefix(above.as_str()).is_some_and(|rest| rest.starts_with('/'))
}
