//! Proves a recipe that a client sent: it is valid, its sender may use every block and page in it, all of them are
//! stored, and its pieces lie within their blocks. An unproven recipe is never published.

use std::cell::Cell;

use platter_image::page::Entry;
use platter_image::recipe::{Difference, PageSource, PieceCheck, Recipe, diff};
use platter_image::{BlockId, Domain, Error, ErrorKind, Extent, FrameIndex, FrameStore, Kind, Result};
use platter_records::{NumberChoice, VersionRecord};
use platter_store::{Session, Store};

use crate::id_sets::walk;

/// Why a version was not published.
#[derive(Debug)]
pub(crate) enum PublishError {
    /// The recipe is invalid.
    Malformed(Error),
    /// Anything else.
    Other(Error),
}

impl From<Error> for PublishError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// The pages of a session. Notes whether a stored page is damaged, because then the sender is not at fault.
struct Pages<'a> {
    session: &'a Session,
    is_damaged: Cell<bool>,
}

impl PageSource for Pages<'_> {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        let page = self.session.page(id);
        // A page that is intact in the store but cannot be parsed is the sender's error.
        if page.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt)
            && self.session.lookup_and_pin(id)?.is_none()
        {
            self.is_damaged.set(true);
        }
        page
    }
}

/// Refuses a draft that contradicts its recipe, or whose recipe refers to blocks that are not stored or that the sender
/// may not use. Returns the number of readable bytes of the disk, independent of the draft.
///
/// # Errors
/// `Malformed`; `Missing`, with the id that was not sent; `Refused`; the store's errors.
pub(super) fn prove(
    draft: &VersionRecord,
    store: &Store,
    session: &Session,
    may_use: &dyn Fn(&BlockId) -> bool,
) -> Result<u64, PublishError> {
    let pages = Pages { session, is_damaged: Cell::new(false) };
    let lacks = |kind: Kind, id: &BlockId| {
        let what = if kind == Kind::Page { "page" } else { "block" };
        Error::missing(format!("{what} {id} was not sent"))
    };
    let is_usable = |kind: Kind, id: &BlockId| match may_use(id) && session.locate(id)?.is_some() {
        true => Ok(()),
        false => Err(lacks(kind, id)),
    };
    let proven = is_usable(Kind::Page, &draft.score.0).and_then(|()| {
        let recipe = Recipe::open(draft.score, &pages)?;
        check_record(draft, store.domain(), &recipe)?;
        walk(&recipe, &mut |kind, id| is_usable(kind, id))?;
        check_pieces(draft, store, session, &recipe)?;
        let mut in_use = recipe.entries(Extent::new(0, recipe.root().disk_length));
        in_use.try_fold(0, |sum, entry| Ok(sum + entry?.extent.length))
    });
    proven.map_err(|error| match error.kind() {
        ErrorKind::Corrupt if !pages.is_damaged.get() => PublishError::Malformed(error),
        _ => PublishError::Other(error),
    })
}

fn check_record(draft: &VersionRecord, domain: Domain, recipe: &Recipe<&Pages<'_>>) -> Result<()> {
    let root = recipe.root();
    if root.domain != domain {
        return Err(Error::corrupt(format!(
            "the recipe {} has another store's identity domain",
            recipe.score()
        )));
    }
    let said = (draft.disk_length, draft.sector_size, draft.cut_policy);
    let is = (root.disk_length, root.sector_size, root.cut_policy.0);
    if said != is {
        return Err(Error::refused(format!(
            "the record describes a disk of {} bytes with sectors of {} bytes and cut policy {}, but its recipe has {}, {} and {}",
            said.0, said.1, said.2, is.0, is.1, is.2
        )));
    }
    Ok(())
}

/// Checks that all pieces lie within their blocks. Pieces shared with the image's newest version were checked before.
fn check_pieces(
    draft: &VersionRecord,
    store: &Store,
    session: &Session,
    recipe: &Recipe<&Pages<'_>>,
) -> Result<()> {
    let mut pieces = PieceCheck::new(session);
    if let Ok(newest) = store.version(&draft.image, NumberChoice::Latest)
        && let Ok(known) = Recipe::open(newest.record.score, session)
    {
        let add = &mut |new: &Difference| pieces.add(&Entry { extent: new.extent, state: new.b });
        // A failure may be caused by the newest version: all pieces are checked then.
        if diff(&known, recipe, add).is_ok() {
            return pieces.finish();
        }
    }
    let mut pieces = PieceCheck::new(session);
    for entry in recipe.entries(Extent::new(0, recipe.root().disk_length)) {
        pieces.add(&entry?)?;
    }
    pieces.finish()
}
