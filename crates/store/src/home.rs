//! Where a store is, in the file `home.json`: tells that it was copied or moved with the tools of the system.
//!
//! Such a copy has the id of the original, and both go on with the same numbers. Each writer compares the directory with the recorded
//! one; another one starts a new generation. Losing the file loses nothing else. Never keeps a store from being opened.

use platter_vfs::{Location, read_whole, replace};
use serde::{Deserialize, Serialize};

use crate::clock::now_unix_ms;
use crate::place::StorePlace;
use crate::store::Store;

const FILE: &str = "home.json";
const FILE_LENGTH_MAX: u64 = 64 << 10;

/// Where a store is, and where it was before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// How many directories it has had, from 1.
    pub generation: u64,
    /// The directory that is known.
    pub location: Location,
    /// The directory before.
    pub former: Option<Location>,
    /// When a writer found it in another directory, in milliseconds since 1970 UTC.
    pub noticed_unix_ms: Option<i64>,
}

impl Home {
    /// Says that the store was copied or moved; `None` if it is still where it was created.
    pub fn warning(&self) -> Option<String> {
        let former = self.former.as_ref()?;
        Some(format!(
            "generation {}: this directory was copied or moved here from {} (machine {}). The original has the same id: if both are \
             changed, they give different versions the same numbers. Keep a second store with `platter follow` instead",
            self.generation,
            former.path.escape_debug(),
            former.machine.escape_debug()
        ))
    }
}

impl Store {
    /// Returns where the store is; `None` if no writer has recorded it.
    pub fn home(&self) -> Option<Home> {
        read(self.place())
    }
}

/// Compares the directory with the recorded one, and records it.
pub(crate) fn note(place: &StorePlace) {
    let Ok(Some(location)) = place.vfs().location(place.dir()) else { return };
    let home = match read(place) {
        Some(known) if known.location == location => return,
        Some(known) => Home {
            generation: known.generation.saturating_add(1),
            location,
            former: Some(known.location),
            noticed_unix_ms: Some(now_unix_ms()),
        },
        None => Home { generation: 1, location, former: None, noticed_unix_ms: None },
    };
    // A full disk, or one for reading only, must not keep the store closed. The next writer notices it again.
    if let Ok(bytes) = serde_json::to_vec(&home) {
        let _ = replace(place.vfs(), &place.dir().join(FILE), &bytes);
    }
}

fn read(place: &StorePlace) -> Option<Home> {
    let bytes = read_whole(place.vfs(), &place.dir().join(FILE), FILE_LENGTH_MAX).ok()??;
    serde_json::from_slice(&bytes).ok()
}
