//! Collects where files lie, within a limit of memory, for every reader.
//!
//! Consecutive runs of a file are joined. The short runs of a fragmented file are handed back: they are cut along the grid,
//! together with the space between them.

use platter_image::chunking::FileRun;
use platter_image::{Error, Extent, Result};

/// A filesystem with more file runs is not checked: they would take more than 1 GiB of memory.
pub(crate) const FILE_RUNS_MAX: usize = 1 << 26;

/// The most runs for which memory is reserved in advance.
const FILE_RUNS_RESERVED_MAX: usize = 1 << 22;

/// Shorter runs, in bytes, would become blocks that cost more than they hold.
const SHORT_RUN_LENGTH: u64 = 8 << 10;
/// A file with more short runs counts as fragmented.
const SHORT_RUNS_MAX: usize = 16;

/// Where files lie. Add the runs of one file with [`FileRuns::add`], then call [`FileRuns::end_file`].
#[derive(Debug, Default)]
pub(crate) struct FileRuns {
    runs: Vec<FileRun>,
    /// Index of the first run of the current file.
    first: usize,
    /// The run of the current file that the next one may continue: its place, and its offset in the file.
    open: Option<(Extent, u64)>,
}

impl FileRuns {
    /// Reserves memory for that many files.
    pub(crate) fn reserve(&mut self, files: usize) {
        self.runs.reserve(files.min(FILE_RUNS_RESERVED_MAX));
    }

    /// Adds a run of the current file: the contents from `file_offset` on are at `place`.
    pub(crate) fn add(&mut self, place: Extent, file_offset: u64) {
        match &mut self.open {
            Some((open, offset)) if *offset + open.length == file_offset && open.end() == place.offset => {
                open.length += place.length;
            }
            _ => {
                self.close();
                self.open = Some((place, file_offset));
            }
        }
    }

    fn close(&mut self) {
        if let Some((place, file_offset)) = self.open.take().filter(|_| self.runs.len() < FILE_RUNS_MAX) {
            self.runs.push(FileRun::new(place.offset, place.length, file_offset));
        }
    }

    /// Ends the current file. If it is fragmented, its short runs are removed and passed to `fragment`.
    ///
    /// # Errors
    /// `Corrupt` if there are too many runs.
    pub(crate) fn end_file(&mut self, fragment: &mut dyn FnMut(Extent)) -> Result<()> {
        self.close();
        let is_short = |run: &FileRun| run.extent().length < SHORT_RUN_LENGTH;
        if self.runs[self.first..].iter().filter(|run| is_short(run)).count() > SHORT_RUNS_MAX {
            for run in self.runs.split_off(self.first) {
                match is_short(&run) {
                    true => fragment(run.extent()),
                    false => self.runs.push(run),
                }
            }
        }
        self.first = self.runs.len();
        if self.runs.len() >= FILE_RUNS_MAX {
            return Err(Error::corrupt(format!(
                "its files have more than {FILE_RUNS_MAX} fragments, too many to check"
            )));
        }
        Ok(())
    }

    /// Adds all runs of ended files of `other`.
    pub(crate) fn append(&mut self, other: Self) {
        self.runs.extend(other.runs);
        self.first = self.runs.len();
    }

    /// Sorts the runs by place.
    pub(crate) fn sort(&mut self) {
        self.runs.sort_unstable();
    }

    /// Removes what several runs share from all but the first of them. They must be sorted.
    pub(crate) fn make_disjoint(&mut self) {
        let mut end = 0;
        self.runs.retain_mut(|run| {
            let extent = run.extent();
            let shared = end.max(extent.offset) - extent.offset;
            if shared >= extent.length {
                return false;
            }
            if shared > 0 {
                *run = FileRun::new(end, extent.length - shared, run.phase() + shared);
            }
            end = extent.end();
            true
        });
    }

    /// All runs of ended files.
    pub(crate) fn as_slice(&self) -> &[FileRun] {
        &self.runs
    }

    /// All runs of ended files.
    pub(crate) fn into_vec(self) -> Vec<FileRun> {
        self.runs
    }
}

/// The extents of both, each of which is in ascending order, in ascending order.
pub(crate) fn ascending(
    one: impl Iterator<Item = Extent>,
    other: impl Iterator<Item = Extent>,
) -> impl Iterator<Item = Extent> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(first), Some(second)) if first.offset <= second.offset => one.next(),
        (Some(_), None) => one.next(),
        _ => other.next(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_extents_belong_to_the_first_run() {
        let mut runs = FileRuns::default();
        for (offset, length, file_offset) in
            [(4096, 8192, 0), (8192, 8192, 65536), (8192, 4096, 0), (0, 4096, 512)]
        {
            runs.add(Extent::new(offset, length), file_offset);
            runs.end_file(&mut |_| ()).unwrap();
        }
        runs.sort();
        runs.make_disjoint();
        let expected =
            [FileRun::new(0, 4096, 512), FileRun::new(4096, 8192, 0), FileRun::new(12288, 4096, 4096)];
        assert_eq!(runs.as_slice(), expected);
    }

    #[test]
    fn consecutive_runs_are_joined_and_short_ones_of_fragmented_files_handed_back() {
        let mut runs = FileRuns::default();
        runs.add(Extent::new(8192, 4096), 0);
        runs.add(Extent::new(12288, 4096), 4096);
        runs.add(Extent::new(65536, 4096), 16384);
        runs.end_file(&mut |_| panic!("not fragmented")).unwrap();
        let expected = [FileRun::new(8192, 8192, 0), FileRun::new(65536, 4096, 16384)];
        assert_eq!(runs.as_slice(), expected);
        for number in 0..17 {
            runs.add(Extent::new((100 + 2 * number) * 4096, 4096), number * 4096);
        }
        runs.add(Extent::new(1 << 20, 1 << 20), 1 << 20);
        let mut fragments = Vec::new();
        runs.end_file(&mut |fragment| fragments.push(fragment)).unwrap();
        assert_eq!(fragments.len(), 17);
        assert_eq!(runs.into_vec(), [expected[0], expected[1], FileRun::new(1 << 20, 1 << 20, 1 << 20)]);
    }
}
