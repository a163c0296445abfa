//! Renaming images: their versions get records under the new name, and the catalog changes over in one commit.
//!
//! Why a crash leaves one name or the other: a record that says it was renamed counts only once the catalog says so. The
//! next writer does not take one over from an interrupted pack (see `salvage`). Why a rebuild never finds two disks
//! under one number: a version takes a number that was not used under the new name, or one under which it was
//! itself known before. The record of a version that comes back to its first name is, byte for byte, the first one.

use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder, RAW_LENGTH_DEFAULT};
use platter_image::{BlockId, Domain, Error, ErrorKind, Kind, PinSet, Result};

use crate::catalog::Change;
use crate::name::{ImageName, VersionName};
use crate::record::VersionRecord;
use crate::resolve::Version;
use crate::session::RECORD_LEVEL;
use crate::store::Store;
use crate::token::refusal;

/// A version that got another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The name that it had.
    pub from: VersionName,
    /// The name that it has.
    pub to: VersionName,
}

/// What is to be done with one version.
struct Move {
    from: VersionName,
    record_id: BlockId,
    record: VersionRecord,
    bytes: Vec<u8>,
}

impl Store {
    /// Gives an image, and all images below it, another name, in one commit, durable when it returns. Scores, numbers and
    /// times stay, and what other versions say of where they were cloned from stays as it was written.
    ///
    /// # Errors
    /// `Missing` when there is no image of that name, nor one below it; `Refused` when the new name is taken, or was used
    /// for other versions of the same numbers, or cannot be, or when one of the images is being edited; after another
    /// error the store takes nothing more until it is opened again, and the images have one name or the other.
    pub fn rename(&self, from: &ImageName, to: &ImageName) -> Result<Vec<Renamed>> {
        if from == to || is_below(to, from) {
            return Err(Error::refused(format!(
                "{from} cannot be renamed to {to}, which is the same or below it"
            )));
        }
        let mut compressor = Compressor::new(RECORD_LEVEL)?;
        // What is refused inside has changed nothing, and is no failed write.
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
            for Move { from, record_id, record, .. } in moves {
                change.remove_version(&from)?;
                if !change.add_version(record_id, &record)? {
                    return Err(Error::bug(format!("{} is there, and was not", record.name())));
                }
                // What was forgotten under the old name had a number, too.
                change.raise_last_number(&record.image, change.last_number(&from.image)?)?;
                renamed.push(Renamed { from, to: record.name() });
            }
            let moved: Vec<_> =
                renamed.iter().map(|version| (version.from.clone(), Some(version.to.clone()))).collect();
            change.move_members(&moved)?;
            Ok(Ok(renamed))
        })
    }

    /// What is to be done, or why it may not.
    fn moves(&self, change: &Change<'_>, from: &ImageName, to: &ImageName) -> Result<Vec<Move>> {
        let versions = change.versions_below(from)?;
        if versions.is_empty() {
            return Err(Error::missing(format!("there is no image {from}, nor one below it")));
        }
        versions.into_iter().map(|version| self.move_of(change, version, from, to)).collect()
    }

    fn move_of(
        &self,
        change: &Change<'_>,
        version: Version,
        from: &ImageName,
        to: &ImageName,
    ) -> Result<Move> {
        let old = version.name;
        let rest = old.image.as_str().get(from.as_str().len()..).unwrap_or_default();
        let image: ImageName = format!("{to}{rest}").parse()?;
        for name in [&old.image, &image] {
            if let Some(refusal) = refusal(name, None, change.token(name)?.as_ref()) {
                return Err(refusal);
            }
        }
        if change.versions_below(&image)?.iter().any(|version| version.name.image == image) {
            return Err(Error::refused(format!("there is an image {image} already: rename that one first")));
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
                "{} was another version once, and numbers are never used twice: take a name that was not used, or clone",
                record.name()
            )));
        }
        Ok(Move { from: old, record_id, record, bytes })
    }

    /// The records that no pack has yet, in frames, and pins on the others.
    fn new_records(
        &self,
        moves: &[Move],
        compressor: &mut Compressor,
    ) -> Result<(Vec<EncodedFrame>, PinSet)> {
        let (mut frames, mut pins) = (Vec::new(), PinSet::default());
        let mut frame = FrameBuilder::new(Kind::Version, Domain::SHARED, RAW_LENGTH_DEFAULT);
        for Move { record_id, bytes, .. } in moves {
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

/// Whether an error says that it may not be done, rather than that it failed.
fn is_answer(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Refused | ErrorKind::Missing)
}

/// Whether an image is below another in the tree of names.
fn is_below(image: &ImageName, above: &ImageName) -> bool {
    image.as_str().strip_prefix(above.as_str()).is_some_and(|rest| rest.starts_with('/'))
}
