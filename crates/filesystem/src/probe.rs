//! Finds all possible owners of an extent by their marks.
//!
//! A reused device keeps marks of its earlier uses. Nothing distinguishes a stale mark from a current one for
//! certain, so an extent with more than one owner must be kept in full.

use platter_image::{DiskRead, Extent, Result};

use crate::disklabel;
use crate::fields::has;
use crate::place::ProbedExtent;
use crate::signatures::{self, Rule, Signature};
use crate::swap;

/// The place of the magic in an ext superblock.
const EXT_MAGIC: (usize, &[u8]) = (1024 + 0x38, b"\x53\xef");

/// The owner of an extent, by its signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A swap area, and nothing else.
    Swap(swap::Header),
    /// A filesystem or container of that name, and nothing else; `ext` for ext2, ext3 and ext4.
    Filesystem(&'static str),
    /// Several owners: some marks are stale, but it is unknown which.
    Ambiguous(Vec<&'static str>),
    /// No known mark.
    Nothing,
}

/// A mark of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The owner's name as in `blkid`; `ext` for ext2, ext3 and ext4.
    pub name: &'static str,
    /// The mark's offset on the disk.
    pub offset: u64,
}

/// All possible owners of an extent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    list: Vec<Owner>,
    swap: Option<swap::Header>,
}

impl Owners {
    /// Searches for all marks.
    ///
    /// # Errors
    /// Only errors of reading the disk.
    pub fn find(disk: &dyn DiskRead, extent: Extent) -> Result<Self> {
        let place = ProbedExtent::read(disk, extent)?;
        let mut owners = Self { list: Vec::new(), swap: swap::Header::find(place.head()) };
        for signature in signatures::all() {
            let offset = if owners.has(signature.name) { None } else { offset_of(signature, &place)? };
            owners
                .list
                .extend(offset.map(|offset| Owner { name: signature.name, offset: extent.offset + offset }));
        }
        let is_ext = has(place.head(), EXT_MAGIC.0, EXT_MAGIC.1);
        let own = [("ext", is_ext), ("swap", owners.swap.is_some())];
        let own = own.iter().filter(|(_, is_there)| *is_there);
        owners.list.extend(own.map(|(name, _)| Owner { name, offset: extent.offset }));
        let label = Owner { name: "bsd", offset: extent.offset + disklabel::LABEL_OFFSET };
        if owners.has("ufs") && owners.list.contains(&label) && disklabel::is_of_ufs(disk, extent)? {
            owners.list.retain(|owner| *owner != label);
        }
        Ok(owners)
    }

    /// All owners, each once.
    pub fn list(&self) -> &[Owner] {
        &self.list
    }

    /// Whether there is an owner of that name.
    pub fn has(&self, name: &str) -> bool {
        self.list.iter().any(|owner| owner.name == name)
    }

    /// The header of a swap area, if there is one.
    pub(crate) fn swap(&self) -> Option<&swap::Header> {
        self.swap.as_ref()
    }

    /// Summarizes the owners: none, one or several.
    pub fn found(&self) -> Found {
        match (self.list.as_slice(), &self.swap) {
            ([], _) => Found::Nothing,
            ([_], Some(header)) => Found::Swap(header.clone()),
            ([owner], None) => Found::Filesystem(owner.name),
            (owners, _) => Found::Ambiguous(owners.iter().map(|owner| owner.name).collect()),
        }
    }
}

fn offset_of(signature: &Signature, place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    match &signature.rule {
        Rule::Test(test) => test(place),
        Rule::Magic(places, magics) => {
            for offset in places.iter().filter_map(|at| at.offset(place.length())) {
                if place.has_one_of(offset, magics)? {
                    return Ok(Some(offset));
                }
            }
            Ok(None)
        }
    }
}

/// Determines the owner of an extent of the disk.
///
/// # Errors
/// Only errors of reading the disk.
pub fn probe(disk: &dyn DiskRead, extent: Extent) -> Result<Found> {
    Ok(Owners::find(disk, extent)?.found())
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
