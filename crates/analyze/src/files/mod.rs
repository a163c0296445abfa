//! What images share by the contents of their files, whatever filesystem these are in and however they are cut: the same tree on
//! ext4, XFS and NTFS is the same here.
//!
//! - `digest`: the digest of a file's contents, in which zeros are skipped
//! - `walk`: every regular file of a filesystem, each once
//!
//! The files of all filesystems of an image that can be read are counted; what cannot be read is counted, too.

mod digest;
mod walk;

use platter_disk::survey::read_table;
use platter_fetch::{OpenStore, memory_cache};
use platter_filesystem::{open_files, probe};
use platter_image::recipe::Recipe;
use platter_image::{DiskRead, Error, Extent, Result, Score};
use platter_vdisk::{DiskView, RecipeDisk};

use crate::pieces::Pieces;

/// Memory for decoded blocks, in bytes.
const CACHE_BYTES: usize = 64 << 20;

/// The files of one image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageFiles {
    /// Filesystems whose files were read.
    pub(crate) filesystems: Vec<String>,
    /// Regular files with contents; one with several names counts once.
    pub(crate) files: u64,
    /// Their contents in bytes, without zeros.
    pub(crate) bytes: u64,
    /// Files and directories that cannot be read.
    pub(crate) unreadable: u64,
    /// The first reason.
    pub(crate) damage: Option<String>,
}

impl ImageFiles {
    fn lost(&mut self, error: &Error) {
        self.unreadable += 1;
        self.damage.get_or_insert_with(|| error.with_causes());
    }
}

/// Collects the contents of an image's files. `advance` is called with the bytes that are done.
///
/// # Errors
/// Errors that are no damage.
pub(crate) fn count_files(
    store: &OpenStore,
    (score, range): (Score, Option<Extent>),
    pieces: &mut Pieces<u64>,
    advance: &dyn Fn(u64),
) -> Result<ImageFiles> {
    let mut counted = ImageFiles::default();
    match count(store, score, range, pieces, &mut counted, advance) {
        Err(error) if error.is_data_loss() => counted.lost(&error),
        result => result?,
    }
    Ok(counted)
}

fn count(
    store: &OpenStore,
    score: Score,
    range: Option<Extent>,
    pieces: &mut Pieces<u64>,
    counted: &mut ImageFiles,
    advance: &dyn Fn(u64),
) -> Result<()> {
    let source = store.source(score, Default::default());
    let sector_size = Recipe::open(score, &*source)?.root().sector_size;
    let disk = RecipeDisk::open(score, source, memory_cache(CACHE_BYTES)?)?;
    let disk = DiskView { device: &disk, sector_size };
    let places = match range {
        Some(range) => vec![range],
        None => filesystem_places(&disk)?,
    };
    for place in places {
        let Some(opened) = open_files(&probe(&disk, place)?, &disk, place) else { continue };
        match opened {
            Ok(mut files) => {
                counted.filesystems.push(files.filesystem().to_owned());
                walk::visit_files(&mut *files, &mut |file| match file {
                    Ok((digest, bytes)) => {
                        counted.files += 1;
                        counted.bytes += bytes;
                        advance(bytes);
                        pieces.update(digest, |known| *known = bytes);
                    }
                    Err(error) => counted.lost(&error),
                })?;
            }
            Err(error) => counted.lost(&error),
        }
    }
    Ok(())
}

/// The ranges of a disk that may hold filesystems: its partitions, or all of it.
fn filesystem_places(disk: &dyn DiskRead) -> Result<Vec<Extent>> {
    let table = read_table(disk)?;
    let listed = table.partitions.iter().filter(|partition| !partition.container);
    let places: Vec<Extent> = listed.map(|partition| partition.extent).collect();
    let inside = |place: &Extent| place.end() <= disk.length();
    Ok(match places.is_empty() {
        true => vec![Extent::new(0, disk.length())],
        false => places.into_iter().filter(inside).collect(),
    })
}
