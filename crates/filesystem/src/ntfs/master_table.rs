//! The master file table: reads records, and finds the parts of an attribute that is spread over several.
//!
//! The table is a file itself, described by its record 0. If it has many runs, then record 0 names other records of the
//! table that have the rest; each of them must lie in the runs that are known before it is needed. It has no holes, and not more
//! clusters than the volume, so it has no more records than there is room for.

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_image::{Error, Result};

use super::attribute::{self, Attribute, UNNAMED};
use super::boot_sector::BootSector;
use super::record::{Record, reference, wrong};
use super::runs::Run;
use super::stream::Stream;
use crate::clusters::Clusters;
use crate::fields::{has, le16, le32, le64};

/// The number of the table's own record.
const OWN: u64 = 0;
/// Records are read in pieces of this many bytes: a multiple of the length of a record.
const READ_LENGTH: u64 = 1 << 20;
/// A longer list of attributes is invalid; in bytes. Windows allows 256 KiB.
const LIST_LENGTH_MAX: u64 = 1 << 20;

/// A table with more runs is not read; so many take 32 MiB of memory. Tables of Windows have far less.
const OWN_RUNS_MAX: usize = 1 << 20;

/// The kind and the name of an attribute.
pub(super) type Id<'n> = (u32, &'n [u8]);

/// The master file table of a volume.
pub(super) struct MasterTable<'c, 'd> {
    clusters: &'c Clusters<'d>,
    record_size: u64,
    stream: Arc<Stream>,
}

impl<'c, 'd> MasterTable<'c, 'd> {
    /// Finds all parts of the table.
    ///
    /// # Errors
    /// `Corrupt` if record 0 or a part is invalid; errors of reading the disk.
    pub(super) fn open(clusters: &'c Clusters<'d>, boot: &BootSector) -> Result<Self> {
        let mut bytes = vec![0; boot.record_size as usize];
        clusters.read(boot.master_table, 0, &mut bytes)?;
        let record = Record::parse(&mut bytes, OWN)?.ok_or_else(|| wrong(OWN, "it is not in use"))?;
        let mut table = Self::with_runs(clusters, boot, Arc::new(Stream::Resident(Vec::new())));
        let first = table.first_part(OWN, record, (attribute::DATA, UNNAMED))?;
        table.stream = Arc::new(first.ok_or_else(|| wrong(OWN, "it has no contents"))?);
        table.check(0)?;
        let (list, id) = (table.list(OWN, record)?, (attribute::DATA, UNNAMED));
        for (number, first) in
            list.iter().flat_map(|list| parts(list, id)).filter(|(number, _)| *number != OWN)
        {
            let known = table.stream.run_count();
            let runs = table.part_runs(OWN, (number, first), id)?;
            let stream = Arc::make_mut(&mut table.stream);
            stream.push(first, &runs).map_err(|error| wrong(number, &error.to_string()))?;
            table.check(known)?;
        }
        match table.stream.clusters().saturating_mul(clusters.size()) < table.stream.written() {
            true => Err(wrong(OWN, "it lacks runs")),
            false => Ok(table),
        }
    }

    /// Checks the runs of the table from one on.
    fn check(&self, first: usize) -> Result<()> {
        let Stream::Extended { runs, .. } = &*self.stream else { return Ok(()) };
        if let Some((at, _)) = runs[first..].iter().find(|(_, run)| run.cluster.is_none()) {
            return Err(wrong(OWN, &format!("it has a hole at its cluster {at}")));
        }
        match (self.stream.clusters(), self.clusters.count()) {
            (own, all) if own > all => {
                Err(wrong(OWN, &format!("it has {own} clusters, the volume only {all}")))
            }
            _ if runs.len() > OWN_RUNS_MAX => {
                Err(wrong(OWN, &format!("it has more than {OWN_RUNS_MAX} runs")))
            }
            _ => Ok(()),
        }
    }

    /// A table whose runs are already known.
    pub(super) fn with_runs(clusters: &'c Clusters<'d>, boot: &BootSector, stream: Arc<Stream>) -> Self {
        Self { clusters, record_size: boot.record_size, stream }
    }

    /// The runs of the table.
    pub(super) fn runs(&self) -> Arc<Stream> {
        self.stream.clone()
    }

    /// The number of records that were written.
    pub(super) fn records(&self) -> u64 {
        self.stream.written() / self.record_size
    }

    /// The end of the last record in bytes, even if it lies after the initialized part. Some drivers read such a record.
    ///
    /// # Errors
    /// Those of reading the disk.
    pub(super) fn end(&self) -> Result<u64> {
        let size = self.record_size;
        let (start, mut end) = (self.records() * size, self.stream.written());
        let rest = (self.stream.clusters().saturating_mul(self.clusters.size())).saturating_sub(start);
        let mut buffer = Vec::new();
        for offset in (start..start + rest).step_by(READ_LENGTH as usize) {
            buffer.resize(READ_LENGTH.min(start + rest - offset) as usize, 0);
            self.stream.read(self.clusters, offset, &mut buffer)?;
            let last = buffer.chunks(size as usize).rposition(|bytes| has(bytes, 0, b"FILE"));
            end = last.map_or(end, |last| end.max(offset + (last as u64 + 1) * size));
        }
        Ok(end)
    }

    /// Passes all records in use to `visit`, with their numbers.
    ///
    /// # Errors
    /// `Corrupt` if one is invalid; errors of `visit` and of reading the disk.
    pub(super) fn for_each(&self, mut visit: impl FnMut(u64, Record<'_>) -> Result<()>) -> Result<()> {
        let per_read = READ_LENGTH / self.record_size;
        let mut buffer = Vec::new();
        for first in (0..self.records()).step_by(per_read as usize) {
            let count = per_read.min(self.records() - first);
            buffer.resize((count * self.record_size) as usize, 0);
            self.stream.read(self.clusters, first * self.record_size, &mut buffer)?;
            for (number, bytes) in (first..).zip(buffer.chunks_exact_mut(self.record_size as usize)) {
                if let Some(record) = Record::parse(bytes, number)? {
                    visit(number, record)?;
                }
            }
        }
        Ok(())
    }

    /// Reads the record with that number into `buffer`; `None` if it is not in use.
    ///
    /// # Errors
    /// `Corrupt` if it is invalid or does not exist; errors of reading the disk.
    pub(super) fn record<'b>(&self, number: u64, buffer: &'b mut Vec<u8>) -> Result<Option<Record<'b>>> {
        let end = number.saturating_add(1).saturating_mul(self.record_size);
        if number >= self.records() || end > self.stream.clusters().saturating_mul(self.clusters.size()) {
            return Err(wrong(number, "it does not exist"));
        }
        buffer.resize(self.record_size as usize, 0);
        self.stream.read(self.clusters, number * self.record_size, buffer)?;
        Record::parse(buffer, number)
    }

    /// The contents of a file's attribute without a name, with all its parts; `None` if it has none.
    ///
    /// # Errors
    /// `Corrupt` if a part is invalid or missing; errors of reading the disk.
    pub(super) fn attribute(&self, number: u64, kind: u32) -> Result<Option<Stream>> {
        self.named_attribute(number, (kind, UNNAMED))
    }

    /// The same for an attribute with a kind and a name.
    ///
    /// # Errors
    /// Those of [`Self::attribute`].
    pub(super) fn named_attribute(&self, number: u64, id: Id<'_>) -> Result<Option<Stream>> {
        let kind = id.0;
        let mut buffer = Vec::new();
        let Some(record) = self.record(number, &mut buffer)? else {
            return Err(wrong(number, "it is not in use"));
        };
        let mut stream = self.first_part(number, record, id)?;
        for (part, first) in self.list(number, record)?.iter().flat_map(|list| parts(list, id)) {
            match &mut stream {
                // The first part is in the file's own record.
                Some(_) if part == number => {}
                Some(stream) => {
                    let runs = self.part_runs(number, (part, first), id)?;
                    stream.push(first, &runs).map_err(|error| wrong(part, &error.to_string()))?;
                }
                None => stream = self.other_part(number, part, id)?,
            }
        }
        if let Some(stream) = &stream {
            let length = stream.clusters().saturating_mul(self.clusters.size());
            if !matches!(stream, Stream::Resident(_)) && length < stream.written() {
                return Err(wrong(number, &format!("its attribute of type {kind:#x} lacks runs")));
            }
        }
        Ok(stream)
    }

    /// The names in UTF-16 of a file's contents besides those without a name.
    ///
    /// # Errors
    /// `Corrupt` if its record or its list of attributes is invalid; errors of reading the disk.
    pub(super) fn stream_names(&self, number: u64) -> Result<BTreeSet<Vec<u8>>> {
        let mut buffer = Vec::new();
        let Some(record) = self.record(number, &mut buffer)? else {
            return Err(wrong(number, "it is not in use"));
        };
        let mut names = BTreeSet::new();
        let mut add = |kind, name: Option<&[u8]>| {
            let name = name.filter(|name| kind == attribute::DATA && *name != UNNAMED);
            names.extend(name.map(<[u8]>::to_vec));
        };
        record
            .for_each(|attribute| {
                add(attribute.kind(), attribute.name());
                Ok(())
            })
            .map_err(|error| wrong(number, &error.to_string()))?;
        for entry in self.list(number, record)?.iter().flat_map(|list| entries(list)) {
            add(le32(entry, 0), name_of(entry));
        }
        Ok(names)
    }

    /// Whether a file has attributes of that kind without a name in other records than its own.
    ///
    /// # Errors
    /// `Corrupt` if its record or its list of attributes is invalid; errors of reading the disk.
    pub(super) fn has_other_parts(&self, number: u64, kind: u32) -> Result<bool> {
        let mut buffer = Vec::new();
        let Some(record) = self.record(number, &mut buffer)? else {
            return Err(wrong(number, "it is not in use"));
        };
        let list = self.list(number, record)?;
        Ok(list.iter().flat_map(|list| parts(list, (kind, UNNAMED))).any(|(part, _)| part != number))
    }

    fn stream_of(&self, number: u64, attribute: Attribute<'_>) -> Result<Stream> {
        let of_record = |error: Error| wrong(number, &error.to_string());
        if let Some(value) = attribute.value().map_err(of_record)? {
            return Ok(Stream::Resident(value.to_vec()));
        }
        let extended = attribute.extended(self.clusters.count(), self.clusters.size()).map_err(of_record)?;
        let extended = extended.ok_or_else(|| wrong(number, "an attribute has no place"))?;
        let mut stream = Stream::extended(extended.length, extended.initialized, attribute.coding());
        stream.push(extended.first, &extended.runs).map_err(of_record)?;
        Ok(stream)
    }

    fn first_part(&self, number: u64, record: Record<'_>, id: Id<'_>) -> Result<Option<Stream>> {
        let found = record.find_named(id.0, id.1).map_err(|error| wrong(number, &error.to_string()))?;
        found.map(|attribute| self.stream_of(number, attribute)).transpose()
    }

    /// The first part of an attribute, in another record than the file's own.
    fn other_part(&self, number: u64, part: u64, id: Id<'_>) -> Result<Option<Stream>> {
        let mut buffer = Vec::new();
        let record = self.part(number, part, &mut buffer)?;
        self.first_part(part, record, id)
    }

    /// The runs of the part of an attribute that begins at its cluster `first`.
    fn part_runs(&self, number: u64, (part, first): (u64, u64), id: Id<'_>) -> Result<Vec<Run>> {
        let mut buffer = Vec::new();
        let record = self.part(number, part, &mut buffer)?;
        let of_record = |error: Error| wrong(part, &error.to_string());
        let mut found = None;
        record
            .for_each(|attribute| {
                let is_it = attribute.kind() == id.0 && attribute.name() == Some(id.1);
                if is_it && attribute.first() == Some(first) && found.is_none() {
                    found = attribute.extended(self.clusters.count(), self.clusters.size())?;
                }
                Ok(())
            })
            .map_err(of_record)?;
        found.map(|found| found.runs).ok_or_else(|| wrong(part, "it lacks a part of an attribute"))
    }

    /// A record that belongs to the file `number`.
    fn part<'b>(&self, number: u64, part: u64, buffer: &'b mut Vec<u8>) -> Result<Record<'b>> {
        let record = self.record(part, buffer)?;
        let record = record.filter(|record| part == number || record.base() == Some(number));
        record.ok_or_else(|| wrong(part, &format!("it is not a part of the file {number}")))
    }

    /// The list of attributes of a file, if it has one.
    fn list(&self, number: u64, record: Record<'_>) -> Result<Option<Vec<u8>>> {
        let Some(stream) = self.first_part(number, record, (attribute::LIST, UNNAMED))? else {
            return Ok(None);
        };
        let length = stream.written();
        if length > LIST_LENGTH_MAX {
            return Err(wrong(number, &format!("its list of attributes has {length} bytes")));
        }
        let mut list = vec![0; length as usize];
        stream.read(self.clusters, 0, &mut list)?;
        Ok(Some(list))
    }
}

/// The entries of a list of attributes.
fn entries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let length = usize::from(le16(rest, 4));
        let entry = rest.get(..length).filter(|_| length >= 26)?;
        rest = &rest[length..];
        Some(entry)
    })
}

/// The name in UTF-16 of the attribute in an entry of a list; `None` if it does not lie in it.
fn name_of(entry: &[u8]) -> Option<&[u8]> {
    match entry[6] {
        0 => Some(UNNAMED),
        length => entry.get(usize::from(entry[7])..)?.get(..2 * usize::from(length)),
    }
}

/// The parts of an attribute according to a list: the record, and the first cluster.
fn parts<'l>(list: &'l [u8], id: Id<'l>) -> impl Iterator<Item = (u64, u64)> + 'l {
    let wanted = entries(list).filter(move |entry| le32(entry, 0) == id.0 && name_of(entry) == Some(id.1));
    wanted.map(|entry| (reference(entry, 16).unwrap_or(0), le64(entry, 8)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::Extent;

    const RECORD: usize = 1024;
    const CLUSTER: u64 = 4096;

    /// An attribute of that kind with runs, or with this value.
    fn attribute(kind: u32, first: u64, clusters: u64, runs: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; (64 + runs.len()).next_multiple_of(8)];
        let length = bytes.len() as u32;
        let size = if first == 0 { clusters * CLUSTER } else { 0 };
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        (bytes[8], bytes[32]) = (1, 64);
        for (at, value) in
            [(16, first), (24, (first + clusters).wrapping_sub(1)), (40, size), (48, size), (56, size)]
        {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes[64..64 + runs.len()].copy_from_slice(runs);
        bytes
    }

    /// A list of the parts of contents: the record, and the first cluster.
    fn list(parts: &[(u8, u8)]) -> Vec<u8> {
        let mut bytes = vec![0; 24 + 32 * parts.len()];
        let length = bytes.len() as u8;
        (bytes[0], bytes[4], bytes[16], bytes[20]) = (0x20, length, length - 24, 24);
        for (entry, (record, first)) in bytes[24..].chunks_exact_mut(32).zip(parts) {
            (entry[0], entry[4], entry[8], entry[16]) = (0x80, 32, *first, *record);
        }
        bytes
    }

    fn record(number: u8, base: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        let attributes = attributes.concat();
        let used = 56 + attributes.len() as u16;
        let mut bytes = vec![0; RECORD];
        bytes[..4].copy_from_slice(b"FILE");
        (bytes[4], bytes[6], bytes[20], bytes[22], bytes[32], bytes[44]) = (48, 3, 56, 1, base, number);
        // The upper part of a reference counts how often a record was used.
        bytes[38] = 1;
        bytes[24..26].copy_from_slice(&used.to_le_bytes());
        bytes[56..usize::from(used)].copy_from_slice(&attributes);
        bytes
    }

    /// Opens the table of a volume of 64 clusters with these records from cluster 1 on; the number of its records.
    fn open(records: &[Vec<u8>]) -> std::result::Result<u64, String> {
        let mut disk = vec![0; CLUSTER as usize];
        disk.extend(records.concat());
        disk.resize(64 * CLUSTER as usize, 0);
        let clusters = Clusters::new(&disk, Extent::new(0, 64 * CLUSTER), 0, (CLUSTER, 64), 0).unwrap();
        let boot = BootSector {
            cluster_size: CLUSTER,
            clusters: 64,
            record_size: RECORD as u64,
            master_table: 1,
            length: 64 * CLUSTER,
            serial: String::new(),
        };
        let table = MasterTable::open(&clusters, &boot).map_err(|error| error.to_string())?;
        Ok(table.records())
    }

    #[test]
    fn parts_of_the_table_are_found() {
        let first = attribute(attribute::DATA, 0, 2, b"\x11\x02\x01\0");
        let mut own = record(0, 0, &[list(&[(0, 0), (4, 2)]), first]);
        // The lengths are those of the whole table.
        for at in [40, 48, 56] {
            let attribute = 56 + 24 + 64;
            own[attribute + at..attribute + at + 8].copy_from_slice(&(3 * CLUSTER).to_le_bytes());
        }
        let part = record(4, 0, &[attribute(attribute::DATA, 2, 1, b"\x11\x01\x20\0")]);
        let empty = vec![0; RECORD];
        let records = [own, empty.clone(), empty.clone(), empty, part];
        assert_eq!(open(&records), Ok(12));
        let error = open(&records[..4]).unwrap_err();
        assert!(error.contains("record 4"), "{error}");
    }

    /// Few bytes can state a table of many records, all of which would be read.
    #[test]
    fn a_table_is_not_larger_than_the_volume() {
        let data = |clusters, runs: &[u8]| record(0, 0, &[attribute(attribute::DATA, 0, clusters, runs)]);
        assert_eq!(open(&[data(4, b"\x11\x04\x01\0")]), Ok(16));
        let hole = data(4 + (1 << 40), b"\x11\x04\x01\x06\0\0\0\0\0\x01\0");
        let twice = data(80, b"\x11\x28\x01\x11\x28\0\0");
        let mut longer = data(4, b"\x11\x04\x01\0");
        for at in [40, 48, 56] {
            longer[56 + at + 5] = 1;
        }
        for (own, reason) in [
            (hole, "it has a hole at its cluster 4"),
            (twice, "it has 80 clusters, the volume only 64"),
            (longer, "it lacks runs"),
        ] {
            let error = open(&[own]).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
