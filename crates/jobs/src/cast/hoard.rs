//! The session of a hoard's cast (`docs/formats/hoard-cast.md`), and the cast of a revision from the store of an origin.
//!
//! A cast from a store sends only blocks of the hoard's members, because an access token may read only these: frames with other blocks
//! are rebuilt without them.

use std::collections::HashSet;
use std::sync::Arc;

use platter_api::HOARD_CAST_TITLE;
use platter_cast::SessionSecret;
use platter_image::{BlockId, Domain, Error, Kind, Result};
use platter_net::{ChunkSource, Segment, SessionDescription};
use platter_records::{HoardMember, HoardSnapshot};
use platter_store::{HoardManifest, Store};

use super::chunks::Chunks;
use crate::cast_keys::secret_of;

/// Approximate bytes of a chunk of the manifest.
const CHUNK_LENGTH: usize = 1 << 20;

/// The title of the cast of a revision.
pub(crate) fn hoard_title(revision: u64) -> String {
    format!("{HOARD_CAST_TITLE}{revision}")
}

/// Returns the description of a session, and the chunks of its manifest, which come first. `ids` are the blocks of the other chunks,
/// and `lengths` their bytes.
///
/// # Errors
/// `Refused` when the hoard is too large.
pub(crate) fn hoard_session(
    snapshot: HoardSnapshot,
    secret: SessionSecret,
    ids: Vec<Vec<BlockId>>,
    lengths: &[u32],
) -> Result<(SessionDescription, Vec<Vec<u8>>)> {
    let name = hoard_title(snapshot.revision);
    let (score, frames) = HoardManifest { snapshot, chunks: ids }.frames()?;
    let mut manifest: Vec<Vec<u8>> = Vec::new();
    for frame in frames {
        match manifest.last_mut().filter(|chunk| chunk.len() + frame.stored.len() <= CHUNK_LENGTH) {
            Some(chunk) => chunk.extend_from_slice(&frame.stored),
            None => manifest.push(frame.stored),
        }
    }
    let chunk_lengths: Vec<u32> =
        manifest.iter().map(|chunk| chunk.len() as u32).chain(lengths.iter().copied()).collect();
    let segment = Segment { chunks: chunk_lengths.len() as u32, recipe_chunks: manifest.len() as u32 };
    let description = SessionDescription {
        secret,
        offer: Vec::new(),
        score,
        name,
        segment_length: u64::from(u32::MAX),
        segments: vec![segment],
        chunk_lengths,
    };
    Ok((description, manifest))
}

/// Returns the description of a cast of what the members that were added after revision `since` need, and older members do not, and the
/// source of its chunks.
///
/// # Errors
/// `Missing` or `Corrupt` when the store is damaged; `Refused` without the keys of an encrypted store, or when the hoard is too large.
pub(crate) fn describe_hoard<'a>(
    store: &'a Store,
    snapshot: &HoardSnapshot,
    since: u64,
) -> Result<(SessionDescription, StoreHoard<'a>)> {
    let needed = Needed::after(store, snapshot, since)?;
    let mut source = StoreHoard { store, manifest: Vec::new(), parts: Vec::new() };
    let (mut lengths, mut contents) = (Vec::new(), Vec::new());
    // Boot sets have no domain.
    for (kind, domain, ids) in [
        (Kind::Page, store.domain(), &needed.pages),
        (Kind::Data, store.domain(), &needed.blocks),
        (Kind::BootSet, Domain::SHARED, &needed.boot_sets),
    ] {
        let (chunks, ids) = Chunks::plan_exactly(store, kind, domain, ids)?;
        source.parts.push(HoardPart { first: lengths.len(), kind, domain, chunks });
        lengths.extend(&source.parts[source.parts.len() - 1].chunks.lengths);
        contents.extend(ids);
    }
    let (description, manifest) =
        hoard_session(snapshot.clone(), secret_of(store.domain())?, contents, &lengths)?;
    source.manifest = manifest;
    Ok((description, source))
}

/// The blocks that a cast has to send, in the order in which boots read them.
#[derive(Default)]
struct Needed {
    boot_sets: Vec<BlockId>,
    pages: Vec<BlockId>,
    blocks: Vec<BlockId>,
}

impl Needed {
    fn after(store: &Store, snapshot: &HoardSnapshot, since: u64) -> Result<Self> {
        let (mut needed, mut seen) = (Self::default(), HashSet::new());
        // Older members first: what they need is not sent.
        let mut members: Vec<&HoardMember> = snapshot.members.iter().collect();
        members.sort_by_key(|member| member.added);
        for member in members {
            let within = |error: Error| error.within(format!("the boot set of {}", member.version));
            let set = store.boot_set(&member.boot_set).map_err(within)?;
            let parts = store.boot_set_parts(&member.boot_set).map_err(within)?;
            let mut add = |to: &mut Vec<BlockId>, id: BlockId| {
                if seen.insert(id) && member.added > since {
                    to.push(id);
                }
            };
            parts.into_iter().for_each(|id| add(&mut needed.boot_sets, id));
            set.pages.iter().for_each(|row| add(&mut needed.pages, row.id));
            set.blocks.iter().for_each(|row| add(&mut needed.blocks, row.id));
        }
        Ok(needed)
    }
}

/// The chunks of a revision, read from the store.
pub(crate) struct StoreHoard<'a> {
    store: &'a Store,
    manifest: Vec<Vec<u8>>,
    parts: Vec<HoardPart>,
}

/// The chunks with blocks of one kind.
struct HoardPart {
    /// The number of its first chunk after the manifest.
    first: usize,
    kind: Kind,
    domain: Domain,
    chunks: Chunks,
}

impl ChunkSource for StoreHoard<'_> {
    fn read(&self, index: u32) -> Result<Arc<[u8]>> {
        let index = index as usize;
        if let Some(chunk) = self.manifest.get(index) {
            return Ok(Arc::from(&chunk[..]));
        }
        let index = index - self.manifest.len();
        let part = self.parts.iter().rfind(|part| part.first <= index && !part.chunks.lengths.is_empty());
        match part.filter(|part| index - part.first < part.chunks.lengths.len()) {
            Some(part) => part.chunks.read(index - part.first, self.store, part.kind, part.domain),
            None => Err(Error::bug(format!("there is no chunk {index} after the manifest"))),
        }
    }
}
