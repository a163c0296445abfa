//! How the bytes of a volume lie on a disk: pieces that are in one place, and pieces that are striped over several places.
//!
//! Owns both directions: it reads a volume as a disk of its own ([`VolumeDisk`]), and translates ranges of the volume to
//! places on the disk below. It trusts that whoever made the layout has checked that all places are on that disk and that
//! none is used twice.

use std::io;

use platter_image::chunking::{FILE_ALIGNMENT, FileRun};
use platter_image::{DiskRead, Error, Extent, Extents, Result, SECTOR};

use crate::file_runs::FILE_RUNS_MAX;
use crate::files::Run;

/// The longest volume. Longer ones could not be added up safely, and no system makes them.
const LENGTH_MAX: u64 = 1 << 62;

/// The most pieces of one file; a file on a striped volume has one for each stripe.
const FILE_PIECES_MAX: usize = 1 << 22;

/// A piece of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    /// Where it is in the volume.
    extent: Extent,
    /// Bytes in one place before the next place has its turn. With one place, the length of the segment.
    stripe: u64,
    /// Where its stripes begin on the disk; never empty.
    places: Vec<u64>,
}

/// Where all bytes of a volume are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// In ascending order, without gaps.
    segments: Vec<Segment>,
}

impl Layout {
    /// Adds a segment at the end: `length` bytes over `places`, with `stripe` bytes in each place in turn.
    ///
    /// # Errors
    /// `Corrupt` if these numbers do not fit together.
    pub(crate) fn add(&mut self, length: u64, stripe: u64, places: Vec<u64>) -> Result<()> {
        let offset = self.length();
        let stripe = if places.len() == 1 { length } else { stripe };
        let row = stripe.checked_mul(places.len() as u64).filter(|row| *row > 0);
        let fits = row.is_some_and(|row| length.is_multiple_of(row));
        let part = length / (places.len() as u64).max(1);
        let is_aligned =
            places.iter().all(|place| place.is_multiple_of(SECTOR)) && stripe.is_multiple_of(SECTOR);
        let is_near = places.iter().all(|place| place.checked_add(part).is_some_and(|end| end <= LENGTH_MAX));
        if !fits || !is_aligned || !is_near || length > LENGTH_MAX - offset.min(LENGTH_MAX) {
            return Err(Error::corrupt(format!(
                "a segment of {length} bytes with {} stripes of {stripe} bytes is not possible",
                places.len()
            )));
        }
        match self.segments.last_mut() {
            // A piece that continues the last one.
            Some(last)
                if last.places.len() == 1
                    && places.len() == 1
                    && last.places[0] + last.extent.length == places[0] =>
            {
                last.extent.length += length;
                last.stripe = last.extent.length;
                return Ok(());
            }
            _ => {}
        }
        self.segments.push(Segment { extent: Extent::new(offset, length), stripe, places });
        Ok(())
    }

    /// The length of the volume in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.extent.end())
    }

    /// The place of its first byte; `None` if it is empty.
    pub(crate) fn first(&self) -> Option<u64> {
        self.segments.first().and_then(|segment| segment.places.first()).copied()
    }

    /// Its place, if it is in one piece.
    pub(crate) fn extent(&self) -> Option<Extent> {
        match &self.segments[..] {
            [Segment { extent, places, .. }] if places.len() == 1 => {
                Some(Extent::new(places[0], extent.length))
            }
            _ => None,
        }
    }

    /// All places of the volume on the disk.
    pub(crate) fn places(&self) -> Extents {
        self.translate(&[Extent::new(0, self.length())].into_iter().collect())
    }

    /// The segments that have bytes of `extent`, with these bytes.
    fn inside(&self, extent: Extent) -> impl Iterator<Item = (&Segment, Extent)> {
        let first = self.segments.partition_point(|segment| segment.extent.end() <= extent.offset);
        self.segments[first..]
            .iter()
            .map_while(move |segment| segment.extent.intersect(&extent).map(|part| (segment, part)))
    }

    /// A set of bytes of the volume as a set of bytes of the disk.
    pub(crate) fn translate(&self, set: &Extents) -> Extents {
        let mut found = Vec::new();
        for extent in set {
            for (segment, part) in self.inside(*extent) {
                found.extend(segment.translate(part));
            }
        }
        Extents::from_unsorted(found)
    }

    /// File runs of the volume as file runs on the disk, ascending; not more than [`FILE_RUNS_MAX`]. Runs in narrow stripes are
    /// left out: blocks are then cut along the grid.
    pub(crate) fn translate_files(&self, files: &[FileRun]) -> Vec<FileRun> {
        let mut found = Vec::new();
        'files: for file in files {
            let extent = file.extent();
            for (segment, part) in self.inside(extent) {
                if segment.places.len() > 1 && segment.stripe < FILE_ALIGNMENT {
                    continue;
                }
                let phase = file.phase() + (part.offset - extent.offset);
                for (passed, place) in segment.pieces(part) {
                    if found.len() == FILE_RUNS_MAX {
                        break 'files;
                    }
                    found.push(FileRun::new(place.offset, place.length, phase + passed));
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// Runs of a file in the volume as runs on the disk, in the same order.
    ///
    /// # Errors
    /// `Refused` if these are too many to keep in memory.
    pub(crate) fn translate_runs(&self, runs: &[Run]) -> Result<Vec<Run>> {
        let mut found: Vec<Run> = Vec::new();
        for run in runs {
            for (passed, place) in self.pieces(run.place) {
                let file_offset = run.file_offset + passed;
                let is_full = found.len() == FILE_PIECES_MAX;
                match found.last_mut() {
                    Some(last)
                        if last.file_offset + last.place.length == file_offset
                            && last.place.end() == place.offset =>
                    {
                        last.place.length += place.length;
                    }
                    _ if is_full => {
                        return Err(Error::refused(format!(
                            "the stripes of the volume divide the file into more than {FILE_PIECES_MAX} pieces"
                        )));
                    }
                    _ => found.push(Run { file_offset, place }),
                }
            }
        }
        Ok(found)
    }

    /// Every piece of `extent` that is in one place, in order: its distance from the start of `extent`, and its place on the disk.
    pub(crate) fn pieces(&self, extent: Extent) -> impl Iterator<Item = (u64, Extent)> + '_ {
        self.inside(extent).flat_map(move |(segment, part)| {
            let before = part.offset - extent.offset;
            segment.pieces(part).map(move |(passed, place)| (before + passed, place))
        })
    }
}

impl Segment {
    /// The places of a part of the segment: bytes of one place that follow each other in the segment do so on the disk.
    fn translate(&self, part: Extent) -> impl Iterator<Item = Extent> + '_ {
        let row = self.stripe * self.places.len() as u64;
        let (start, end) = (part.offset - self.extent.offset, part.end() - self.extent.offset);
        self.places.iter().enumerate().filter_map(move |(index, place)| {
            // How many bytes in this place are before an offset of the segment.
            let before = |offset: u64| {
                let rest = (offset % row).saturating_sub(index as u64 * self.stripe);
                offset / row * self.stripe + rest.min(self.stripe)
            };
            let extent = Extent::between(place + before(start), place + before(end));
            (extent.length > 0).then_some(extent)
        })
    }

    /// [`Layout::pieces`] in a part of this segment.
    fn pieces(&self, part: Extent) -> impl Iterator<Item = (u64, Extent)> + '_ {
        let count = self.places.len() as u64;
        let mut passed = 0;
        std::iter::from_fn(move || {
            let left = part.length.checked_sub(passed).filter(|left| *left > 0)?;
            let at = part.offset - self.extent.offset + passed;
            let (number, rest) = (at / self.stripe, at % self.stripe);
            let length = (self.stripe - rest).min(left);
            let place = self.places[(number % count) as usize];
            let piece = (passed, Extent::new(place + number / count * self.stripe + rest, length));
            passed += length;
            Some(piece)
        })
    }
}

/// A volume, read as a disk.
#[derive(Clone)]
pub(crate) struct VolumeDisk<'d> {
    disk: &'d dyn DiskRead,
    layout: Layout,
}

impl<'d> VolumeDisk<'d> {
    /// The volume with that layout on a disk.
    pub(crate) fn new(disk: &'d dyn DiskRead, layout: Layout) -> Self {
        Self { disk, layout }
    }
}

impl DiskRead for VolumeDisk<'_> {
    fn length(&self) -> u64 {
        self.layout.length()
    }

    fn sector_size(&self) -> u32 {
        self.disk.sector_size()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let extent = Extent::new(offset, buffer.len() as u64);
        if offset.checked_add(extent.length).is_none_or(|end| end > self.length()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (passed, place) in self.layout.pieces(extent) {
            let part = &mut buffer[passed as usize..(passed + place.length) as usize];
            self.disk.read_exact_at(part, place.offset)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SECTOR;

    /// A volume of a linear segment, one with two stripes, and one with three.
    fn layout() -> Layout {
        let mut layout = Layout::default();
        layout.add(4 * S, 0, vec![90 * S]).unwrap();
        layout.add(8 * S, 2 * S, vec![20 * S, 40 * S]).unwrap();
        layout.add(9 * S, S, vec![60 * S, 50 * S, 10 * S]).unwrap();
        layout
    }

    /// Where each sector is, worked out by hand.
    const SECTORS: [u64; 21] =
        [90, 91, 92, 93, 20, 21, 40, 41, 22, 23, 42, 43, 60, 50, 10, 61, 51, 11, 62, 52, 12];

    #[test]
    fn every_range_is_read_from_its_places() {
        let disk: Vec<u8> = (0..100 * S).map(|at| (at / S) as u8).collect();
        let volume = VolumeDisk::new(&disk, layout());
        assert_eq!(volume.length(), 21 * S);
        for start in 0..21 {
            for end in start..=21 {
                let mut bytes = vec![0; ((end - start) * S) as usize];
                volume.read_exact_at(&mut bytes, start * S).unwrap();
                let found: Vec<u64> = bytes.chunks(S as usize).map(|sector| sector[0].into()).collect();
                assert_eq!(found, SECTORS[start as usize..end as usize]);
                let set = [Extent::new(start * S, (end - start) * S)].into_iter().collect();
                let places = SECTORS[start as usize..end as usize].iter();
                let expected: Extents = places.map(|sector| Extent::new(sector * S, S)).collect();
                assert_eq!(volume.layout.translate(&set), expected, "{start} to {end}");
            }
        }
        assert!(volume.read_exact_at(&mut [0; 2], 21 * S - 1).is_err());
        assert!(volume.read_exact_at(&mut [0; 2], u64::MAX).is_err());
    }

    #[test]
    fn files_keep_their_offsets() {
        let mut layout = Layout::default();
        layout.add(2 * FILE_ALIGNMENT, 0, vec![0]).unwrap();
        layout.add(4 * FILE_ALIGNMENT, FILE_ALIGNMENT, vec![1 << 30, 1 << 20]).unwrap();
        layout.add(2 * S, S, vec![1 << 21, 1 << 22]).unwrap();
        let end = layout.length();
        let file = FileRun::new(FILE_ALIGNMENT, end - FILE_ALIGNMENT, 3 * S);
        let found = layout.translate_files(&[file]);
        let expected = [
            FileRun::new(FILE_ALIGNMENT, FILE_ALIGNMENT, 3 * S),
            FileRun::new(1 << 20, FILE_ALIGNMENT, 3 * S),
            FileRun::new((1 << 20) + FILE_ALIGNMENT, FILE_ALIGNMENT, 3 * S),
            FileRun::new(1 << 30, FILE_ALIGNMENT, 3 * S),
            FileRun::new((1 << 30) + FILE_ALIGNMENT, FILE_ALIGNMENT, 3 * S),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_file_in_too_many_stripes_is_refused() {
        let mut layout = Layout::default();
        layout.add(8 << 30, S, vec![0, 8 << 30]).unwrap();
        let run = |length| [Run { file_offset: 0, place: Extent::new(0, length) }];
        assert_eq!(layout.translate_runs(&run(5 * S)).unwrap().len(), 5);
        assert_eq!(
            layout.translate_runs(&run(8 << 30)).unwrap_err().kind(),
            platter_image::ErrorKind::Refused
        );
    }

    #[test]
    fn impossible_segments_are_refused() {
        for (length, stripe, places) in [
            (0, S, vec![0]),
            (8 * S, S, vec![]),
            (8 * S, 0, vec![0, 8]),
            (9 * S, S, vec![0, 16 * S]),
            (8 * S, S, vec![0, 100]),
            (8 * S, u64::MAX, vec![0, 512]),
            (8 * S, S, vec![0, u64::MAX / S * S]),
            (u64::MAX / S * S, 0, vec![0]),
        ] {
            assert!(Layout::default().add(length, stripe, places).is_err(), "{length}");
        }
    }
}
