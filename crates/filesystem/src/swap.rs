//! Swap areas: only the header, one page, outlives a boot, unless a hibernated system is stored in the area.
//!
//! The last ten bytes of the first page are the magic. The header's fields start at 1024: version (1), number
//! of the last page, number of bad pages, UUID at 1036, label at 1052. A hibernated system has another magic
//! in the same place; then the whole area is kept.

use platter_image::{Extent, Extents};

use crate::Contents;
use crate::fields::{has, le32, text, uuid};

/// The header is in the first bytes of an area, at most so many.
pub(crate) const HEADER_LENGTH_MAX: u64 = 65536;

/// The header of a swap area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Page size in bytes: 4096 to 65536, a power of two.
    page_size: u32,
    /// The magic's name if a hibernated system is stored.
    hibernated: Option<&'static str>,
    /// The magic was also found at the ends of pages of other sizes.
    is_ambiguous: bool,
    version: u32,
    last_page: u32,
    uuid: Option<String>,
    label: Option<String>,
}

impl Header {
    /// Finds the header in the first bytes of an extent.
    pub(crate) fn find(start: &[u8]) -> Option<Self> {
        if has(start, 0, b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c") {
            return Some(Self::parse(start, 4096, Some("TuxOnIce")));
        }
        let mut headers = [4096, 8192, 16384, 32768, 65536].into_iter().filter_map(|page_size| {
            let magic = page_size - 10;
            let hibernated = ["S1SUSPEND", "S2SUSPEND", "ULSUSPEND", "LINHIB0001"]
                .into_iter()
                .find(|name| has(start, magic, name.as_bytes()));
            let is_swap = has(start, magic, b"SWAPSPACE2") || has(start, magic, b"SWAP-SPACE");
            (is_swap || hibernated.is_some()).then(|| Self::parse(start, page_size, hibernated))
        });
        let first = headers.next()?;
        Some(Self { is_ambiguous: headers.next().is_some(), ..first })
    }

    fn parse(start: &[u8], page_size: usize, hibernated: Option<&'static str>) -> Self {
        Self {
            page_size: page_size as u32,
            hibernated,
            is_ambiguous: false,
            version: le32(start, 1024),
            last_page: le32(start, 1028),
            uuid: uuid(start, 1036),
            label: start.get(1052..1068).and_then(text),
        }
    }

    /// The magic's name if a hibernated system is stored.
    pub(crate) fn hibernated(&self) -> Option<&'static str> {
        self.hibernated
    }

    /// Its UUID, if it has one.
    pub fn uuid(&self) -> Option<&str> {
        self.uuid.as_deref()
    }

    /// Its label, if it has one.
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    fn is_current(&self) -> bool {
        self.version == 1
    }
}

/// Which bytes of a swap area are kept: its first page, and everything after its last page.
pub(crate) fn examine(header: &Header, extent: Extent) -> Contents {
    let named = |contents: Contents| Contents {
        block_size: header.page_size,
        uuid: header.uuid.clone(),
        label: header.label.clone(),
        ..contents
    };
    if let Some(magic) = header.hibernated {
        let note = format!("stored in full: it contains a hibernated system ({magic})");
        return named(Contents::whole("swap", extent).with_note(note));
    }
    if header.is_ambiguous {
        let note = "stored in full: its magic was found for several page sizes";
        return named(Contents::whole("swap", extent).with_note(note));
    }
    let page = u64::from(header.page_size);
    let length = (u64::from(header.last_page) + 1) * page;
    if !header.is_current() || header.last_page == 0 || length > extent.length {
        let note = format!(
            "stored in full: its header (version {}, {length} bytes) does not fit its place of {} bytes",
            header.version, extent.length
        );
        return named(Contents::whole("swap", extent).with_note(note));
    }
    let first = Extent::new(extent.offset, page);
    let behind = Extent::between(extent.offset + length, extent.end());
    let allocated = Extents::from_unsorted(vec![first, behind]);
    named(Contents { filesystem: "swap".to_owned(), allocated, ..Contents::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Found, Owners, Trust, probe};

    fn area(page: usize, magic: &[u8], pages: u32) -> Vec<u8> {
        let mut area = vec![0xaa; page * 20 + 512];
        area[..page].fill(0);
        area[page - 10..page - 10 + magic.len()].copy_from_slice(magic);
        area[1024..1028].copy_from_slice(&1_u32.to_le_bytes());
        area[1028..1032].copy_from_slice(&(pages - 1).to_le_bytes());
        area[1052..1056].copy_from_slice(b"swap");
        area
    }

    fn contents(disk: &Vec<u8>, trust: Trust<'_>) -> Contents {
        let extent = Extent::new(0, disk.len() as u64);
        let owners = Owners::find(disk, extent).unwrap();
        crate::examine(disk, extent, &owners, trust, crate::ExamineOptions::default()).unwrap()
    }

    #[test]
    fn only_the_header_is_kept() {
        for page in [4096, 8192, 65536] {
            let disk = area(page, b"SWAPSPACE2", 20);
            let found = contents(&disk, Trust::Sole);
            let page = page as u64;
            let expected = vec![Extent::new(0, page), Extent::new(page * 20, 512)];
            assert_eq!(found.allocated, Extents::from_unsorted(expected));
            assert_eq!((found.filesystem.as_str(), found.label.as_deref()), ("swap", Some("swap")));
            for trust in [Trust::Kept, Trust::Doubted("a reason")] {
                let found = contents(&disk, trust);
                assert_eq!(found.allocated.total(), disk.len() as u64);
                assert_eq!(found.notes.len(), usize::from(trust != Trust::Kept));
            }
        }
    }

    #[test]
    fn a_hibernated_system_is_kept_in_full() {
        for magic in ["S1SUSPEND", "S2SUSPEND", "ULSUSPEND", "LINHIB0001"] {
            let disk = area(4096, magic.as_bytes(), 20);
            let found = contents(&disk, Trust::Sole);
            assert_eq!(found.allocated.total(), disk.len() as u64);
            assert!(found.notes[0].contains(magic));
        }
        let too_long = area(4096, b"SWAPSPACE2", 1000);
        assert_eq!(contents(&too_long, Trust::Sole).allocated.total(), too_long.len() as u64);
        let mut two_sizes = area(65536, b"SWAPSPACE2", 10);
        two_sizes[4086..4096].copy_from_slice(b"SWAPSPACE2");
        assert_eq!(contents(&two_sizes, Trust::Sole).allocated.total(), two_sizes.len() as u64);
    }

    #[test]
    fn an_area_with_two_owners_is_kept_in_full() {
        let mut disk = area(4096, b"SWAPSPACE2", 20);
        disk[..4].copy_from_slice(b"XFSB");
        let extent = Extent::new(0, disk.len() as u64);
        assert_eq!(probe(&disk, extent).unwrap(), Found::Ambiguous(vec!["xfs", "swap"]));
        assert_eq!(contents(&disk, Trust::Sole).allocated.total(), extent.length);
    }
}
