//! The clusters of single files, read on demand.
//!
//! Unlike with [`Claims`](super::Claims), a cluster may be read for several files; all reads together are limited to a few times
//! the clusters of the volume.

use platter_image::{Error, Extent, Result};

use super::{Clusters, Next, Run, Table};
use crate::files;

/// All chains together may have at most this many times the clusters of the volume.
const TIMES_MAX: u64 = 4;
/// A small volume may have as many anyway.
const CLUSTERS_MIN: u64 = 1 << 20;

/// Follows chains.
pub(crate) struct Chains<'d> {
    clusters: Clusters<'d>,
    table: Table,
    /// Clusters that may still be named.
    budget: u64,
}

impl<'d> Chains<'d> {
    pub(crate) fn new(clusters: Clusters<'d>, table: Table) -> Self {
        let mut chains = Self { clusters, table, budget: 0 };
        chains.renew();
        chains
    }

    /// Allows as many clusters again as at first.
    pub(crate) fn renew(&mut self) {
        self.budget = self.clusters.count().saturating_mul(TIMES_MAX).max(CLUSTERS_MIN);
    }

    fn spend(&mut self, clusters: u64) -> Result<()> {
        self.budget = self
            .budget
            .checked_sub(clusters)
            .ok_or_else(|| Error::corrupt("its files name more clusters than the volume has"))?;
        Ok(())
    }

    /// The chain that begins with a cluster, up to `length` bytes if they are given.
    ///
    /// # Errors
    /// `Corrupt` if it contains a cluster that does not exist, is free or bad, or if it ends before `length`.
    pub(crate) fn chain(&mut self, first: u64, length: Option<u64>) -> Result<Vec<Run>> {
        let needed = length.map_or(u64::MAX, |length| length.div_ceil(self.clusters.size()));
        let mut runs: Vec<Run> = Vec::new();
        let (mut next, mut count) = (first, 0);
        while count < needed {
            if !self.clusters.hold(next, 1) {
                return Err(Error::corrupt(format!("cluster {next} does not exist")));
            }
            self.spend(1)?;
            count += 1;
            match runs.last_mut() {
                Some(run) if run.first + run.count == next => run.count += 1,
                _ => runs.push(Run { first: next, count: 1 }),
            }
            match self.table.next(next) {
                Next::Cluster(cluster) => next = cluster,
                Next::End if length.is_none() || count == needed => break,
                _ if count == needed => break,
                Next::End => return Err(Error::corrupt("its chain ends before it does")),
                Next::Free => {
                    return Err(Error::corrupt(format!("cluster {next} is in use, but marked as free")));
                }
                Next::Bad => {
                    return Err(Error::corrupt(format!("cluster {next} is in use, but marked as bad")));
                }
            }
        }
        Ok(runs)
    }

    /// Consecutive clusters for `length` bytes.
    ///
    /// # Errors
    /// `Corrupt` if they do not exist.
    pub(crate) fn piece(&mut self, first: u64, length: u64) -> Result<Vec<Run>> {
        let count = length.div_ceil(self.clusters.size());
        if !self.clusters.hold(first, count) {
            return Err(Error::corrupt(format!("its {count} clusters from {first} on do not all exist")));
        }
        self.spend(count)?;
        Ok(vec![Run { first, count }])
    }

    /// The offset on the disk of a byte of a directory or file, which must be in the runs.
    pub(crate) fn offset_in(&self, runs: &[Run], mut offset: u64) -> u64 {
        for run in runs {
            let place = self.clusters.at(run.first, run.count);
            if offset < place.length {
                return place.offset + offset;
            }
            offset -= place.length;
        }
        self.clusters.all().end()
    }

    /// The clusters.
    pub(crate) fn clusters(&self) -> &Clusters<'d> {
        &self.clusters
    }

    /// The cluster after this one in its chain; `None` at its end.
    pub(crate) fn after(&self, cluster: u64) -> Option<u64> {
        match self.table.next(cluster) {
            Next::Cluster(next) => Some(next),
            _ => None,
        }
    }

    /// Where the first `length` bytes of a file are.
    pub(crate) fn places(&self, runs: &[Run], length: u64) -> Vec<files::Run> {
        let mut file_offset = 0;
        let mut found = Vec::new();
        for run in runs {
            let place = self.clusters.at(run.first, run.count);
            let used = place.length.min(length.saturating_sub(file_offset));
            if used > 0 {
                found.push(files::Run { file_offset, place: Extent::new(place.offset, used) });
            }
            file_offset += place.length;
        }
        found
    }
}

/// The time in seconds since 1970 of a date and time of DOS, which are in one number; taken as UTC. A date that does not exist is
/// brought to the nearest month and day.
pub(crate) fn dos_time(stored: u32) -> i64 {
    let bits = |shift: u32, count: u32| i64::from(stored >> shift & ((1 << count) - 1));
    let (year, month, day) = (1980 + bits(25, 7), bits(21, 4).clamp(1, 12), bits(16, 5).max(1));
    let seconds = bits(11, 5) * 3600 + bits(5, 6) * 60 + bits(0, 5) * 2;
    // Days since 1970 in the calendar whose years begin in March.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    days * 86_400 + seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::Width;

    fn chains(entries: [u16; 8], disk: &Vec<u8>) -> Chains<'_> {
        let clusters = Clusters::new(disk, Extent::new(0, 3072), 0, (512, 6), 2).unwrap();
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        Chains::new(clusters, Table::read(&bytes, 0, Width::Bits16, 8).unwrap())
    }

    #[test]
    fn chains_end_where_the_file_does() {
        let disk = vec![0; 6 * 512];
        let mut all = chains([0, 0, 3, 5, 0, 6, 0xffff, 0], &disk);
        let run = |first, count| Run { first, count };
        assert_eq!(all.chain(2, None).unwrap(), [run(2, 2), run(5, 2)]);
        assert_eq!(all.chain(2, Some(513)).unwrap(), [run(2, 2)]);
        assert_eq!(all.chain(2, Some(2048)).unwrap(), [run(2, 2), run(5, 2)]);
        assert_eq!(all.places(&[run(2, 2), run(5, 2)], 1100).len(), 2);
        for (first, length, expected) in
            [(2, Some(2049), "ends before"), (4, Some(1025), "marked as free"), (8, None, "does not exist")]
        {
            let error = all.chain(first, length).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let mut endless = chains([0, 0, 3, 2, 0, 0, 0, 0], &disk);
        let error = endless.chain(2, None).unwrap_err().to_string();
        assert!(error.contains("more clusters than"), "{error}");
    }

    #[test]
    fn times_of_dos() {
        assert_eq!(dos_time(0x21 << 16), 315_532_800, "1980-01-01");
        assert_eq!(dos_time((44 << 25 | 2 << 21 | 29 << 16) | (23 << 11 | 59 << 5 | 29)), 1_709_251_198);
        assert_eq!(dos_time(0), 315_532_800);
    }
}
