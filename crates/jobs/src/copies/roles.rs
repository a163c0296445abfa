//! What a store is among its copies, and who follows it (`platter copies`).

use platter_fetch::{OpenStore, Opened, StoreLocation};
use platter_image::{Error, Result};
use platter_records::{Follower, LeftOut, Standing};
use platter_store::Home;
use serde::Serialize;

/// What a store is among its copies.
#[derive(Clone, Debug, Serialize)]
pub struct CopiesReport {
    /// The store's id.
    pub store: String,
    /// In a line.
    pub summary: String,
    /// Where it is, of a store of this machine.
    pub home: Option<Home>,
    /// All that is known.
    pub standing: Standing,
    /// What could not be copied yet, of a follower.
    pub left_out: Vec<LeftOut>,
    /// What had not arrived when the store was promoted.
    pub missing: Vec<String>,
    /// The registered followers.
    pub followers: Vec<Follower>,
}

/// Reports what a store is among its copies.
///
/// # Errors
/// When the catalog cannot be read; the origin's errors.
pub fn copies(location: &StoreLocation) -> Result<CopiesReport> {
    let (store, home, standing, followers) = match OpenStore::open_reader(location)?.opened() {
        Opened::Local(store) => (store.id().to_string(), store.home(), store.standing()?, store.followers()?),
        Opened::Remote(remote) => {
            let told = remote.origin().standing()?;
            (told.store, None, told.standing, remote.origin().followers()?)
        }
    };
    let (mut left_out, mut missing_names) = (Vec::new(), Vec::new());
    match &standing {
        Standing::Follower(following) => left_out.clone_from(&following.left_out),
        Standing::Origin { missing, .. } => missing_names.clone_from(missing),
        Standing::Replaced { .. } => {}
    }
    Ok(CopiesReport {
        store,
        home,
        summary: standing.summary(),
        standing,
        left_out,
        missing: missing_names,
        followers,
    })
}

/// Removes the registration of a follower: what was forgotten is no longer kept for it.
///
/// # Errors
/// `Missing` when there is no such follower; the origin's errors; `Io`.
pub fn remove_follower(location: &StoreLocation, id: &str) -> Result<()> {
    match OpenStore::open_reader(location)?.opened() {
        Opened::Remote(remote) => remote.origin().remove_follower(id),
        Opened::Local(store) => match store.remove_follower(id)? {
            true => Ok(()),
            false => Err(Error::missing(format!("there is no follower {id}"))),
        },
    }
}
