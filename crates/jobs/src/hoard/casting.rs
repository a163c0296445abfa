//! Casts a revision of the hoard: the stored frames of one node's hoard, to every node that listens; each requests only
//! what it lacks.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::{BlockId, Domain, Error, ErrorKind, FrameAddress, FrameIndex, Kind, Result, Score};
use platter_net::{
    ChunkSink, ChunkSource, ChunkVerdict, ReceiveEvent, ReceiveOptions, SendEvent, SendOptions,
    SessionDescription, SinkOutcome, Wanted,
};
use platter_records::HoardMember;
use platter_store::{Added, Hoard, HoardManifest, HoardWriter, ReplicaFacts};

use super::sync::{HoardSyncReport, hoard_place};
use crate::cast::{cast_report, hoard_session, hoard_title};
use crate::cast_keys::{refuse_readable, secret_of, use_keys_of};
use crate::receive::Frames;
use crate::{CastReport, Progress};

/// Approximate bytes of frames in a chunk.
const CHUNK_LENGTH: usize = 1 << 20;
/// Prefix of the session's name, before the revision. No image can have such a name.
const NAME: &str = "hoard:";
/// Most bytes of a manifest: a multiple of the bytes of its chunks, plus a constant.
const EXPANSION_MAX: u64 = 32;
const MANIFEST_LENGTH_FREE: u64 = 4 << 20;

/// The warning for every received hoard.
const HOARD_UNPROVED: &str = "nothing proves that the sender has this origin's hoard: any machine of this network can cast one. \
    Blocks are verified by their names; which ones belong to a boot is what the sender says. `platter hoard sync` asks the origin";

/// The request to cast a hoard.
#[derive(Clone, Debug)]
pub struct HoardCastRequest {
    /// The node's directory whose hoard is cast.
    pub cache: PathBuf,
    /// Addresses, rate, and receivers to wait for.
    pub network: SendOptions,
}

/// The request to receive a hoard.
#[derive(Clone, Debug)]
pub struct HoardReceiveRequest {
    /// The node's directory.
    pub cache: PathBuf,
    /// Where to listen. The cast's name is fixed.
    pub network: ReceiveOptions,
}

/// Casts the hoard of a node.
///
/// # Errors
/// `Missing` when there is none; `Corrupt` when it is damaged; `Io` when the network cannot be used.
pub fn hoard_cast(
    request: &HoardCastRequest,
    progress: &dyn Progress,
    on_event: &mut dyn FnMut(&SendEvent),
) -> Result<CastReport> {
    let hoard = Hoard::open(&hoard_place(&request.cache))?;
    let snapshot = hoard.snapshot();
    if snapshot.epoch.is_empty() {
        return Err(Error::missing(format!(
            "there is no hoard in {}: `platter hoard sync` makes one",
            request.cache.display()
        )));
    }
    let domain = domain_of(&hoard)?;
    refuse_readable(domain, request.network.join_key.is_some())?;
    let secret = secret_of(domain).map_err(|error| {
        error.within(
            "the hoard is encrypted, and only its origin and processes that read from it have the keys",
        )
    })?;
    progress.begin("planning", 0);
    let mut chunks: Vec<Vec<FrameAddress>> = Vec::new();
    let (mut lengths, mut ids): (Vec<u32>, Vec<Vec<BlockId>>) = (Vec::new(), Vec::new());
    for (address, blocks) in hoard.frames() {
        match (chunks.last_mut(), lengths.last_mut(), ids.last_mut()) {
            (Some(chunk), Some(length), Some(ids)) if (*length + address.length) as usize <= CHUNK_LENGTH => {
                chunk.push(address);
                *length += address.length;
                ids.extend(blocks);
            }
            _ => {
                chunks.push(vec![address]);
                lengths.push(address.length);
                ids.push(blocks);
            }
        }
    }
    let name = hoard_title(snapshot.revision);
    let (description, manifest) = hoard_session(snapshot, secret, ids, &lengths)?;
    let source = HoardChunks { hoard: &hoard, manifest, chunks };
    let summary = platter_net::send(&request.network, &description, &source, |event| on_event(&event))?;
    Ok(cast_report(name, &description, &summary))
}

/// The identity domain of the hoard's blocks.
fn domain_of(hoard: &Hoard) -> Result<Domain> {
    let mut stored = Vec::new();
    for (address, _) in hoard.frames() {
        hoard.read_frame(address, &mut stored)?;
        let domain = FrameHeader::parse(&stored)?.domain;
        if domain.is_encrypted() {
            return Ok(domain);
        }
        // Boot sets have no domain; data and pages do.
        if FrameHeader::parse(&stored)?.kind == Kind::Data {
            break;
        }
    }
    Ok(Domain::SHARED)
}

struct HoardChunks<'a> {
    hoard: &'a Hoard,
    manifest: Vec<Vec<u8>>,
    chunks: Vec<Vec<FrameAddress>>,
}

impl ChunkSource for HoardChunks<'_> {
    fn read(&self, index: u32) -> Result<Arc<[u8]>> {
        let index = index as usize;
        if let Some(chunk) = self.manifest.get(index) {
            return Ok(Arc::from(&chunk[..]));
        }
        let frames = self.chunks.get(index - self.manifest.len());
        let frames = frames.ok_or_else(|| Error::bug(format!("there is no chunk {index}")))?;
        let (mut bytes, mut stored) = (Vec::new(), Vec::new());
        for address in frames {
            self.hoard.read_frame(*address, &mut stored)?;
            FrameHeader::parse(&stored)?.payload(&stored)?;
            bytes.extend_from_slice(&stored);
        }
        Ok(bytes.into())
    }
}

/// Receives the hoard of another node.
///
/// # Errors
/// `Missing` when no sender is heard; `Transient` when another process updates the hoard; `Corrupt`, `Io`. What arrived before an error
/// stays for the next update.
pub fn hoard_receive(request: &HoardReceiveRequest, progress: &dyn Progress) -> Result<HoardSyncReport> {
    let writer = HoardWriter::open(&hoard_place(&request.cache))?;
    let network = ReceiveOptions { wanted: Wanted::Name(NAME.into()), ..request.network.clone() };
    progress.note(HOARD_UNPROVED);
    progress.begin("waiting for a sender", 0);
    let report = receive_into((writer, Completeness::Required), &network, progress, &mut |_| {})?;
    report.ok_or_else(|| Error::bug("received a hoard without an end"))
}

/// Whether a cast has everything that a revision needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completeness {
    /// Anything else is an error.
    Required,
    /// It may lack what other nodes have already.
    Optional,
}

/// Receives a cast into a hoard. Returns `None` if all of it was received and made durable, and a revision still lacks something.
///
/// # Errors
/// As [`hoard_receive`].
pub(super) fn receive_into(
    (writer, completeness): (HoardWriter, Completeness),
    network: &ReceiveOptions,
    progress: &dyn Progress,
    on_event: &mut dyn FnMut(&ReceiveEvent),
) -> Result<Option<HoardSyncReport>> {
    let (started, before) = (Instant::now(), writer.hoard().snapshot());
    let mut sink = HoardSink::new(writer, completeness)?;
    // Data is requested only after the manifest, because some of it is already here.
    let network = ReceiveOptions { everything: false, ..network.clone() };
    let mut done = 0;
    let received = platter_net::receive(&network, &mut sink, |event| {
        on_event(&event);
        match event {
            ReceiveEvent::Trouble(text) => progress.note(&text),
            ReceiveEvent::Joined { name, .. } => progress.note(&format!("joined the cast of {name}")),
            ReceiveEvent::Ignored { name, join, reason } => {
                progress.note(&format!("ignored the sender of {name} at {join}: {reason}"));
            }
            ReceiveEvent::SenderLost => progress.note("the sender is gone; waiting for it to come back"),
            ReceiveEvent::Progress { bytes, .. } => {
                progress.advance(bytes.saturating_sub(done));
                done = bytes;
            }
        }
    });
    if let Err(error) = received {
        sink.writer.take().map_or(Ok(()), HoardWriter::keep_added)?;
        return Err(error);
    }
    let Some(facts) = sink.facts else { return Ok(None) };
    let members = sink.manifest.map_or_else(Vec::new, |manifest| manifest.snapshot.members);
    let differ = |from: &[HoardMember], other: &[HoardMember]| {
        from.iter().filter(|member| !other.contains(*member)).count()
    };
    Ok(Some(HoardSyncReport {
        revision_before: before.revision,
        revision: facts.revision,
        whole: true,
        members: facts.members,
        added: differ(&members, &before.members),
        gone: differ(&before.members, &members),
        fetched_blocks: sink.added.blocks,
        fetched_raw_bytes: sink.added.raw_bytes,
        stored_bytes: sink.added.stored_bytes,
        disk_bytes: facts.disk_bytes,
        index_bytes: facts.index_bytes,
        seconds: started.elapsed().as_secs_f64(),
    }))
}

/// Receives a hoard.
struct HoardSink {
    writer: Option<HoardWriter>,
    completeness: Completeness,
    decoder: FrameDecoder,
    description: Option<SessionDescription>,
    taken: Vec<bool>,
    /// Blocks of the manifest, until it is complete.
    blocks: HashMap<BlockId, Vec<u8>>,
    blocks_length: u64,
    manifest: Option<HoardManifest>,
    /// Whether the chunks of the manifest are fetched again from the sender alone, because they were inconsistent.
    asked_again: bool,
    added: Added,
    facts: Option<ReplicaFacts>,
}

impl HoardSink {
    fn new(writer: HoardWriter, completeness: Completeness) -> Result<Self> {
        Ok(Self {
            writer: Some(writer),
            completeness,
            decoder: FrameDecoder::new()?,
            description: None,
            taken: Vec::new(),
            blocks: HashMap::new(),
            blocks_length: 0,
            manifest: None,
            asked_again: false,
            added: Added::default(),
            facts: None,
        })
    }

    /// Returns the number of chunks of the manifest, and of all chunks.
    fn shape(&self) -> Result<(u32, u32)> {
        let description =
            self.description.as_ref().ok_or_else(|| Error::bug("a chunk before its session"))?;
        match &description.segments[..] {
            [segment] if segment.recipe_chunks > 0 => Ok((segment.recipe_chunks, segment.chunks)),
            _ => Err(Error::corrupt("a hoard in several segments, or without its manifest")),
        }
    }

    /// Returns the chunks with missing data.
    fn wanted(&self) -> Result<Vec<Range<u32>>> {
        let (first, count) = self.shape()?;
        let Some(manifest) = &self.manifest else { return Ok(ranges(0..first, &self.taken)) };
        if manifest.chunks.len() != (count - first) as usize {
            return Err(Error::corrupt("the manifest of the hoard does not match this cast"));
        }
        let Some(writer) = &self.writer else { return Ok(Vec::new()) };
        let lacks = |ids: &[BlockId]| ids.iter().any(|id| !writer.holds(id));
        let chunks = (first..).zip(&manifest.chunks).filter(|(_, ids)| lacks(ids));
        Ok(chunks.map(|(index, _)| index..index + 1).filter(|it| !self.taken[it.start as usize]).collect())
    }

    fn take(&mut self, index: u32, bytes: &[u8]) -> Result<ChunkVerdict> {
        let (first, _) = self.shape()?;
        let is_manifest = index < first;
        if is_manifest {
            match Frames(bytes).try_for_each(|stored| self.take_manifest(stored?)) {
                Err(error) if error.kind() == ErrorKind::Refused => return Ok(unusable(&error)),
                taken => taken?,
            }
        } else {
            self.take_data((index - first) as usize, bytes)?;
        }
        self.taken[index as usize] = true;
        let is_whole = (0..first).all(|chunk| self.taken[chunk as usize]);
        if !is_manifest || !is_whole || self.manifest.is_some() {
            return Ok(ChunkVerdict::Accepted);
        }
        let score = self.description.as_ref().map(|description| description.score);
        let score = score.ok_or_else(|| Error::bug("a chunk before its session"))?;
        self.blocks_length = 0;
        match HoardManifest::assemble(score, &std::mem::take(&mut self.blocks)) {
            Ok(manifest) => self.manifest = Some(manifest),
            // Some of the chunks were forged, from valid frames.
            Err(error) if error.is_damage() && !self.asked_again => {
                self.asked_again = true;
                self.taken[..first as usize].fill(false);
                return Ok(ChunkVerdict::Contradicts(std::iter::once(0..first).collect()));
            }
            Err(error) if error.is_damage() => return Ok(unusable(&error)),
            Err(error) => return Err(error),
        }
        let wanted = match self.wanted() {
            // The manifest is the right one.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(unusable(&error)),
            wanted => wanted?,
        };
        Ok(if wanted.is_empty() { ChunkVerdict::Accepted } else { ChunkVerdict::AcceptedWant(wanted) })
    }

    /// Stores a chunk of data. It must contain all blocks that the manifest lists for it.
    fn take_data(&mut self, chunk: usize, bytes: &[u8]) -> Result<()> {
        let ids = self.manifest.as_ref().and_then(|manifest| manifest.chunks.get(chunk));
        let ids = ids.ok_or_else(|| Error::bug("a chunk of data before the manifest"))?;
        let writer = self.writer.as_mut().ok_or_else(|| Error::bug("a chunk after the end"))?;
        for stored in Frames(bytes) {
            self.added += writer.add_frame(stored?)?;
        }
        match ids.iter().find(|id| !writer.holds(id)) {
            Some(id) => Err(Error::corrupt(format!("block {id} is missing in its chunk"))),
            None => Ok(()),
        }
    }

    fn take_manifest(&mut self, stored: &[u8]) -> Result<()> {
        let limit = self.description.as_ref().map_or(0, SessionDescription::total_bytes);
        let (header, mut rest) = self.decoder.decode(stored, Verify::Hashes)?;
        if header.kind != Kind::BootSet {
            return Err(Error::corrupt(format!("a frame of {:?} instead of the manifest", header.kind)));
        }
        for block in &header.blocks {
            let (bytes, after) = rest.split_at(block.length as usize);
            rest = after;
            self.blocks_length += u64::from(block.length);
            if self.blocks_length > limit.saturating_mul(EXPANSION_MAX) + MANIFEST_LENGTH_FREE {
                return Err(Error::refused("the manifest of the hoard is too long"));
            }
            self.blocks.insert(block.id, bytes.to_vec());
        }
        Ok(())
    }
}

impl ChunkSink for HoardSink {
    fn session(&mut self, description: &SessionDescription) -> Result<Vec<Range<u32>>> {
        use_keys_of(description)?;
        if self.description.as_ref().is_none_or(|known| known.score != description.score) {
            self.manifest = None;
        }
        (self.blocks, self.blocks_length, self.asked_again) = (HashMap::new(), 0, false);
        self.taken = vec![false; description.chunk_lengths.len()];
        self.description = Some(description.clone());
        self.wanted()
    }

    fn chunk(&mut self, index: u32, bytes: &[u8]) -> Result<ChunkVerdict> {
        match self.take(index, bytes) {
            Ok(verdict) => Ok(verdict),
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(ChunkVerdict::Bad(error.to_string())),
            Err(error) => Err(error),
        }
    }

    fn finish(&mut self) -> Result<SinkOutcome> {
        let (Some(manifest), Some(description)) = (&self.manifest, &self.description) else {
            return Err(Error::bug("finished before the manifest was complete"));
        };
        let score: Score = description.score;
        let writer = self.writer.take().ok_or_else(|| Error::bug("finished twice"))?;
        match writer.finish(&manifest.snapshot) {
            Err(error)
                if error.kind() == ErrorKind::Missing && self.completeness == Completeness::Optional => {}
            facts => self.facts = Some(facts?),
        }
        Ok(SinkOutcome { score, bytes_written: self.added.raw_bytes })
    }
}

/// The verdict about a sender that cannot be the one that it claims to be, or whose hoard is damaged.
fn unusable(reason: &Error) -> ChunkVerdict {
    ChunkVerdict::Unusable(reason.with_causes())
}

/// Returns the chunks of a range that were not accepted.
fn ranges(range: Range<u32>, taken: &[bool]) -> Vec<Range<u32>> {
    range.filter(|index| !taken[*index as usize]).map(|index| index..index + 1).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::thread;
    use std::time::Duration;

    use platter_cast::{Segment, SessionSecret};
    use platter_image::frame::{Compressor, FrameBuilder, RAW_LENGTH_DEFAULT};
    use platter_store::{Store, StorePlace};

    use super::*;
    use crate::Silent;
    use crate::hoard::{HoardSyncRequest, hoard_sync};
    use crate::tests::{capture_bytes, register_all};
    use platter_fetch::StoreLocation;

    /// A disk of this many blocks of 32 KiB, of which the first ones are unique.
    fn disk(number: u8, blocks: usize) -> Vec<u8> {
        let block = |at: usize| {
            let own = if at < 4 { number } else { 0 };
            (0..32 << 10).map(move |n: usize| (n / 97) as u8 ^ (at as u8) ^ own.wrapping_mul(37) | 1)
        };
        (0..blocks).flat_map(block).collect()
    }

    fn cast_to(from: &Path, to: &Path) -> (CastReport, HoardSyncReport) {
        let port = 20_000 + (std::process::id() % 40_000) as u16;
        let sending = HoardCastRequest {
            cache: from.to_owned(),
            network: SendOptions {
                interface: Some("127.0.0.1".into()),
                port,
                join_port: 0,
                linger: Duration::from_millis(200),
                give_up: Some(Duration::from_secs(30)),
                ..SendOptions::default()
            },
        };
        let receiving = HoardReceiveRequest {
            cache: to.to_owned(),
            network: ReceiveOptions {
                interface: Some("127.0.0.1".into()),
                port,
                hello: "test".into(),
                give_up: Some(Duration::from_secs(30)),
                ..ReceiveOptions::default()
            },
        };
        thread::scope(|scope| {
            let sent = scope.spawn(|| hoard_cast(&sending, &Silent, &mut |_| {}));
            let received = hoard_receive(&receiving, &Silent).unwrap();
            (sent.join().unwrap().unwrap(), received)
        })
    }

    /// A sender that claims to have the right hoard, and sends valid frames of another one, is left.
    #[test]
    fn a_sender_with_other_frames_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink =
            HoardSink::new(HoardWriter::open(&hoard_place(folder.path())).unwrap(), Completeness::Required)
                .unwrap();
        let mut frame = FrameBuilder::new(Kind::BootSet, Domain::SHARED, RAW_LENGTH_DEFAULT);
        frame.push(Domain::SHARED.id_of(Kind::BootSet, b"another hoard").unwrap(), b"another hoard");
        let other = frame.encode(&mut Compressor::new(1).unwrap()).unwrap().stored;
        let described = |segments: &[(u32, u32)]| SessionDescription {
            score: Score(BlockId([1; 32])),
            name: NAME.into(),
            offer: Vec::new(),
            secret: SessionSecret::default(),
            segment_length: 1 << 36,
            segments: segments
                .iter()
                .map(|(chunks, recipe_chunks)| Segment { chunks: *chunks, recipe_chunks: *recipe_chunks })
                .collect(),
            chunk_lengths: vec![other.len() as u32; 2],
        };
        for segments in [&[(1, 1), (1, 1)][..], &[(2, 0)]] {
            let error = sink.session(&described(segments)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "the sender is left: {error}");
        }
        for _ in 0..2 {
            assert_eq!(sink.session(&described(&[(2, 1)])).unwrap().into_iter().flatten().count(), 1);
            let verdict = sink.chunk(0, &other).unwrap();
            assert!(matches!(verdict, ChunkVerdict::Contradicts(_)), "{verdict:?}");
            let verdict = sink.chunk(0, &other).unwrap();
            assert!(
                matches!(&verdict, ChunkVerdict::Unusable(reason) if reason.contains("not received")),
                "{verdict:?}"
            );
        }
    }

    /// A node receives a revision by cast, and of the next one only what it lacks.
    #[test]
    fn a_revision_is_cast_completely_and_the_next_one_by_its_difference() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        assert_eq!(
            hoard_cast(
                &HoardCastRequest { cache: one.clone(), network: SendOptions::default() },
                &Silent,
                &mut |_| {}
            )
            .unwrap_err()
            .kind(),
            ErrorKind::Missing
        );
        let sync = || {
            let store = StoreLocation::Local(place.clone());
            hoard_sync(&HoardSyncRequest { store, cache: one.clone(), whole: false }, &Silent).unwrap()
        };
        capture_bytes(&place, "a", &disk(1, 100));
        register_all(&place, "a").unwrap();
        let synced = sync();
        let (sent, received) = cast_to(&one, &two);
        assert_eq!((received.revision, received.members, received.added), (1, 1, 1));
        assert_eq!(received.fetched_raw_bytes, sent.receivers[0].written_bytes);
        assert!(
            received.fetched_blocks >= synced.fetched_blocks,
            "the boot set itself is transferred as well"
        );
        capture_bytes(&place, "b", &disk(2, 100));
        register_all(&place, "b").unwrap();
        sync();
        let (_, received) = cast_to(&one, &two);
        assert_eq!((received.revision_before, received.revision, received.added), (1, 2, 1));
        assert!(received.fetched_blocks < 15, "{received:?}");
        let (one, two) = (Hoard::open(&hoard_place(&one)).unwrap(), Hoard::open(&hoard_place(&two)).unwrap());
        assert_eq!(one.snapshot(), two.snapshot());
        for (_, ids) in one.frames() {
            assert!(ids.iter().all(|id| two.holds(id)));
        }
        for member in two.snapshot().members {
            let set = two.boot_set(&member.boot_set).unwrap();
            assert!(set.blocks.iter().all(|row| two.read_data(&row.id).is_ok()));
        }
    }
}
