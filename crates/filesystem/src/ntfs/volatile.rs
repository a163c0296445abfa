//! Files whose contents mean nothing after a shutdown: page files, and the image of a hibernated system.
//!
//! A file counts only if all its names are the one that Windows gives it, in the root directory, and the index of the root
//! directory lists it once, under that name. So a file of a user elsewhere, or one with a second name, is like any other, and
//! so is one whose record and directory disagree: Windows finds it by the directory. A hibernated system is looked for in every
//! file that a record or the root directory calls so.

use std::collections::{BTreeMap, BTreeSet};

use platter_image::{Error, ErrorKind, Result};

use super::attribute;
use super::examine::{FIRST_FILE, REMEDY, ROOT};
use super::index::Index;
use super::master_table::MasterTable;
use super::record::{Record, reference, wrong};
use crate::clusters::Clusters;
use crate::fields::le16;
use crate::reader::needs_recovery;

/// A name's length in characters is here, and its characters follow after a byte.
const NAME_LENGTH_OFFSET: usize = 64;
const NAME_OFFSET: usize = 66;
/// A hibernated system has a header of this many bytes.
const HEADER_LENGTH: u64 = 4096;

/// A directory has one file of a name; if more have it, they are not examined.
const FILES_MAX: usize = 64;

const HIBERNATION: &str = "hiberfil.sys";
const NAMES: [&str; 3] = ["pagefile.sys", "swapfile.sys", HIBERNATION];

/// The volatile files of a volume, and those that may be the image of a hibernated system.
#[derive(Debug, Default)]
pub(super) struct VolatileFiles {
    /// The files whose own records have no name but this one.
    named: BTreeMap<u64, &'static str>,
    /// The files that are named as the image of a hibernated system.
    hibernation: BTreeSet<u64>,
}

impl VolatileFiles {
    /// Adds what a record says.
    ///
    /// # Errors
    /// `Corrupt` if a name is invalid, or too many files have such names.
    pub(super) fn add(&mut self, number: u64, record: Record<'_>) -> Result<()> {
        let owner = record.base().unwrap_or(number);
        if owner == number && number >= FIRST_FILE {
            self.named.extend(only_name(record)?.map(|name| (number, name)));
        }
        // A name may be in another record than the file's own.
        if has_hibernation_name(record)? {
            self.hibernation.insert(owner);
        }
        self.check_count()
    }

    fn check_count(&self) -> Result<()> {
        match self.named.len().max(self.hibernation.len()) > FILES_MAX {
            true => Err(Error::corrupt(format!("too many files have the names {}", NAMES.join(", ")))),
            false => Ok(()),
        }
    }

    /// Leaves only the files that the index of the root directory lists as their records do. Returns a note for each other.
    ///
    /// # Errors
    /// `Corrupt` if the index is invalid, or a file's list of attributes; errors of reading the disk.
    pub(super) fn compare_with_root(
        &mut self,
        table: &MasterTable<'_, '_>,
        clusters: &Clusters<'_>,
    ) -> Result<Vec<String>> {
        let mut listed = Listed::default();
        let index = Index::open(table, clusters, ROOT)?;
        index
            .for_each(clusters, |number, value| {
                let value = value.ok_or_else(|| Error::corrupt("a name in its index is cut off"))?;
                let name = volatile_name(value);
                if name == Some(HIBERNATION) {
                    self.hibernation.insert(number);
                }
                listed.add(name, self.named.contains_key(&number).then_some(number));
                self.check_count()
            })
            .map_err(|error| match error.kind() {
                ErrorKind::Corrupt => wrong(ROOT, &error.to_string()),
                _ => error,
            })?;
        let mut notes = Vec::new();
        for (number, name) in std::mem::take(&mut self.named) {
            // Names in other records were not compared.
            if listed.is_only(number, name) && !table.has_other_parts(number, attribute::FILE_NAME)? {
                self.named.insert(number, name);
                continue;
            }
            notes.push(format!(
                "record {number} of its master file table is named only {name}, but the root directory or another record \
                 contradicts that: its contents are stored"
            ));
        }
        Ok(notes)
    }

    /// The volatile files.
    pub(super) fn files(&self) -> impl Iterator<Item = u64> + '_ {
        self.named.keys().copied()
    }

    /// Checks that there is no valid image of a hibernated system.
    ///
    /// # Errors
    /// `Refused` if a hibernated system is stored; `Corrupt`; errors of reading the disk.
    pub(super) fn check_hibernation(
        &self,
        table: &MasterTable<'_, '_>,
        clusters: &Clusters<'_>,
    ) -> Result<()> {
        self.hibernation.iter().try_for_each(|number| check_hibernation(table, clusters, *number))
    }
}

/// What the root directory lists.
#[derive(Debug, Default)]
struct Listed {
    /// How often it has a volatile name.
    times: BTreeMap<&'static str, u64>,
    /// How often it has some files at all, and their last volatile name.
    files: BTreeMap<u64, (u64, Option<&'static str>)>,
}

impl Listed {
    /// Adds an entry: its name if it is a volatile one, and its file if that matters.
    fn add(&mut self, name: Option<&'static str>, file: Option<u64>) {
        if let Some(name) = name {
            *self.times.entry(name).or_default() += 1;
        }
        if let Some(file) = file {
            let (times, _) = self.files.get(&file).copied().unwrap_or_default();
            self.files.insert(file, (times + 1, name));
        }
    }

    /// Whether that file is listed once, under that name, and no other is.
    fn is_only(&self, file: u64, name: &'static str) -> bool {
        self.files.get(&file) == Some(&(1, Some(name))) && self.times.get(name) == Some(&1)
    }
}

/// The name of a volatile file, if a record has no other.
fn only_name(record: Record<'_>) -> Result<Option<&'static str>> {
    let (mut found, mut is_only) = (None, true);
    record.for_each(|attribute| {
        if attribute.kind() != attribute::FILE_NAME {
            return Ok(());
        }
        let value = attribute.value()?.ok_or_else(|| Error::corrupt("its name is in runs"))?;
        let name = volatile_name_in_root(value);
        is_only &= name.is_some() && (found.is_none() || found == name);
        found = name;
        Ok(())
    })?;
    Ok(found.filter(|_| is_only))
}

/// Whether a record names its file as the image of a hibernated system, whatever other names it has.
fn has_hibernation_name(record: Record<'_>) -> Result<bool> {
    let mut found = false;
    record.for_each(|attribute| {
        if attribute.kind() == attribute::FILE_NAME {
            found |= attribute.value()?.and_then(volatile_name_in_root) == Some(HIBERNATION);
        }
        Ok(())
    })?;
    Ok(found)
}

fn volatile_name_in_root(value: &[u8]) -> Option<&'static str> {
    volatile_name(value).filter(|_| reference(value, 0) == Some(ROOT))
}

/// The name of a volatile file in an attribute, in any case and whatever directory is stated.
fn volatile_name(value: &[u8]) -> Option<&'static str> {
    let length = usize::from(*value.get(NAME_LENGTH_OFFSET)?);
    let name = value.get(NAME_OFFSET..)?.get(..2 * length)?;
    let is_same = |known: &[u8]| {
        known.len() == length
            && name.chunks_exact(2).zip(known).all(|(unit, byte)| {
                le16(unit, 0) == u16::from(*byte) || le16(unit, 0) == u16::from(byte.to_ascii_uppercase())
            })
    };
    NAMES.into_iter().find(|known| is_same(known.as_bytes()))
}

/// Checks that the image of a hibernated system is not valid. Its header is zeros if there is none, and has the mark
/// `wake` after a system has continued from it.
fn check_hibernation(table: &MasterTable<'_, '_>, clusters: &Clusters<'_>, number: u64) -> Result<()> {
    let Some(stream) = table.attribute(number, attribute::DATA)? else { return Ok(()) };
    let mut header = vec![0; HEADER_LENGTH.min(stream.written()) as usize];
    stream.read(clusters, 0, &mut header)?;
    let is_over =
        header.iter().all(|byte| *byte == 0) || header.starts_with(b"wake") || header.starts_with(b"WAKE");
    match is_over {
        true => Ok(()),
        false => Err(needs_recovery(
            "hiberfil.sys contains a hibernated or fast-started Windows: shut it down completely",
            REMEDY,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(parent: u64, name: &str) -> Vec<u8> {
        let mut value = vec![0; 66];
        value[..8].copy_from_slice(&(parent | 5 << 48).to_le_bytes());
        value[NAME_LENGTH_OFFSET] = name.encode_utf16().count() as u8;
        value.extend(name.encode_utf16().flat_map(u16::to_le_bytes));
        value
    }

    /// A record of a file with these names.
    fn record(names: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        bytes[..4].copy_from_slice(b"FILE");
        (bytes[4], bytes[6], bytes[20], bytes[22]) = (48, 3, 56, 1);
        let mut at = 56;
        for value in names {
            let length = (24 + value.len()).next_multiple_of(8);
            bytes[at] = attribute::FILE_NAME as u8;
            bytes[at + 4] = length as u8;
            (bytes[at + 16], bytes[at + 20]) = (value.len() as u8, 24);
            bytes[at + 24..][..value.len()].copy_from_slice(value);
            at += length;
        }
        bytes[at..at + 4].fill(0xff);
        bytes[24..26].copy_from_slice(&(at as u16 + 8).to_le_bytes());
        bytes
    }

    #[test]
    fn a_second_name_does_not_hide_a_hibernated_system() {
        let own = name(ROOT, "hiberfil.sys");
        for (names, is_volatile, is_hibernation) in [
            (vec![own.clone()], Some(HIBERNATION), true),
            (vec![own.clone(), name(64, "other")], None, true),
            (vec![name(64, "other"), own], None, true),
            (vec![name(ROOT, "pagefile.sys")], Some("pagefile.sys"), false),
            (vec![name(64, "hiberfil.sys")], None, false),
        ] {
            let mut bytes = record(&names);
            let record = Record::parse(&mut bytes, 0).unwrap().unwrap();
            assert_eq!(only_name(record).unwrap(), is_volatile, "{names:?}");
            assert_eq!(has_hibernation_name(record).unwrap(), is_hibernation, "{names:?}");
        }
    }

    #[test]
    fn only_names_in_the_root_directory_count() {
        assert_eq!(volatile_name_in_root(&name(ROOT, "pagefile.sys")), Some("pagefile.sys"));
        assert_eq!(volatile_name_in_root(&name(ROOT, "SWAPFILE.SYS")), Some("swapfile.sys"));
        assert_eq!(volatile_name_in_root(&name(ROOT, "Hiberfil.sys")), Some(HIBERNATION));
        for (parent, other) in
            [(64, "pagefile.sys"), (ROOT, "pagefile.sys2"), (ROOT, "pagefile.sy"), (ROOT, "pagefile.syſ")]
        {
            assert_eq!(volatile_name_in_root(&name(parent, other)), None);
        }
        assert_eq!(volatile_name_in_root(&name(ROOT, "pagefile.sys")[..80]), None);
        assert_eq!(volatile_name_in_root(&[]), None);
    }
}
