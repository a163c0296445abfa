//! The reserve: a file that is emptied on a full disk before versions are forgotten, garbage is collected or the catalog is rebuilt, so that their
//! commits find space. It is filled again afterwards, with what was freed.
//!
//! The contents are not compressible, so that a filesystem that compresses sets the space aside as well. If there is no space for
//! all of it, it gets what is free: otherwise the next command that forgets could find nothing, because others took the rest meanwhile.

use std::hash::Hasher;

use platter_image::{IoContext, Result};
use platter_vfs::OpenMode;
use twox_hash::XxHash3_64;

use crate::place::{StorePlace, is_full};

/// The reserve is this part of a full pack: 1 MiB usually, which suffices for the states of some thousand packs.
const PACK_PART: u64 = 256;
/// Minimum length of the reserve.
const LENGTH_MIN: u64 = 64 << 10;

/// A reserve that does not fit is made smaller by at least so much.
const STEP: u64 = 16 << 10;

/// Less free space than this many reserves is scarce.
const SCARCE: u64 = 4;

/// While this exists, the space of the reserve may be used. Dropping the last one fills the reserve, also after an earlier process
/// could not.
pub(crate) struct Lent<'a>(&'a StorePlace);

/// Empties the reserve if space is scarce. The caller holds the writer's lock, so all who use the reserve at the same time are in
/// this process: a collection, and changes of the catalog beside it.
pub(crate) fn lend(place: &StorePlace) -> Lent<'_> {
    let mut borrowers = place.borrowers();
    *borrowers += 1;
    let free = place.vfs().free_space(place.dir());
    if !free.is_ok_and(|free| free >= SCARCE * length(place)) {
        release(place);
    }
    Lent(place)
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut borrowers = self.0.borrowers();
        *borrowers -= 1;
        if *borrowers == 0 {
            set_aside(self.0);
        }
    }
}

/// Length of the reserve in bytes.
pub(crate) fn length(place: &StorePlace) -> u64 {
    (place.pack_length_target() / PACK_PART).max(LENGTH_MIN)
}

/// Empties the reserve. If that fails, or there is none, the work has the space that is free.
fn release(place: &StorePlace) {
    if let Ok(file) = place.vfs().open(&place.reserve(), OpenMode::Write) {
        let _ = file.set_length(0);
    }
}

/// Fills the reserve, as far as there is space for it.
pub(crate) fn set_aside(place: &StorePlace) {
    let mut wanted = length(place);
    while let Err(error) = write(place, wanted) {
        release(place);
        if !is_full(&error) {
            return;
        }
        let free = place.vfs().free_space(place.dir()).unwrap_or(0);
        // A part of what is free, because the file needs more than its bytes.
        wanted = (wanted / 2).max(free.min(wanted) / STEP * STEP).min(wanted.saturating_sub(STEP));
        if wanted < LENGTH_MIN {
            return;
        }
    }
}

fn write(place: &StorePlace, length: u64) -> Result<()> {
    let path = place.reserve();
    let context = || format!("writing {}", path.display());
    let file = place.vfs().open(&path, OpenMode::Create).context(context)?;
    if file.length().context(context)? == length {
        return Ok(());
    }
    let mut hasher = XxHash3_64::new();
    hasher.write(&place.vfs().random_id().context(context)?);
    let mut bytes = Vec::with_capacity(length as usize);
    while (bytes.len() as u64) < length {
        hasher.write(&[1]);
        bytes.extend_from_slice(&hasher.finish().to_le_bytes());
    }
    file.write_all_at(&bytes, 0).and_then(|()| file.sync()).context(context)?;
    place.sync_dir(place.dir())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use platter_vfs::Vfs;
    use platter_vfs::simulated::SimulatedDisk;

    use super::*;

    #[test]
    fn the_last_borrower_fills_the_reserve() {
        let disk = SimulatedDisk::new(1);
        let place = StorePlace::new(Arc::new(disk.clone()), "/store");
        disk.create_dir(place.dir()).unwrap();
        set_aside(&place);
        let bytes = || disk.contents(&place.reserve()).unwrap().len() as u64;
        assert_eq!(bytes(), length(&place));
        disk.set_capacity(disk.used());
        let collection = lend(&place);
        assert_eq!(bytes(), 0);
        // A change of the catalog by the same store, which has a copy of the place.
        let copy = place.clone();
        drop(lend(&copy));
        assert_eq!(bytes(), 0, "a collection still uses it");
        drop(collection);
        assert_eq!(bytes(), length(&place));
    }

    /// A change needed a part of the reserve: the rest is set aside again, and nobody else can take it.
    #[test]
    fn what_is_left_is_set_aside() {
        let disk = SimulatedDisk::new(2);
        let place = StorePlace::new(Arc::new(disk.clone()), "/store");
        disk.create_dir(place.dir()).unwrap();
        set_aside(&place);
        disk.set_capacity(disk.used());
        let bytes = || disk.contents(&place.reserve()).unwrap().len() as u64;
        for n in 1..5 {
            let forgetting = lend(&place);
            let change = disk.open(&place.dir().join(n.to_string()), OpenMode::CreateNew).unwrap();
            change.write_all_at(&[1; 1000], 0).unwrap();
            drop(forgetting);
            assert!(bytes() >= length(&place) - n * 2 * STEP && bytes() < length(&place), "{}", bytes());
        }
    }
}
