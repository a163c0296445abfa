//! Pins all that a recipe needs, before it is published (design: pins): no collection can then take any of it away.

use std::collections::HashSet;

use platter_image::frame::{EncodedFrame, Verify};
use platter_image::page::{Child, Contents, State, decode};
use platter_image::recipe::{PageSource, Root};
use platter_image::{BlockId, Error, ErrorKind, FrameIndex, FrameStore, Kind, Result, Score};

use super::Session;

impl Session {
    /// Pins every page and block of a recipe. What only a collected pack has is copied from there, as long as its file exists.
    ///
    /// What a damaged page names cannot be pinned. A live disk on a damaged version can be published all the same; a collection
    /// that meets the page gives nothing up.
    ///
    /// # Errors
    /// `Missing` naming what is not in the store; `Io`.
    pub(crate) fn hold_recipe(&self, score: Score) -> Result<()> {
        let mut seen = HashSet::new();
        self.hold_block(Kind::Page, &score.0)?;
        let Some(root) = unless_damaged(self.page(&score.0).and_then(|bytes| Root::decode(score, &bytes)))?
        else {
            return Ok(());
        };
        let mut stack: Vec<Child> = root.top.into_iter().map(|(_, child)| child).collect();
        while let Some(child) = stack.pop() {
            if !seen.insert(child.id) {
                continue;
            }
            self.hold_block(Kind::Page, &child.id)?;
            let decoded = self.page(&child.id).and_then(|bytes| decode(&child, &bytes));
            match unless_damaged(decoded)?.map(|(_, contents)| contents) {
                None => {}
                Some(Contents::Branch(children)) => stack.extend(children),
                Some(Contents::Leaf(entries)) => {
                    let mut last = None;
                    for entry in entries {
                        let State::Data { block, .. } = entry.state else { continue };
                        if last.replace(block) != Some(block) {
                            self.hold_block(Kind::Data, &block)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Pins a block, or copies its frame from a collected pack.
    pub(crate) fn hold_block(&self, kind: Kind, id: &BlockId) -> Result<()> {
        if self.pin_stored(id)?.is_some() {
            return Ok(());
        }
        let missing = || Error::missing(format!("{kind:?} {id} is not in the store"));
        let place = self.locate(id)?.ok_or_else(missing)?;
        let mut stored = Vec::new();
        self.read_frame(place.frame, &mut stored)?;
        let header = self.shared.decoders.with(|decoder| Ok(decoder.decode(&stored, Verify::Hashes)?.0))?;
        let frame =
            EncodedFrame { kind: header.kind, stored, raw_length: header.raw_length, blocks: header.blocks };
        self.append(&frame).map(drop)
    }
}

/// Returns `None` instead of an error about damage.
pub(crate) fn unless_damaged<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        read => read.map(Some),
    }
}
