//! Garbage collection and retention, as a person asks for them.

use std::path::Path;

use platter_fetch::{OpenStore, Opened, StoreLocation};
use platter_image::{Error, ErrorKind, Result, Score};
use platter_records::{CollectReport, ImageCosts, ImageName, VersionName, edit_lock_refusal};
use platter_store::{CollectRequest, RetentionPolicy, RetentionVerdict, Store};

/// Lists the scores on which the overlays in a store's directory stand.
pub type OverlayBases<'a> = &'a dyn Fn(&Path) -> Result<Vec<Score>>;

/// Collects the garbage of a store. An origin does it itself; it knows the overlays on its machine. `tell` is called with the name
/// of each phase.
///
/// # Errors
/// As [`Store::collect`]; `Transient` when another process writes the store.
pub fn collect(
    location: &StoreLocation,
    request: &CollectRequest,
    bases: OverlayBases<'_>,
    tell: &mut dyn FnMut(&str),
) -> Result<CollectReport> {
    let reader = match OpenStore::open_reader(location)?.collector()? {
        Opened::Local(reader) => reader,
        Opened::Remote(store) => {
            tell("collecting");
            return store.origin().collect(&platter_api::CollectRequest {
                keep_trash_s: u64::try_from(request.keep_trash_ms / 1000).unwrap_or(0),
                compact_percent: request.compact_percent,
                recompress: request.recompress,
                end_leases: request.end_leases,
                dry_run: request.dry_run,
                confirmed: request.is_confirmed,
            });
        }
    };
    let place = reader.place();
    let store = Store::open_writer(place)?;
    store.collect(request, &|| bases(place.dir()), tell)
}

/// What each image costs.
///
/// # Errors
/// As [`Store::image_costs`]; the origin's errors.
pub fn image_costs(location: &StoreLocation) -> Result<ImageCosts> {
    match OpenStore::open_reader(location)?.opened() {
        Opened::Local(store) => store.image_costs(),
        Opened::Remote(store) => store.origin().image_costs(),
    }
}

/// What a policy decides about an image.
#[derive(Clone, Debug)]
pub struct Retained {
    /// The image.
    pub image: ImageName,
    /// Its versions, the newest first.
    pub verdicts: Vec<RetentionVerdict>,
    /// Versions that the policy does not keep and that were not forgotten, or would not be.
    left: Vec<u64>,
    /// Why.
    pub refused: Option<String>,
}

impl Retained {
    /// Whether a version was forgotten, or would be.
    pub fn is_forgotten(&self, verdict: &RetentionVerdict) -> bool {
        verdict.reasons.is_empty() && !self.left.contains(&verdict.number)
    }

    /// Returns the versions that were forgotten, or would be.
    pub fn forgotten(&self) -> impl Iterator<Item = VersionName> + '_ {
        let gone = self.verdicts.iter().filter(|verdict| self.is_forgotten(verdict));
        gone.map(|verdict| VersionName { image: self.image.clone(), number: verdict.number })
    }
}

/// Applies a policy to an image, or with `below` to all images below that name too. Forgets what it does not keep, unless
/// `dry_run` is set.
///
/// # Errors
/// `Missing` when there is no such image; `Refused` when the policy keeps nothing; what the store
/// says. Versions that were forgotten before the error stay so.
pub fn retain(
    location: &StoreLocation,
    image: &ImageName,
    below: bool,
    policy: &RetentionPolicy,
    dry_run: bool,
) -> Result<Vec<Retained>> {
    let store = OpenStore::open_reader(location)?;
    let prefix = format!("{image}/");
    let mut images: Vec<ImageName> = store.images()?.into_iter().map(|version| version.name.image).collect();
    images.retain(|name| name == image || below && name.as_str().starts_with(&prefix));
    if images.is_empty() {
        return Err(Error::missing(format!("there is no image {image}")));
    }
    let protected = store.protected()?;
    let decide = |image: ImageName| {
        let stay = protected.iter().filter(|name| name.image == image).map(|name| name.number).collect();
        let verdicts = policy.decide(&store.history(&image)?, &stay)?;
        let mut retained = Retained { image, verdicts, left: Vec::new(), refused: None };
        let held = store.edit_lock(&retained.image)?;
        let gone: Vec<u64> = retained.forgotten().map(|version| version.number).collect();
        if let Some(error) = edit_lock_refusal(&retained.image, None, held.as_ref())
            && !gone.is_empty()
        {
            (retained.left, retained.refused) = (gone, Some(error.to_string()));
        }
        Ok(retained)
    };
    let mut retained = images.into_iter().map(decide).collect::<Result<Vec<_>>>()?;
    for image in retained.iter_mut().filter(|_| !dry_run) {
        for version in image.forgotten().collect::<Vec<_>>() {
            match store.forget(&version.image, Some(version.number)) {
                // Somebody has begun to edit it, or protected the version.
                Err(error) if error.kind() == ErrorKind::Refused => {
                    image.left.push(version.number);
                    image.refused = Some(error.to_string());
                }
                forgotten => forgotten.map(drop)?,
            }
        }
    }
    Ok(retained)
}
