//! Clones a version: publishes the same disk as the next version of another image, or as a newer one of its own. Copies
//! no data: writes only a version record and a row of the catalog.

use std::time::Instant;

use platter_image::recipe::Recipe;
use platter_image::{Error, Result};
use platter_records::{Consistency, ImageName, NumberChoice, Resolved, VersionRecord};
use platter_store::Store;
use serde::{Deserialize, Serialize};

use crate::edit_lock;
use platter_client::OriginStore;
use platter_fetch::Opened;
use platter_fetch::{EditLockChoice, OpenStore, StoreLocation};

/// The request to clone a version.
#[derive(Clone, Debug)]
pub struct CloneRequest {
    /// The store.
    pub store: StoreLocation,
    /// `NAME`, `NAME@7` or a score.
    pub version: String,
    /// The image to which a version is added.
    pub name: ImageName,
    /// Allow an image that already has versions.
    pub next: bool,
    /// The edit lock to publish under.
    pub edit_lock: EditLockChoice,
    /// Name and version of the program, such as `platter 0.1.0`.
    pub tool_version: String,
}

/// A published clone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloneReport {
    /// `lab/copy@1`.
    pub version: String,
    /// The image.
    pub name: String,
    /// Its number.
    pub number: u64,
    /// 64 hexadecimal digits.
    pub score: String,
    /// `lab/debian12@3`; `None` when a score was cloned that no version had.
    pub cloned_from: Option<String>,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Clones a version and publishes the clone. Its record copies all facts of the cloned version, and names it.
///
/// # Errors
/// `Missing` when there is no such version; `Refused` when the image exists and `next` is not set, or the image is
/// being edited; the store's errors.
pub fn clone(request: &CloneRequest) -> Result<CloneReport> {
    clone_from(&OpenStore::open_writer(&request.store)?, request)
}

/// As [`clone`], with an open store.
pub fn clone_from(store: &OpenStore, request: &CloneRequest) -> Result<CloneReport> {
    let started = Instant::now();
    let record = match store.opened() {
        Opened::Local(here) => clone_here(request, store, here)?,
        Opened::Remote(remote) => clone_afar(request, store, remote.origin())?,
    };
    Ok(CloneReport {
        version: record.name().to_string(),
        name: record.image.to_string(),
        number: record.number,
        score: record.score.to_string(),
        cloned_from: record.cloned_from.map(|origin| origin.to_string()),
        disk_bytes: record.disk_length,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Lets the origin clone, which has all facts of the version.
fn clone_afar(request: &CloneRequest, store: &OpenStore, origin: &OriginStore) -> Result<VersionRecord> {
    let resolved = store.resolve(&request.version)?;
    let from = resolved.version.ok_or_else(|| {
        Error::refused(format!("no version of the origin has the score {}: name one", resolved.score))
    })?;
    let version = edit_lock::with_edit_lock(store, &request.name, request.edit_lock, |edit_lock| {
        origin.clone_version(&from.name, &request.name, request.next, edit_lock, &request.tool_version)
    })?;
    Ok(version.record)
}

fn clone_here(request: &CloneRequest, opened: &OpenStore, store: &Store) -> Result<VersionRecord> {
    let name = &request.name;
    let resolved = store.resolve(&request.version)?;
    match store.version(name, NumberChoice::Latest) {
        Ok(newest) if !request.next => {
            return Err(Error::refused(format!(
                "{name} exists, its newest version is {}: clone to another name, or create its next version \
                 with --next",
                newest.name
            )));
        }
        Err(error) if error.kind() != platter_image::ErrorKind::Missing => return Err(error),
        _ => {}
    }
    let mut draft = known_of(&resolved, store)?;
    draft.cloned_from = resolved.version.map(|version| version.name);
    draft.image = name.clone();
    draft.time_unix_ms = platter_fetch::unix_ms();
    draft.tool_version.clone_from(&request.tool_version);
    let session = store.session()?;
    let version = edit_lock::with_edit_lock(opened, name, request.edit_lock, |edit_lock| {
        session.publish(VersionRecord { edit_lock, ..draft })
    })?;
    Ok(version.record)
}

/// Returns the facts of the disk. For a score without a version, they come from the recipe, which does not contain the
/// allocated bytes.
fn known_of(resolved: &Resolved, store: &Store) -> Result<VersionRecord> {
    if let Some(version) = &resolved.version {
        return Ok(version.record.clone());
    }
    let recipe = Recipe::open(resolved.score, store)?;
    let root = recipe.root();
    let mut draft = VersionRecord::draft("unnamed".parse()?, resolved.score, 0);
    draft.source = format!("score {}", resolved.score);
    draft.cut_policy = root.cut_policy.0;
    (draft.disk_length, draft.sector_size) = (root.disk_length, root.sector_size);
    draft.allocated_bytes = root.disk_length;
    draft.consistency = Consistency::Unknown;
    Ok(draft)
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::frame::{Compressor, FrameBuilder};
    use platter_image::page::{Entry, State};
    use platter_image::recipe::{CutPolicy, RecipeBuilder};
    use platter_image::{BlockId, Domain, Extent, FrameStore, Kind};
    use platter_store::StorePlace;

    /// A recipe that an interrupted job left in the store can be cloned by its score; then all other ways of cloning
    /// work as well.
    #[test]
    fn a_score_without_a_version_is_cloned() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path());
        Store::init(&place).unwrap();
        let score = {
            let session = Store::open_writer(&place).unwrap().session().unwrap();
            let pages: Vec<(BlockId, Vec<u8>)> = Vec::new();
            let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
            let mut recipe = RecipeBuilder::new(1 << 20, 512, policy, Domain::SHARED, pages);
            recipe.push(Entry { extent: Extent::new(0, 1 << 20), state: State::Zero }).unwrap();
            let (score, pages) = recipe.finish().unwrap();
            for (id, bytes) in pages {
                let mut frame = FrameBuilder::new(Kind::Page, Domain::SHARED, 1 << 15);
                frame.push(id, &bytes);
                session.append(&frame.encode(&mut Compressor::new(3).unwrap()).unwrap()).unwrap();
            }
            session.keep().unwrap();
            score
        };
        let request = |version: &str, name: &str| CloneRequest {
            store: place.clone().into(),
            version: version.into(),
            name: name.parse().unwrap(),
            next: false,
            edit_lock: EditLockChoice::Free,
            tool_version: "test".into(),
        };
        let named = clone(&request(&score.to_string(), "lab/found")).unwrap();
        assert_eq!((named.cloned_from, named.disk_bytes), (None, 1 << 20));
        let cloned = clone(&request("lab/found", "lab/copy")).unwrap();
        assert_eq!(cloned.cloned_from.as_deref(), Some("lab/found@1"));
        let refused = clone(&request("lab/found", "lab/copy")).unwrap_err();
        assert!(refused.to_string().contains("--next"), "{refused}");
        let back = clone(&CloneRequest { next: true, ..request("lab/found@1", "lab/found") }).unwrap();
        assert_eq!((back.number, back.score), (2, score.to_string()));
    }
}
