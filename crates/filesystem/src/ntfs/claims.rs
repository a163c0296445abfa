//! Everything that records claim: each cluster has one owner, and the bitmap marks it as used.

use platter_image::chunking::FileRun;
use platter_image::{Error, Extent, Extents, Result, SECTOR};

use super::attribute::Extended;
use crate::clusters::Clusters;
use crate::file_runs::FileRuns;

/// A volume with more runs is not checked: they would take too much memory.
const RUNS_MAX: usize = 1 << 22;

/// The claims so far.
pub(super) struct Claims<'c, 'd> {
    clusters: &'c Clusters<'d>,
    /// All runs, unordered.
    claimed: Vec<Extent>,
    /// Where the contents of files lie.
    pub(super) files: FileRuns,
    /// Space of files after the last sector that was written.
    pub(super) unwritten: Vec<Extent>,
}

impl<'c, 'd> Claims<'c, 'd> {
    /// Nothing is claimed yet.
    pub(super) fn new(clusters: &'c Clusters<'d>) -> Self {
        Self { clusters, claimed: Vec::new(), files: FileRuns::default(), unwritten: Vec::new() }
    }

    /// Claims the runs of an attribute.
    ///
    /// # Errors
    /// `Corrupt` if all records together claim too many runs.
    pub(super) fn claim(&mut self, attribute: &Extended) -> Result<()> {
        for run in &attribute.runs {
            let Some(cluster) = run.cluster else { continue };
            let place = self.clusters.at(cluster, run.count);
            match self.claimed.last_mut() {
                Some(last) if last.end() == place.offset => last.length += place.length,
                _ => self.claimed.push(place),
            }
        }
        match self.claimed.len() < RUNS_MAX {
            true => Ok(()),
            false => Err(Error::corrupt(format!(
                "its files are in more than {RUNS_MAX} pieces, too many to check"
            ))),
        }
    }

    /// Notes where contents lie, of which only the first `written` bytes can be read, and whether they are those of a
    /// user's file.
    ///
    /// # Errors
    /// `Corrupt` if all files together have too many runs.
    pub(super) fn contents(&mut self, attribute: &Extended, written: u64, is_file: bool) -> Result<()> {
        let size = self.clusters.size();
        let written = written.div_ceil(SECTOR).saturating_mul(SECTOR);
        let mut offset = attribute.first.saturating_mul(size);
        for run in &attribute.runs {
            let length = run.count.saturating_mul(size);
            if let Some(cluster) = run.cluster {
                let place = self.clusters.at(cluster, run.count);
                let written = written.saturating_sub(offset).min(length);
                if written > 0 && is_file {
                    self.files.add(Extent::new(place.offset, written), offset);
                }
                self.unwritten
                    .extend((written < length).then(|| Extent::between(place.offset + written, place.end())));
            }
            offset = offset.saturating_add(length);
        }
        self.files.end_file(&mut |_| {})
    }

    /// Checks the claims against the clusters in use. Returns where files lie, in ascending order.
    ///
    /// # Errors
    /// `Corrupt` with the first contradiction.
    pub(super) fn check(mut self, used: &Extents) -> Result<(Vec<FileRun>, Extents)> {
        self.claimed.sort_unstable();
        let mut end = 0;
        for claim in &self.claimed {
            if claim.offset < end {
                let cluster = self.clusters.at_offset(claim.offset);
                return Err(Error::corrupt(format!("cluster {cluster} belongs to two files")));
            }
            end = claim.end();
        }
        let claimed = Extents::from_unsorted(self.claimed);
        if let Some(free) = claimed.subtract(used).as_slice().first() {
            let cluster = self.clusters.at_offset(free.offset);
            return Err(Error::corrupt(format!(
                "cluster {cluster} is in use, but its bitmap marks it as free"
            )));
        }
        self.files.sort();
        Ok((self.files.into_vec(), Extents::from_unsorted(self.unwritten)))
    }
}
