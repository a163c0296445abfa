//! The master file table: reads records, and finds the parts of an attribute that is spread over several.
//!
//! The table is a file itself, described by its record 0. If it has many runs, then record 0 names other records of the
//! table that have the rest; each of them must lie in the runs that are known before it is needed.

use std::sync::Arc;

use platter_image::{Error, Result};

use super::attribute::{self, Attribute, UNNAMED};
use super::boot_sector::BootSector;
use super::record::{Record, reference, wrong};
use super::stream::Stream;
use crate::clusters::Clusters;
use crate::fields::{le16, le32, le64};

/// The number of the table's own record.
const OWN: u64 = 0;
/// Records are read in pieces of this many bytes: a multiple of the length of a record.
const READ_LENGTH: u64 = 1 << 20;
/// A longer list of attributes is invalid; in bytes. Windows allows 256 KiB.
const LIST_LENGTH_MAX: u64 = 1 << 20;

/// The kind and the name of an attribute.
pub(super) type Id = (u32, &'static [u8]);

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
        let Some(list) = table.list(OWN, record)? else { return Ok(table) };
        let id = (attribute::DATA, UNNAMED);
        for (number, first) in parts(&list, id).filter(|(number, _)| *number != OWN) {
            let mut stream = Stream::clone(&table.stream);
            table.push_part(OWN, (number, first), id, &mut stream)?;
            table.stream = Arc::new(stream);
        }
        match table.stream.clusters().saturating_mul(clusters.size()) < table.stream.written() {
            true => Err(wrong(OWN, "it lacks runs")),
            false => Ok(table),
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
    pub(super) fn named_attribute(&self, number: u64, id: Id) -> Result<Option<Stream>> {
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
                Some(stream) => self.push_part(number, (part, first), id, stream)?,
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

    fn first_part(&self, number: u64, record: Record<'_>, id: Id) -> Result<Option<Stream>> {
        let found = record.find_named(id.0, id.1).map_err(|error| wrong(number, &error.to_string()))?;
        found.map(|attribute| self.stream_of(number, attribute)).transpose()
    }

    /// The first part of an attribute, in another record than the file's own.
    fn other_part(&self, number: u64, part: u64, id: Id) -> Result<Option<Stream>> {
        let mut buffer = Vec::new();
        let record = self.part(number, part, &mut buffer)?;
        self.first_part(part, record, id)
    }

    fn push_part(&self, number: u64, (part, first): (u64, u64), id: Id, stream: &mut Stream) -> Result<()> {
        let mut buffer = Vec::new();
        let record = self.part(number, part, &mut buffer)?;
        let of_record = |error: Error| wrong(part, &error.to_string());
        let mut found = None;
        record
            .for_each(|attribute| {
                if attribute.kind() == id.0 && attribute.name() == Some(id.1) {
                    let extended = attribute.extended(self.clusters.count(), self.clusters.size())?;
                    found = found.take().or(extended.filter(|extended| extended.first == first));
                }
                Ok(())
            })
            .map_err(of_record)?;
        let found = found.ok_or_else(|| wrong(part, "it lacks a part of an attribute"))?;
        stream.push(first, &found.runs).map_err(of_record)
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

/// The parts of an attribute according to a list: the record, and the first cluster.
fn parts(list: &[u8], id: Id) -> impl Iterator<Item = (u64, u64)> + '_ {
    let mut rest = list;
    let entries = std::iter::from_fn(move || {
        let length = usize::from(le16(rest, 4));
        let entry = rest.get(..length).filter(|_| length >= 26)?;
        rest = &rest[length..];
        Some(entry)
    });
    let wanted = entries.filter(move |entry| {
        let name = entry.get(usize::from(entry[7])..).and_then(|rest| rest.get(..2 * usize::from(entry[6])));
        let name = if entry[6] == 0 { Some(UNNAMED) } else { name };
        le32(entry, 0) == id.0 && name == Some(id.1)
    });
    wanted.map(|entry| (reference(entry, 16).unwrap_or(0), le64(entry, 8)))
}
