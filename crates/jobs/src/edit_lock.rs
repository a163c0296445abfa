//! Commands for edit locks: take one, take one over, release one; and publishing under one.

use platter_fetch::{EditLockChoice, OpenStore, StoreLocation};
use platter_image::{Error, Result};
use platter_records::{EditLock, ImageName, Version};

/// The default name of a holder, such as `root@node3`.
pub fn default_holder() -> String {
    let uid = rustix::process::geteuid();
    let named = ["LOGNAME", "USER"].into_iter().filter_map(|name| std::env::var(name).ok());
    let user = match uid.is_root() {
        true => "root".into(),
        false => named.into_iter().find(|name| !name.is_empty()).unwrap_or_else(|| uid.as_raw().to_string()),
    };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{user}@{}", host.trim())
}

/// Takes the free edit lock of an image.
///
/// # Errors
/// As [`platter_store::Store::take_edit_lock`].
pub fn take_edit_lock(store: &StoreLocation, image: &ImageName, holder: &str) -> Result<EditLock> {
    OpenStore::open_reader(store)?.take_edit_lock(image, holder, false)
}

/// Takes the edit lock of an image, even from its holder.
///
/// # Errors
/// As [`platter_store::Store::steal_edit_lock`].
pub fn steal_edit_lock(store: &StoreLocation, image: &ImageName, holder: &str) -> Result<EditLock> {
    OpenStore::open_reader(store)?.take_edit_lock(image, holder, true)
}

/// Releases the edit lock of `holder`, and returns it.
///
/// # Errors
/// `Missing` when nobody holds it; `Refused` when somebody else does; as [`platter_store::Store::release_edit_lock`].
pub fn release_edit_lock(store: &StoreLocation, image: &ImageName, holder: &str) -> Result<EditLock> {
    let store = OpenStore::open_reader(store)?;
    let edit_lock = store
        .edit_lock(image)?
        .ok_or_else(|| Error::missing(format!("nobody holds the edit lock of {image}")))?;
    if edit_lock.holder != holder {
        return Err(Error::refused(format!(
            "{image} is not {holder}'s to release ({edit_lock}): insist with --holder {}, or take it over with `platter \
             lock steal {image}`",
            edit_lock.holder
        )));
    }
    store.release_edit_lock(&edit_lock)?;
    Ok(edit_lock)
}

/// Publishes under the chosen edit lock. A lock that is taken over for this is released afterwards.
pub(crate) fn with_edit_lock(
    store: &OpenStore,
    image: &ImageName,
    choice: EditLockChoice,
    publish: impl FnOnce(Option<u64>) -> Result<Version>,
) -> Result<Version> {
    let stolen = match choice {
        EditLockChoice::Steal if store.edit_lock(image)?.is_some() => {
            Some(store.take_edit_lock(image, &default_holder(), true)?)
        }
        _ => None,
    };
    let published = publish(match choice {
        EditLockChoice::Number(number) => Some(number),
        _ => stolen.as_ref().map(|edit_lock| edit_lock.number),
    });
    given_back(published, stolen.map_or(Ok(()), |edit_lock| store.release_edit_lock(&edit_lock)))
}

/// Combines the results of publishing and of releasing the edit lock.
fn given_back(published: Result<Version>, released: Result<()>) -> Result<Version> {
    let version = published?;
    released.map_err(|error| {
        error.within(format!("{} is published, but its edit lock could not be released", version.name))
    })?;
    Ok(version)
}
