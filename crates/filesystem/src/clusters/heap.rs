//! The clusters of a volume: their numbers, their places on the disk, and how to read them.
//!
//! It converts numbers to offsets and reads; it never trusts a number that it did not check.

use platter_image::{DiskRead, Error, Extent, IoContext, Result};

/// The clusters of a volume that lies in `extent` of the disk.
pub(crate) struct Clusters<'d> {
    disk: &'d dyn DiskRead,
    /// Where the clusters lie on the disk; a multiple of their size long.
    place: Extent,
    /// Bytes per cluster.
    size: u64,
    /// The number of the first cluster.
    first: u64,
}

impl<'d> Clusters<'d> {
    /// `count` clusters of `size` bytes from `offset` of the disk on; the first has the number `first`.
    ///
    /// # Errors
    /// `Corrupt` if they do not lie in `extent`.
    pub(crate) fn new(
        disk: &'d dyn DiskRead,
        extent: Extent,
        offset: u64,
        (size, count): (u64, u64),
        first: u64,
    ) -> Result<Self> {
        let end = count.checked_mul(size).and_then(|length| length.checked_add(offset));
        match end.filter(|end| offset >= extent.offset && *end <= extent.end()) {
            Some(end) => Ok(Self { disk, place: Extent::between(offset, end), size, first }),
            None => Err(Error::corrupt(format!(
                "its {count} clusters of {size} bytes do not lie in its partition of {} bytes",
                extent.length
            ))),
        }
    }

    /// Bytes per cluster.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The bytes of the clusters that a file of this many bytes has.
    pub(crate) fn round_up(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.size).saturating_mul(self.size)
    }

    /// The number of clusters.
    pub(crate) fn count(&self) -> u64 {
        self.place.length / self.size
    }

    /// The number of the first cluster.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Where all clusters lie on the disk.
    pub(crate) fn all(&self) -> Extent {
        self.place
    }

    /// Whether all of these clusters exist.
    pub(crate) fn hold(&self, cluster: u64, count: u64) -> bool {
        let end = self.first.saturating_add(self.count());
        cluster >= self.first && cluster.checked_add(count).is_some_and(|last| last <= end)
    }

    /// Where these clusters, which must exist, lie on the disk.
    pub(crate) fn at(&self, cluster: u64, count: u64) -> Extent {
        Extent::new(self.place.offset + (cluster - self.first) * self.size, count * self.size)
    }

    /// The cluster at `offset` of the disk.
    pub(crate) fn at_offset(&self, offset: u64) -> u64 {
        self.first + offset.saturating_sub(self.place.offset) / self.size
    }

    /// Fills `buffer` with the bytes that begin `skip` bytes after the start of `cluster`.
    ///
    /// # Errors
    /// `Corrupt` if they are not in clusters; errors of reading the disk.
    pub(crate) fn read(&self, cluster: u64, skip: u64, buffer: &mut [u8]) -> Result<()> {
        let length = (buffer.len() as u64).checked_add(skip);
        if !length.is_some_and(|length| self.hold(cluster, length.div_ceil(self.size))) {
            return Err(Error::corrupt(format!("cluster {cluster} does not exist")));
        }
        let offset = self.at(cluster, 1).offset + skip;
        self.disk
            .read_exact_at(buffer, offset)
            .context(|| format!("reading cluster {cluster} at offset {offset}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_have_places_and_no_others() {
        let disk = vec![7; 16384];
        let extent = Extent::new(4096, 12288);
        let clusters = Clusters::new(&disk, extent, 8192, (1024, 8), 2).unwrap();
        assert!(clusters.hold(2, 8) && clusters.hold(9, 1));
        assert!(!clusters.hold(1, 1) && !clusters.hold(2, 9) && !clusters.hold(9, u64::MAX));
        assert_eq!(clusters.at(3, 2), Extent::new(9216, 2048));
        assert_eq!(clusters.at_offset(9217), 3);
        let mut buffer = [0; 1024];
        clusters.read(9, 0, &mut buffer).unwrap();
        for (cluster, skip) in [(9, 1), (10, 0), (1, 0), (2, u64::MAX)] {
            clusters.read(cluster, skip, &mut buffer).unwrap_err();
        }
        for (offset, size, count) in [(8192, 1024, 9), (0, 1024, 1), (8192, u64::MAX, 2)] {
            assert!(Clusters::new(&disk, extent, offset, (size, count), 2).is_err());
        }
    }
}
