//! Everything that the directories of a FAT or exFAT volume name: each cluster has one owner.
//!
//! A cluster is claimed once, so a chain cannot contain a cycle, and all chains together take no more steps than there
//! are clusters.

use platter_image::{Error, Extent, Result, SECTOR};

use super::{ClusterSet, Clusters, Next, Table};
use crate::file_runs::FileRuns;

/// A volume with more runs is not checked: they would take too much memory.
const RUNS_MAX: usize = 1 << 22;

/// Consecutive clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first cluster.
    pub(crate) first: u64,
    /// How many.
    pub(crate) count: u64,
}

/// The claims so far.
pub(crate) struct Claims<'c, 'd> {
    clusters: &'c Clusters<'d>,
    claimed: ClusterSet,
    /// Where the contents of files lie.
    pub(crate) files: FileRuns,
    /// Space of files after the last sector that was written.
    pub(crate) unwritten: Vec<Extent>,
    /// Runs that may still be claimed.
    runs_left: usize,
}

impl<'c, 'd> Claims<'c, 'd> {
    /// Nothing is claimed yet.
    pub(crate) fn new(clusters: &'c Clusters<'d>) -> Self {
        Self {
            clusters,
            claimed: ClusterSet::new(clusters.count()),
            files: FileRuns::default(),
            unwritten: Vec::new(),
            runs_left: RUNS_MAX,
        }
    }

    /// The clusters that were claimed.
    pub(crate) fn claimed(&self) -> &ClusterSet {
        &self.claimed
    }

    /// Where the clusters of a run, which were claimed, lie on the disk.
    pub(crate) fn place(&self, run: Run) -> Extent {
        self.clusters.at(run.first, run.count)
    }

    /// Claims consecutive clusters.
    ///
    /// # Errors
    /// `Corrupt` if one does not exist or has an owner.
    pub(crate) fn claim(&mut self, run: Run) -> Result<()> {
        if !self.clusters.hold(run.first, run.count) {
            return Err(Error::corrupt(format!(
                "clusters {} to {} do not all exist",
                run.first,
                run.first.saturating_add(run.count).saturating_sub(1)
            )));
        }
        self.spend_run()?;
        (run.first..run.first + run.count).try_for_each(|cluster| self.claim_one(cluster))
    }

    fn claim_one(&mut self, cluster: u64) -> Result<()> {
        if !self.clusters.hold(cluster, 1) {
            return Err(Error::corrupt(format!("cluster {cluster} does not exist")));
        }
        match self.claimed.insert(cluster - self.clusters.first()) {
            true => Ok(()),
            false => Err(Error::corrupt(format!("cluster {cluster} is in two chains, or twice in one"))),
        }
    }

    fn spend_run(&mut self) -> Result<()> {
        self.runs_left = self.runs_left.checked_sub(1).ok_or_else(|| {
            Error::corrupt(format!("its files are in more than {RUNS_MAX} pieces, too many to check"))
        })?;
        Ok(())
    }

    /// Claims a chain of clusters, and returns them.
    ///
    /// # Errors
    /// `Corrupt` if it contains a cluster that does not exist, has an owner, is free or bad.
    pub(crate) fn chain(&mut self, table: &Table, first: u64) -> Result<Vec<Run>> {
        let wrong = |cluster: u64, mark: &str| {
            Err(Error::corrupt(format!("cluster {cluster} is in use, but marked as {mark}")))
        };
        let mut runs: Vec<Run> = Vec::new();
        let mut run = Run { first, count: 0 };
        loop {
            let cluster = run.first + run.count;
            self.claim_one(cluster)?;
            run.count += 1;
            let next = match table.next(cluster) {
                Next::Free => return wrong(cluster, "free"),
                Next::Bad => return wrong(cluster, "bad"),
                Next::Cluster(next) if next == cluster + 1 => continue,
                Next::Cluster(next) => Some(next),
                Next::End => None,
            };
            self.spend_run()?;
            runs.push(run);
            match next {
                Some(first) => run = Run { first, count: 0 },
                None => return Ok(runs),
            }
        }
    }

    /// Adds the contents of a file, whose first `written` bytes were written and of which systems read no others. The
    /// sectors after these are unwritten, up to `length` bytes and the end of a cluster; clusters after that are kept.
    ///
    /// # Errors
    /// `Corrupt` if all files together have too many runs.
    pub(crate) fn file(&mut self, runs: &[Run], written: u64, length: u64) -> Result<()> {
        let size = self.clusters.size();
        let end = length.div_ceil(size).saturating_mul(size);
        let mut offset = 0;
        for run in runs {
            let place = self.place(*run);
            let written = written.div_ceil(SECTOR).saturating_mul(SECTOR);
            let [written, end] = [written, end].map(|to: u64| to.saturating_sub(offset).min(place.length));
            if written > 0 {
                self.files.add(Extent::new(place.offset, written), offset);
            }
            self.unwritten
                .extend((written < end).then(|| Extent::between(place.offset + written, place.offset + end)));
            offset += place.length;
        }
        self.files.end_file(&mut |_| {})
    }
}

/// The contents of the directory in `runs`, whose clusters must exist.
///
/// # Errors
/// `Corrupt` if it has more than `length_max` bytes; errors of reading the disk.
pub(crate) fn read_directory(clusters: &Clusters<'_>, runs: &[Run], length_max: u64) -> Result<Vec<u8>> {
    let length = length_of(runs).saturating_mul(clusters.size());
    if length > length_max {
        return Err(Error::corrupt(format!("it has {length} bytes, more than a directory may have")));
    }
    let mut bytes = vec![0; length as usize];
    let mut rest = bytes.as_mut_slice();
    for run in runs {
        let (piece, after) = rest.split_at_mut((run.count * clusters.size()) as usize);
        clusters.read(run.first, 0, piece)?;
        rest = after;
    }
    Ok(bytes)
}

/// The number of clusters in `runs`.
pub(crate) fn length_of(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.count).sum()
}

#[cfg(test)]
mod tests {
    use platter_image::chunking::FileRun;

    use super::*;
    use crate::clusters::Width;

    /// Follows the chain from cluster 2 on in a table of eight 16-bit entries.
    fn chain(entries: [u16; 8]) -> std::result::Result<Vec<(u64, u64)>, String> {
        let disk = vec![0; 6 * 512];
        let clusters = Clusters::new(&disk, Extent::new(0, 3072), 0, (512, 6), 2).unwrap();
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        let table = Table::read(&bytes, 0, Width::Bits16, 8).unwrap();
        let runs = Claims::new(&clusters).chain(&table, 2).map_err(|error| error.to_string())?;
        Ok(runs.into_iter().map(|run| (run.first, run.count)).collect())
    }

    #[test]
    fn chains_end_or_are_wrong() {
        assert_eq!(chain([0, 0, 3, 5, 0, 6, 0xffff, 0]).unwrap(), [(2, 2), (5, 2)]);
        assert_eq!(chain([0, 0, 5, 0xffff, 0, 3, 0, 0]).unwrap(), [(2, 1), (5, 1), (3, 1)]);
        assert_eq!(chain([0, 0, 0xfff8, 0, 0, 0, 0, 0]).unwrap(), [(2, 1)]);
        for (entries, expected) in [
            ([0, 0, 3, 2, 0, 0, 0, 0], "cluster 2 is in two chains"),
            ([0, 0, 2, 0, 0, 0, 0, 0], "cluster 2 is in two chains"),
            ([0, 0, 3, 0, 0, 0, 0, 0], "cluster 3 is in use, but marked as free"),
            ([0, 0, 3, 0xfff7, 0, 0, 0, 0], "cluster 3 is in use, but marked as bad"),
            ([0, 0, 8, 0, 0, 0, 0, 0], "cluster 8 does not exist"),
            ([0, 0, 1, 0, 0, 0, 0, 0], "cluster 1 does not exist"),
        ] {
            let error = chain(entries).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn space_after_the_written_bytes_is_dropped_up_to_the_last_cluster_of_the_file() {
        let disk = vec![0; 8 * 1024];
        let clusters = Clusters::new(&disk, Extent::new(0, 8192), 0, (1024, 8), 2).unwrap();
        let runs = [Run { first: 2, count: 2 }, Run { first: 6, count: 3 }];
        for (written, length, files, unwritten) in [
            (1, 1, vec![(0, 512)], vec![(512, 512)]),
            (2048, 2049, vec![(0, 2048)], vec![(4096, 1024)]),
            (2050, 5000, vec![(0, 2048), (4096, 512)], vec![(4608, 2560)]),
            (5120, 5120, vec![(0, 2048), (4096, 3072)], vec![]),
            (0, 0, vec![], vec![]),
        ] {
            let mut claims = Claims::new(&clusters);
            claims.file(&runs, written, length).unwrap();
            let extents = |extents: &[Extent]| {
                extents.iter().map(|extent| (extent.offset, extent.length)).collect::<Vec<_>>()
            };
            let found: Vec<Extent> = claims.files.as_slice().iter().map(FileRun::extent).collect();
            assert_eq!((extents(&found), extents(&claims.unwritten)), (files, unwritten));
        }
    }
}
