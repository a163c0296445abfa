//! The contents of an attribute as a sequence of bytes, whether in its record or in runs.

use platter_image::{Error, Result};

use super::attribute::Coding;
use super::runs::Run;
use crate::clusters::Clusters;

/// An attribute with more runs is not read; so many take 128 MiB of memory.
const RUNS_MAX: usize = 1 << 22;

/// The contents of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// In the record.
    Resident(Vec<u8>),
    /// In runs, which follow one another in the attribute; only the first `initialized` bytes were written.
    Extended { runs: Vec<(u64, Run)>, length: u64, initialized: u64, coding: Coding },
}

impl Stream {
    /// An attribute without contents in runs.
    pub(super) fn extended(length: u64, initialized: u64, coding: Coding) -> Self {
        Self::Extended { runs: Vec::new(), length, initialized, coding }
    }

    /// Adds the next part: its first cluster, and its runs.
    ///
    /// # Errors
    /// `Corrupt` if it does not follow the part before, or there are too many runs.
    pub(super) fn push(&mut self, first: u64, part: &[Run]) -> Result<()> {
        let end = self.clusters();
        let Self::Extended { runs, .. } = self else {
            return Err(Error::corrupt("an attribute has two places"));
        };
        if first != end {
            return Err(Error::corrupt(format!(
                "a part of an attribute begins at cluster {first}, not at {end}"
            )));
        }
        if part.len() > RUNS_MAX - runs.len() {
            return Err(Error::corrupt(format!("an attribute has more than {RUNS_MAX} runs")));
        }
        let mut at = first;
        for run in part {
            runs.push((at, *run));
            at = at.saturating_add(run.count);
        }
        Ok(())
    }

    /// The number of runs of all parts.
    pub(super) fn run_count(&self) -> usize {
        match self {
            Self::Resident(_) => 0,
            Self::Extended { runs, .. } => runs.len(),
        }
    }

    /// The number of clusters of all parts.
    pub(super) fn clusters(&self) -> u64 {
        match self {
            Self::Resident(_) => 0,
            Self::Extended { runs, .. } => runs.last().map_or(0, |(at, run)| at.saturating_add(run.count)),
        }
    }

    /// The number of bytes, whether they were written or not.
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Resident(bytes) => bytes.len() as u64,
            Self::Extended { length, .. } => *length,
        }
    }

    /// The number of bytes that were written.
    pub(super) fn written(&self) -> u64 {
        match self {
            Self::Resident(bytes) => bytes.len() as u64,
            Self::Extended { length, initialized, .. } => (*length).min(*initialized),
        }
    }

    /// The runs; none if the contents are in the record.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let runs = match self {
            Self::Resident(_) => &[],
            Self::Extended { runs, .. } => runs.as_slice(),
        };
        runs.iter().map(|(_, run)| *run)
    }

    /// Fills `buffer` with the bytes from `offset` on, with zeros where nothing is.
    ///
    /// # Errors
    /// `Corrupt` if a run does not exist; errors of reading the disk.
    pub(super) fn read(&self, clusters: &Clusters<'_>, offset: u64, buffer: &mut [u8]) -> Result<()> {
        buffer.fill(0);
        match self {
            Self::Resident(bytes) => {
                let start = (offset as usize).min(bytes.len());
                let count = buffer.len().min(bytes.len() - start);
                buffer[..count].copy_from_slice(&bytes[start..start + count]);
                Ok(())
            }
            Self::Extended { runs, .. } => read_runs(runs, clusters, offset, buffer),
        }
    }
}

fn read_runs(runs: &[(u64, Run)], clusters: &Clusters<'_>, offset: u64, buffer: &mut [u8]) -> Result<()> {
    let size = clusters.size();
    let end = offset.saturating_add(buffer.len() as u64);
    let first = runs.partition_point(|(at, run)| at.saturating_add(run.count).saturating_mul(size) <= offset);
    for (at, run) in &runs[first..] {
        let (start, stop) = (at.saturating_mul(size), at.saturating_add(run.count).saturating_mul(size));
        if start >= end {
            break;
        }
        let Some(cluster) = run.cluster else { continue };
        let (from, to) = (start.max(offset), stop.min(end));
        let piece = &mut buffer[(from - offset) as usize..(to - offset) as usize];
        clusters.read(cluster, from - start, piece)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::Extent;

    #[test]
    fn the_runs_of_all_parts_are_limited() {
        let part = vec![Run { cluster: Some(5), count: 1 }; RUNS_MAX / 4];
        let mut stream = Stream::extended(0, 0, Coding::Plain);
        for number in 0..4 {
            stream.push(number * part.len() as u64, &part).unwrap();
        }
        let error = stream.push(4 * part.len() as u64, &part[..1]).unwrap_err();
        assert_eq!(error.to_string(), "an attribute has more than 4194304 runs");
    }

    #[test]
    fn reads_cross_runs_and_holes() {
        let disk: Vec<u8> = (0..16).flat_map(|cluster| [cluster; 512]).collect();
        let clusters = Clusters::new(&disk, Extent::new(0, 8192), 0, (512, 16), 0).unwrap();
        let mut stream = Stream::extended(3072, 3072, Coding::Plain);
        stream.push(0, &[Run { cluster: Some(5), count: 2 }, Run { cluster: None, count: 1 }]).unwrap();
        stream.push(4, &[]).unwrap_err();
        stream.push(3, &[Run { cluster: Some(1), count: 1 }]).unwrap();
        let mut buffer = vec![9; 2048 + 100];
        stream.read(&clusters, 256, &mut buffer).unwrap();
        let bytes = |at: usize| buffer[at];
        assert_eq!([0, 255, 256, 767, 768, 1279, 1280, 1791, 1792].map(bytes), [5, 5, 6, 6, 0, 0, 1, 1, 0]);
        let resident = Stream::Resident(b"text".to_vec());
        let mut buffer = [9; 3];
        resident.read(&clusters, 2, &mut buffer).unwrap();
        assert_eq!(&buffer, b"xt\0");
        resident.read(&clusters, 200, &mut buffer).unwrap();
        assert_eq!(&buffer, &[0; 3]);
    }
}
