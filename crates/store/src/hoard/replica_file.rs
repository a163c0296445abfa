//! The file `hoard.json`, which holds a replica's state (`docs/formats/hoard.md`). A new file is written beside the old one,
//! synced and renamed, so that a crash leaves either the old or the new one.

use std::path::PathBuf;

use platter_image::{Error, IoContext, Result};
use platter_vfs::OpenMode;
use serde::{Deserialize, Serialize};

use crate::place::StorePlace;
use platter_records::HoardSnapshot;

const FORMAT_VERSION: u32 = 1;
const NAME: &str = "hoard.json";
/// Maximum length in bytes: enough for tens of thousands of members.
const LENGTH_MAX: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct ReplicaFile {
    platter_hoard: u32,
    #[serde(flatten)]
    state: ReplicaState,
}

/// The state of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReplicaState {
    /// The revision that is complete.
    #[serde(flatten)]
    pub(super) snapshot: HoardSnapshot,
    /// Ids of the packs that are sealed and synced, in hexadecimal. Other packs do not count.
    pub(super) packs: Vec<String>,
}

/// The parsed state, and the bytes of the file.
pub(super) type Contents = (ReplicaState, Vec<u8>);

/// Reads the file; returns the default when it does not exist.
///
/// # Errors
/// `Corrupt` when it is not a valid `hoard.json`; `Refused` when a newer Platter wrote it; `Io`.
pub(super) fn read(place: &StorePlace) -> Result<Contents> {
    let path = path(place);
    let context = || format!("reading {}", path.display());
    let file = match place.vfs().open(&path, OpenMode::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Contents::default()),
        opened => opened.context(context)?,
    };
    let length = file.length().context(context)?;
    if length > LENGTH_MAX {
        return Err(Error::corrupt(format!("{} has {length} bytes", path.display())));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).context(context)?;
    Ok((parse(&bytes).map_err(|error| error.within(path.display().to_string()))?, bytes))
}

fn parse(bytes: &[u8]) -> Result<ReplicaState> {
    let file: ReplicaFile = serde_json::from_slice(bytes)
        .map_err(|error| Error::corrupt("not a valid hoard.json").with_source(error))?;
    match file.platter_hoard {
        FORMAT_VERSION => Ok(file.state),
        version => Err(Error::refused(format!(
            "hoard of format {version}: this Platter supports format {FORMAT_VERSION}, use a newer Platter"
        ))),
    }
}

/// Writes the file. Durable on return.
///
/// # Errors
/// `Io`: the file then holds either the old or the new state.
pub(super) fn write(place: &StorePlace, state: &ReplicaState) -> Result<()> {
    let file = ReplicaFile { platter_hoard: FORMAT_VERSION, state: state.clone() };
    let mut text = serde_json::to_vec(&file)
        .map_err(|error| Error::bug("cannot serialize hoard.json").with_source(error))?;
    text.push(b'\n');
    let (path, new) = (path(place), place.dir().join("hoard.json.new"));
    place.remove_if_there(&new)?;
    let context = || format!("writing {}", path.display());
    let opened = place.vfs().open(&new, OpenMode::CreateNew).context(context)?;
    opened.write_all_at(&text, 0).and_then(|()| opened.sync()).context(context)?;
    place.vfs().rename(&new, &path).context(context)?;
    place.sync_dir(place.dir())
}

fn path(place: &StorePlace) -> PathBuf {
    place.dir().join(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::ErrorKind;

    #[test]
    fn invalid_files_and_newer_formats_are_refused() {
        let good = br#"{"platter_hoard":1,"epoch":"ab","revision":7,"members":[],"packs":["x"]}"#;
        let state = parse(good).unwrap();
        assert_eq!((state.snapshot.epoch.as_str(), state.snapshot.revision), ("ab", 7));
        for length in 0..good.len() {
            assert_eq!(parse(&good[..length]).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        let newer = br#"{"platter_hoard":2,"epoch":"ab","revision":7,"members":[],"packs":[]}"#;
        assert_eq!(parse(newer).unwrap_err().kind(), ErrorKind::Refused);
    }
}
