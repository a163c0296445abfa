//! What images share by the contents of their files, whatever filesystem these are in and however they are cut: the same tree on
//! ext4, XFS and NTFS is the same here.
//!
//! - `digest`: the digest of a file's contents, in which zeros are skipped
//! - `walk`: every regular file of a filesystem, each once
//!
//! The files of all filesystems of an image that can be read are counted, in partitions, on logical volumes and in members of RAID 1;
//! what cannot be read is counted, too. Other filesystems have a note.

mod digest;
mod walk;

use platter_disk::survey::read_table;
use platter_fetch::{OpenStore, memory_cache};
use platter_filesystem::{FilesystemPlace, Found, PlaceContents, READABLE, filesystem_name, logical_volumes};
use platter_image::recipe::Recipe;
use platter_image::{DiskRead, Error, ErrorKind, Extent, Result, Score};
use platter_vdisk::{DiskView, RecipeDisk, is_store_damage};

use crate::pieces::Pieces;

/// Memory for decoded blocks, in bytes.
const CACHE_BYTES: usize = 64 << 20;

/// The files of one image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageFiles {
    /// Filesystems whose files were read.
    pub(crate) filesystems: Vec<String>,
    /// Regular files that are not empty; one with several names counts once.
    pub(crate) files: u64,
    /// Their contents in bytes, without zeros.
    pub(crate) bytes: u64,
    /// Files and directories that cannot be read.
    pub(crate) unreadable: u64,
    /// The first reason.
    pub(crate) damage: Option<String>,
    /// Places that are not counted, and why.
    pub(crate) notes: Vec<String>,
}

impl ImageFiles {
    fn lost(&mut self, error: &Error) {
        self.unreadable += 1;
        self.damage.get_or_insert_with(|| error.with_causes());
    }

    fn note(&mut self, name: &str, reason: &str) {
        self.notes.push(format!("files of {name} are not counted: {reason}"));
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
        Some(range) => vec![("the partition".to_owned(), FilesystemPlace::Partition(range))],
        None => partitions(&disk, counted)?,
    };
    let mut counter = Counter { disk: &disk, counted, pieces, advance };
    let (mut names, mut physical) = (Vec::new(), Vec::new());
    for (name, place) in places {
        match counter.probe(&name, &place)? {
            Some(contents) if contents.is_physical_volume() => {
                names.push(name);
                physical.push(contents);
            }
            Some(contents) => counter.count(&name, &contents)?,
            None => {}
        }
    }
    let found = logical_volumes(&disk, &physical);
    for (index, error) in found.failed {
        counter.skip(&names[index], error)?;
    }
    for (name, reason) in found.unreadable {
        counter.counted.note(&format!("volume {name}"), &reason);
    }
    for (_, volume) in found.volumes {
        let name = format!("volume {}", volume.name());
        if let Some(contents) = counter.probe(&name, &FilesystemPlace::Volume(volume))? {
            counter.count(&name, &contents)?;
        }
    }
    Ok(())
}

/// The partitions of a disk, or all of it, each with its name in messages.
fn partitions(disk: &dyn DiskRead, counted: &mut ImageFiles) -> Result<Vec<(String, FilesystemPlace)>> {
    let table = read_table(disk)?;
    let mut places = Vec::new();
    let mut listed = table.partitions.iter().filter(|partition| !partition.container).peekable();
    if listed.peek().is_none() {
        let all = Extent::new(0, disk.length());
        return Ok(vec![("the disk".to_owned(), FilesystemPlace::Partition(all))]);
    }
    for partition in listed {
        let name = format!("partition {}", partition.number);
        if partition.extent.end() <= disk.length() {
            places.push((name, FilesystemPlace::Partition(partition.extent)));
        } else {
            counted.note(&name, "it ends beyond the end of the disk");
        }
    }
    Ok(places)
}

/// Counts the files of one place after the other.
struct Counter<'a> {
    disk: &'a dyn DiskRead,
    counted: &'a mut ImageFiles,
    pieces: &'a mut Pieces<u64>,
    advance: &'a dyn Fn(u64),
}

impl Counter<'_> {
    /// What is in a place; `None` if the store lost it.
    fn probe(&mut self, name: &str, place: &FilesystemPlace) -> Result<Option<PlaceContents>> {
        match place.probe(self.disk) {
            Ok(contents) => Ok(Some(contents)),
            Err(error) => self.skip(name, error).map(|()| None),
        }
    }

    /// Leaves a place out: with a note if the disk is the reason, as unreadable if the store lost its data.
    fn skip(&mut self, name: &str, error: Error) -> Result<()> {
        match error.kind() {
            _ if is_store_damage(&error) => self.counted.lost(&error.within(name)),
            ErrorKind::Corrupt => self.counted.note(name, &error.with_causes()),
            _ => return Err(error),
        }
        Ok(())
    }

    fn count(&mut self, name: &str, contents: &PlaceContents) -> Result<()> {
        let mut files = match contents.open(self.disk) {
            Some(Ok(files)) => files,
            // Nothing is wrong with the data: the filesystem is not read, or was in use when it was captured.
            Some(Err(error)) if error.kind() == ErrorKind::Refused && !is_store_damage(&error) => {
                self.counted.note(name, &error.with_causes());
                return Ok(());
            }
            Some(Err(error)) => {
                self.counted.lost(&error.within(name));
                return Ok(());
            }
            None => return self.skip_unknown(name, contents),
        };
        self.counted.filesystems.push(files.filesystem().to_owned());
        walk::visit_files(&mut *files, &mut |file| match file {
            Ok((digest, bytes)) => {
                self.counted.files += 1;
                self.counted.bytes += bytes;
                (self.advance)(bytes);
                self.pieces.update(digest, |known| *known = bytes);
            }
            Err(error) => self.counted.lost(&error),
        })
    }

    /// Leaves out a place without a filesystem whose files can be read.
    fn skip_unknown(&mut self, name: &str, contents: &PlaceContents) -> Result<()> {
        match (&contents.reason, &contents.found) {
            (Some(error), _) if is_store_damage(error) => {
                self.counted.lost(&Error::corrupt(format!("{name}: {}", error.with_causes())));
            }
            (Some(error), _) => self.counted.note(name, &error.with_causes()),
            (None, Found::Nothing | Found::Swap(_)) => {}
            (None, found) => {
                let kind = filesystem_name(found, None);
                self.counted.note(name, &format!("it contains {kind}, not {READABLE}"));
            }
        }
        Ok(())
    }
}
