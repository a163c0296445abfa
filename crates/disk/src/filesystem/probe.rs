//! Who may own an extent, by the marks that they left: every one of them is looked for, wherever it stands.
//!
//! A device that was used again keeps marks of what it was. Nothing tells a stale mark from a living one for sure, so
//! whoever finds more than one owner must take all of the extent.

use platter_image::{DiskRead, Extent, Result};

use super::place::Place;
use super::signatures::{self, Rule, Signature};
use super::swap;
use crate::fields::has;

/// Where an ext superblock has its magic.
const EXT_MAGIC: (usize, &[u8]) = (1024 + 0x38, b"\x53\xef");

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// ext2, ext3 or ext4, and nothing else.
    Ext,
    /// A swap area, and nothing else.
    Swap(swap::Header),
    /// A filesystem or container that is known by name only.
    Other(&'static str),
    /// More than one of them: some are leftovers, and nobody can tell which.
    Ambiguous(Vec<&'static str>),
    /// No known mark.
    Nothing,
}

/// A mark of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Whose it is, in the words of `blkid`; `ext` for all of its kinds.
    pub name: &'static str,
    /// Where on the disk it stands.
    pub offset: u64,
}

/// Everybody who may own an extent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    list: Vec<Owner>,
    swap: Option<swap::Header>,
}

impl Owners {
    /// Looks for every mark there is.
    ///
    /// # Errors
    /// Only what reading the disk says.
    pub fn find(disk: &dyn DiskRead, extent: Extent) -> Result<Self> {
        let place = Place::read(disk, extent)?;
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
        Ok(owners)
    }

    /// All of them, each once.
    pub fn list(&self) -> &[Owner] {
        &self.list
    }

    /// Whether one of them has that name.
    pub fn has(&self, name: &str) -> bool {
        self.list.iter().any(|owner| owner.name == name)
    }

    /// Whether it is one, none or many.
    pub fn found(&self) -> Found {
        match (self.list.as_slice(), &self.swap) {
            ([], _) => Found::Nothing,
            ([_], Some(header)) => Found::Swap(header.clone()),
            ([Owner { name: "ext", .. }], None) => Found::Ext,
            ([owner], None) => Found::Other(owner.name),
            (owners, _) => Found::Ambiguous(owners.iter().map(|owner| owner.name).collect()),
        }
    }
}

fn offset_of(signature: &Signature, place: &Place<'_>) -> Result<Option<u64>> {
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

/// What `extent` of the disk holds.
///
/// # Errors
/// Only what reading the disk says.
pub fn probe(disk: &dyn DiskRead, extent: Extent) -> Result<Found> {
    Ok(Owners::find(disk, extent)?.found())
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
