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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use platter_image::frame::{FrameDecoder, Verify};
    use platter_store::StorePlace;

    use super::*;
    use crate::receive::Frames;
    use crate::tests::{capture_bytes, register_all};

    const BLOCK: usize = 32 << 10;

    /// Returns the blocks that a cast sends, after comparing them with its manifest and its lengths.
    fn sent(store: &Store, snapshot: &HoardSnapshot, since: u64) -> BTreeSet<BlockId> {
        let (description, source) = describe_hoard(store, snapshot, since).unwrap();
        let mut decoder = FrameDecoder::new().unwrap();
        let (mut manifest, mut ids) = (std::collections::HashMap::new(), Vec::new());
        for (index, length) in (0..).zip(&description.chunk_lengths) {
            let bytes = source.read(index).unwrap();
            assert_eq!(bytes.len(), *length as usize);
            let mut of_chunk = BTreeSet::new();
            for stored in Frames(&bytes) {
                let (header, mut rest) = decoder.decode(stored.unwrap(), Verify::Hashes).unwrap();
                for block in &header.blocks {
                    let (contents, after) = rest.split_at(block.length as usize);
                    rest = after;
                    manifest.insert(block.id, contents.to_vec());
                    of_chunk.insert(block.id);
                }
            }
            if index >= description.segments[0].recipe_chunks {
                ids.push(of_chunk);
            }
        }
        let manifest = HoardManifest::assemble(description.score, &manifest).unwrap();
        assert_eq!(manifest.snapshot, *snapshot);
        let listed: Vec<BTreeSet<BlockId>> =
            manifest.chunks.iter().map(|chunk| chunk.iter().copied().collect()).collect();
        assert_eq!(listed, ids);
        ids.into_iter().flatten().collect()
    }

    #[test]
    fn a_cast_of_the_hoard_has_exactly_the_blocks_of_its_members() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        let block = |n: usize| (0..BLOCK).map(move |at| (at / 97 + n * 7) as u8 ^ n as u8 | 1);
        let disk = |numbers: &mut dyn Iterator<Item = usize>| numbers.flat_map(block).collect::<Vec<u8>>();
        // Three of four blocks of each frame are shared; then a disk that has a part of these, in another order.
        capture_bytes(&place, "hidden/a", &disk(&mut (0..64)));
        capture_bytes(&place, "lab/a", &disk(&mut (0..64).filter(|n| n % 4 != 3)));
        capture_bytes(&place, "lab/b", &disk(&mut (60..80).rev().filter(|n| n % 4 != 3)));
        register_all(&place, "lab/a").unwrap();
        register_all(&place, "lab/b").unwrap();
        let store = Store::open_reader(&place).unwrap();
        let hoard = store.hoard().unwrap();
        let needed = |name: &str| {
            let member =
                hoard.members.iter().find(|member| member.version.image.to_string() == name).unwrap();
            let set = store.boot_set(&member.boot_set).unwrap();
            let rows = set.pages.iter().chain(&set.blocks).map(|row| row.id);
            rows.chain(store.boot_set_parts(&member.boot_set).unwrap()).collect::<BTreeSet<_>>()
        };
        let (a, b) = (needed("lab/a"), needed("lab/b"));
        assert_eq!(sent(&store, &hoard, 0), &a | &b);
        assert_eq!(sent(&store, &hoard, 1), &b - &a, "who has the first revision has what it needs");
        assert!(sent(&store, &hoard, 2).is_empty());
        let part = HoardSnapshot { members: vec![hoard.members[1].clone()], ..hoard.clone() };
        assert_eq!(sent(&store, &part, 0), b);
    }
}
