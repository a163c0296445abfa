//! Files whose contents mean nothing after a shutdown: page files, and the image of a hibernated system.
//!
//! A file counts only if all its names are the one that Windows gives it, in the root directory. So a file of a user
//! elsewhere, or one with a second name, is like any other. A hibernated system is looked for in every file with its name.

use platter_image::{Error, Result};

use super::attribute;
use super::examine::REMEDY;
use super::master_table::MasterTable;
use super::record::{Record, reference};
use crate::clusters::Clusters;
use crate::fields::le16;
use crate::reader::needs_recovery;

/// The record of the root directory.
const ROOT: u64 = 5;
/// A name's length in characters is here, and its characters follow after a byte.
const NAME_LENGTH_OFFSET: usize = 64;
const NAME_OFFSET: usize = 66;
/// A hibernated system has a header of this many bytes.
const HEADER_LENGTH: u64 = 4096;

/// What a volatile file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Paging,
    Hibernation,
}

const NAMES: [(&[u8], Kind); 3] =
    [(b"pagefile.sys", Kind::Paging), (b"swapfile.sys", Kind::Paging), (b"hiberfil.sys", Kind::Hibernation)];

/// Whether a file's own record is that of a volatile file.
///
/// # Errors
/// `Corrupt` if a name is invalid.
pub(super) fn kind(record: Record<'_>) -> Result<Option<Kind>> {
    let (mut found, mut is_only) = (None, true);
    record.for_each(|attribute| {
        if attribute.kind() != attribute::FILE_NAME {
            return Ok(());
        }
        let value = attribute.value()?.ok_or_else(|| Error::corrupt("its name is in runs"))?;
        let kind = kind_of_name(value);
        is_only &= kind.is_some() && (found.is_none() || found == kind);
        found = kind;
        Ok(())
    })?;
    Ok(found.filter(|_| is_only))
}

/// Whether a record names its file as the image of a hibernated system, whatever other names it has.
///
/// # Errors
/// `Corrupt` if a name is invalid.
pub(super) fn has_hibernation_name(record: Record<'_>) -> Result<bool> {
    let mut found = false;
    record.for_each(|attribute| {
        if attribute.kind() == attribute::FILE_NAME {
            found |= attribute.value()?.and_then(kind_of_name) == Some(Kind::Hibernation);
        }
        Ok(())
    })?;
    Ok(found)
}

fn kind_of_name(value: &[u8]) -> Option<Kind> {
    let length = usize::from(*value.get(NAME_LENGTH_OFFSET)?);
    let name = value.get(NAME_OFFSET..)?.get(..2 * length)?;
    if reference(value, 0) != Some(ROOT) {
        return None;
    }
    let is_same = |known: &[u8]| {
        known.len() == length
            && name.chunks_exact(2).zip(known).all(|(unit, byte)| {
                le16(unit, 0) == u16::from(*byte) || le16(unit, 0) == u16::from(byte.to_ascii_uppercase())
            })
    };
    NAMES.iter().find(|(known, _)| is_same(known)).map(|(_, kind)| *kind)
}

/// Checks that the image of a hibernated system is not valid. Its header is zeros if there is none, and has the mark
/// `wake` after a system has continued from it.
///
/// # Errors
/// `Refused` if a hibernated system is stored; `Corrupt`; errors of reading the disk.
pub(super) fn check_hibernation(
    table: &MasterTable<'_, '_>,
    clusters: &Clusters<'_>,
    number: u64,
) -> Result<()> {
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
            (vec![own.clone()], Some(Kind::Hibernation), true),
            (vec![own.clone(), name(64, "other")], None, true),
            (vec![name(64, "other"), own], None, true),
            (vec![name(ROOT, "pagefile.sys")], Some(Kind::Paging), false),
            (vec![name(64, "hiberfil.sys")], None, false),
        ] {
            let mut bytes = record(&names);
            let record = Record::parse(&mut bytes, 0).unwrap().unwrap();
            assert_eq!(kind(record).unwrap(), is_volatile, "{names:?}");
            assert_eq!(has_hibernation_name(record).unwrap(), is_hibernation, "{names:?}");
        }
    }

    #[test]
    fn only_names_in_the_root_directory_count() {
        assert_eq!(kind_of_name(&name(ROOT, "pagefile.sys")), Some(Kind::Paging));
        assert_eq!(kind_of_name(&name(ROOT, "SWAPFILE.SYS")), Some(Kind::Paging));
        assert_eq!(kind_of_name(&name(ROOT, "Hiberfil.sys")), Some(Kind::Hibernation));
        for (parent, other) in
            [(64, "pagefile.sys"), (ROOT, "pagefile.sys2"), (ROOT, "pagefile.sy"), (ROOT, "pagefile.syſ")]
        {
            assert_eq!(kind_of_name(&name(parent, other)), None);
        }
        assert_eq!(kind_of_name(&name(ROOT, "pagefile.sys")[..80]), None);
        assert_eq!(kind_of_name(&[]), None);
    }
}
