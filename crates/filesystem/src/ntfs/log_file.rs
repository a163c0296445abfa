//! The log of changes to metadata: whether everything in it was applied.
//!
//! It begins with two restart pages, of which the one with the higher sequence number counts. A page has the mark RSTR,
//! its length at 16, and the offset of its restart area at 24; the area has the sequence number at 0, the first client
//! that uses the log at 12 (0xffff: none), and flags at 14. A log full of ones is empty.

use platter_image::{Error, Result};

use super::examine::REMEDY;
use super::record::mend;
use super::stream::Stream;
use crate::clusters::Clusters;
use crate::fields::{has, le16, le32, le64};
use crate::reader::needs_recovery;

/// An empty log is recognized by this many bytes.
const EMPTY_LENGTH: u64 = 64 << 10;
const NO_CLIENT: u16 = 0xffff;
const FLAG_CLEAN: u16 = 2;
const PAGE_LENGTHS: std::ops::RangeInclusive<usize> = 512..=65536;

/// Checks that the log contains nothing to apply.
///
/// # Errors
/// `Refused` if it does; `Corrupt` if it has no valid restart page; errors of reading the disk.
pub(super) fn check(log: &Stream, clusters: &Clusters<'_>) -> Result<()> {
    let length = log.length().min(2 * EMPTY_LENGTH);
    let mut bytes = vec![0; length as usize];
    log.read(clusters, 0, &mut bytes)?;
    if bytes.iter().take(EMPTY_LENGTH as usize).all(|byte| *byte == 0xff) {
        return Ok(());
    }
    let pages = restart_pages(&mut bytes);
    let current = pages.into_iter().flatten().max_by_key(|page| page.sequence);
    match current {
        Some(page) if page.client == NO_CLIENT || page.flags & FLAG_CLEAN != 0 => Ok(()),
        Some(_) => Err(needs_recovery("its log contains changes that were not applied yet", REMEDY)),
        None => Err(Error::corrupt("its log has no valid restart page")),
    }
}

#[derive(Clone, Copy)]
struct RestartPage {
    sequence: u64,
    client: u16,
    flags: u16,
}

/// The first and the second restart page, if they are valid.
fn restart_pages(bytes: &mut [u8]) -> [Option<RestartPage>; 2] {
    let length = le32(bytes, 16) as usize;
    let is_first = has(bytes, 0, b"RSTR") && length.is_power_of_two() && PAGE_LENGTHS.contains(&length);
    let length = if is_first { length } else { 4096 };
    let mut pages = bytes.chunks_exact_mut(length);
    [pages.next(), pages.next()].map(|page| page.and_then(restart_page))
}

fn restart_page(page: &mut [u8]) -> Option<RestartPage> {
    let is_page = has(page, 0, b"RSTR") && le32(page, 16) as usize == page.len();
    if !is_page || mend(page).is_err() {
        return None;
    }
    let area = page.get(usize::from(le16(page, 24))..).filter(|area| area.len() >= 16)?;
    Some(RestartPage { sequence: le64(area, 0), client: le16(area, 12), flags: le16(area, 14) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::Extent;

    fn page(sequence: u8, client: u16, flags: u16) -> Vec<u8> {
        let mut page = vec![0; 4096];
        page[..4].copy_from_slice(b"RSTR");
        (page[4], page[6], page[17], page[24]) = (30, 9, 16, 48);
        page[48] = sequence;
        page[60..62].copy_from_slice(&client.to_le_bytes());
        page[62..64].copy_from_slice(&flags.to_le_bytes());
        page
    }

    fn checked(log: Vec<u8>) -> Option<String> {
        let disk = vec![0; 4096];
        let clusters = Clusters::new(&disk, Extent::new(0, 4096), 0, (4096, 1), 0).unwrap();
        check(&Stream::Resident(log), &clusters).err().map(|error| error.to_string())
    }

    #[test]
    fn the_newer_page_counts() {
        let (clean, flagged, used) = (page(7, NO_CLIENT, 0), page(7, 0, 2), page(7, 0, 0));
        assert_eq!(checked([clean.clone(), page(6, 0, 0)].concat()), None);
        assert_eq!(checked([flagged, page(6, 0, 0)].concat()), None);
        let dirty = Some("its log contains changes that were not applied yet".to_owned());
        assert_eq!(checked([used.clone(), page(6, NO_CLIENT, 0)].concat()), dirty);
        assert_eq!(checked([page(6, NO_CLIENT, 0), used.clone()].concat()), dirty);
        let mut torn = used;
        torn[511] = 1;
        assert_eq!(checked([torn.clone(), clean].concat()), None);
        assert_eq!(checked([torn.clone(), torn].concat()).unwrap(), "its log has no valid restart page");
        assert_eq!(checked(vec![0xff; 4096]), None);
        assert!(checked(vec![0; 4096]).is_some());
        assert_eq!(checked(Vec::new()), None);
    }
}
