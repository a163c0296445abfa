//! Receives a cast onto a device or a file.

mod flusher;
mod origin_cast;
mod pages;
mod pipeline;
mod read_back;
mod sink;
#[cfg(test)]
mod sink_tests;
mod table;
mod writer;

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use platter_disk::Target;
use platter_disk::install::{Delta, EdgesLast, Finished};
use platter_disk::refusal::CheckedTarget;
use platter_image::{DiskRead, DiskWrite, Error, Extent, Extents, Result, Score};
use platter_net::{CastFilter, ReceiveEvent, ReceiveOptions, ReceiveSummary, Wanted};
use platter_records::{NumberChoice, VersionQuery, VersionRecord, decode_offer};
use platter_signing::{SignatureCheck, SignaturePolicy};

use crate::grow::GrownPlace;
use crate::target::TargetRequest;
use crate::{Compared, DeltaReport, Progress, ReceiveReport, Silent, Way};
pub use origin_cast::OriginCastRequest;
pub(crate) use origin_cast::{families, key_of, place_of};
use pipeline::Pipeline;
pub(crate) use sink::Frames;
use sink::{DiskSink, Opened, ReceivedDisk, SegmentRecipe};

/// The request to receive a cast.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// The target.
    pub target: TargetRequest,
    /// The wanted cast, and where to listen.
    pub network: ReceiveOptions,
    /// Which versions may be received. A score may always.
    pub signatures: SignaturePolicy,
    /// Whether to receive a disk that neither a score nor a signature proves.
    pub trust_any: bool,
    /// The origin that is asked to cast the version, and says where. `None`: casts are found by their announcements.
    pub origin: Option<OriginCastRequest>,
}

/// The refusal of a bare name.
const UNPROVED: &str = "a name proves nothing: any machine of this network can cast another disk under it. `--server URL` asks an origin for \
    the disk; `platter show NAME` at the store prints the score, and `platter receive SCORE TARGET` takes no other disk; `platter key trust \
    FILE` takes only versions that this key signed; --trust-any takes what the first sender of that name casts";
/// The warning with `--trust-any`.
const TRUSTED: &str = "nothing proves that this is the disk you mean: the sender was trusted by the name it gives (--trust-any)";

/// Receives a whole disk.
///
/// # Errors
/// `Refused` when the target must not be written to (nothing was written); `Missing` when no sender is found, or the
/// sender lacks blocks; `Io`. Once something was written, the error describes the state of the target.
pub fn receive(request: &ReceiveRequest, progress: &dyn Progress) -> Result<ReceiveReport> {
    match &request.origin {
        Some(origin) => origin.receive(request, progress, &|request, agreed, version| {
            receive_cast(request, Some(agreed), Some(version), progress)
        }),
        None => receive_cast(request, None, None, progress),
    }
}

/// Receives a whole disk from the cast that the options of the network name. `agreed`: the target, if it may be overwritten.
/// `version`: what is wanted, if that is known for certain.
fn receive_cast(
    request: &ReceiveRequest,
    agreed: Option<Arc<CheckedTarget>>,
    version: Option<&str>,
    progress: &dyn Progress,
) -> Result<ReceiveReport> {
    let started = Instant::now();
    let is_proved = matches!(request.network.wanted, Wanted::Score(_));
    let check = if is_proved { None } else { request.signatures.check()? };
    let must_be_signed = check.is_some();
    let is_trusted = !is_proved && !must_be_signed;
    if is_trusted && !request.trust_any {
        return Err(Error::refused(UNPROVED));
    }
    // Before the cast is joined, everything is checked and confirmed except size and sectors: those need the image, and
    // are checked when the target is opened, before the first write.
    let agreed = match agreed {
        Some(agreed) => agreed,
        None => Arc::new(request.target.agree(None, &[])?),
    };
    let offered = Arc::new(Mutex::new(None::<Offered>));
    let ended = Arc::new(Mutex::new(None::<Ended>));
    // Data is requested only after the recipe if some of it may be here already.
    let selects = request.target.part.is_some() || request.target.may_want_delta(&agreed);
    let everything = request.network.everything && !selects;
    let mut network = ReceiveOptions { everything, ..request.network.clone() };
    let signatures = must_be_signed.then(|| request.signatures.clone());
    let opener = opener(request.target.clone(), agreed, signatures, offered.clone(), ended.clone());
    let sink = DiskSink::new(opener, request.target.part, request.target.free, request.target.read_back)?;
    let mut sink = Pipeline::start(sink)?;
    if is_trusted {
        progress.note(TRUSTED);
    }
    if let Some(check) = check {
        network.filter = signed_only(check);
    }
    progress.begin("waiting for a sender", 0);
    let mut heard =
        Heard { progress, version, offered: &offered, name: String::new(), wanted: 0, bytes: 0, ignored: 0 };
    let summary = platter_net::receive(&network, &mut sink, |event| heard.hear(event));
    let summary = summary.map_err(|error| request.target.explain(error))?;
    let ended = ended.lock().take().ok_or_else(|| Error::bug("received a disk without a target"))?;
    let received = Received {
        name: heard.name,
        ignored: heard.ignored,
        summary,
        delta: sink.with_sink(|sink| sink.delta.take()),
    };
    // The tool of the file system needs the target for itself.
    drop(sink);
    Ok(report(request, received, ended, (is_proved, is_trusted), started))
}

/// What is known when a cast ended.
struct Received {
    name: String,
    /// Senders of the wanted name that cast another disk.
    ignored: u32,
    summary: ReceiveSummary,
    delta: Option<DeltaReport>,
}

/// The report of a disk that was received, whose last file system is grown if that was requested.
fn report(
    request: &ReceiveRequest,
    Received { name, ignored, summary, delta }: Received,
    Ended { mut finished, compared, grown }: Ended,
    (is_proved, is_trusted): (bool, bool),
    started: Instant,
) -> ReceiveReport {
    if is_trusted {
        finished.notes.push(TRUSTED.to_owned());
    }
    let grown = grown.map(|place| place.grow_filesystem(&request.target.path));
    ReceiveReport {
        version: name,
        score: summary.outcome.score.to_string(),
        target: request.target.path.display().to_string(),
        written_bytes: summary.outcome.bytes_written,
        fetched_bytes: summary.symbols * platter_cast::SYMBOL_BYTES as u64,
        delta,
        read_back: request.target.read_back,
        compared,
        partition: request.target.part,
        grown,
        new_ids: finished.new_ids,
        backup_gpt_moved: finished.backup_gpt_moved,
        seconds: summary.duration.as_secs_f64().min(started.elapsed().as_secs_f64()),
        way: Way::Multicast,
        symbols: summary.symbols,
        repaired_symbols: summary.repaired,
        duplicate_symbols: summary.duplicates,
        fetched_chunks: summary.fetched_chunks,
        ignored_senders: ignored,
        rejected_datagrams: summary.rejected,
        repeated_datagrams: summary.repeated,
        acknowledged: summary.acknowledged,
        score_given: is_proved,
        notes: finished.notes,
    }
}

/// A filter that admits casts of versions that a trusted key signed. The recipe must later have the announced score.
fn signed_only(check: SignatureCheck) -> CastFilter {
    CastFilter::new(move |announce| {
        let offered = Offered { name: announce.name.clone(), offer: announce.offer.clone() };
        let record = offered.record(announce.score).ok_or("nobody signed it, because it is no version")?;
        check.verify(&record).map(|_| ()).map_err(|error| error.to_string())
    })
}

/// Opens the target, after the recipe was proven and before the first write.
fn opener(
    request: TargetRequest,
    agreed: Arc<CheckedTarget>,
    signatures: Option<SignaturePolicy>,
    offered: Arc<Mutex<Option<Offered>>>,
    ended: Arc<Mutex<Option<Ended>>>,
) -> impl FnMut(&SegmentRecipe<'_>, Extent) -> Result<Opened> + Send {
    move |recipe, range| {
        let root = recipe.root();
        // The recipe is proven now: it has the offered score. Nothing is written yet.
        if let Some(signatures) = &signatures {
            let record = offered.lock().as_ref().and_then(|offered| offered.record(recipe.score()));
            signatures.admit(record.as_ref())?;
        }
        // Read back around the page cache; otherwise only memory would be compared.
        let target = request.open_unchanged(&agreed, root, &[], request.read_back.then_some(true))?;
        let is_delta = request.wants_delta(&agreed, recipe, range, &target)?;
        let find = || request.find_delta(recipe, range, (&target, false), &Silent);
        let delta = is_delta.then(find).transpose()?;
        let data = Mutex::new(request.data_to_keep(recipe, range)?);
        let target = request.begin(target, root)?;
        let (disk_length, request, ended) = (root.disk_length, request.clone(), ended.clone());
        Ok((Arc::new(Receiving { target, disk_length, is_delta, request, data, ended }), delta))
    }
}

/// What was heard from the sender, for the user.
struct Heard<'a> {
    progress: &'a dyn Progress,
    /// The wanted version. The casts of an origin name only its score.
    version: Option<&'a str>,
    offered: &'a Mutex<Option<Offered>>,
    name: String,
    wanted: u32,
    bytes: u64,
    /// Senders of the wanted name that cast another disk.
    ignored: u32,
}

impl Heard<'_> {
    fn hear(&mut self, event: ReceiveEvent) {
        match event {
            ReceiveEvent::Trouble(text) => self.progress.note(&text),
            ReceiveEvent::Joined { name, score, offer, group } => {
                let version = self.version.unwrap_or(&name);
                self.progress.note(&format!("joined the cast of {version} to {group}, score {score}"));
                *self.offered.lock() = Some(Offered { name: name.clone(), offer });
                self.name = name;
            }
            ReceiveEvent::Ignored { name, join, reason } => {
                self.ignored += 1;
                self.progress.note(&format!("ignored the sender of {name} at {join}: {reason}"));
            }
            ReceiveEvent::SenderLost => self.progress.note("the sender is gone; waiting for it to return"),
            ReceiveEvent::Progress { wanted, bytes, .. } => {
                if wanted != self.wanted {
                    self.wanted = wanted;
                    self.progress.begin("receiving", 0);
                }
                self.progress.advance(bytes.saturating_sub(self.bytes));
                self.bytes = bytes;
            }
        }
    }
}

/// What the sender says about the version, unverified.
struct Offered {
    name: String,
    offer: Vec<u8>,
}

impl Offered {
    /// The parts of a version's record that a signature covers; `None` if the sender names no version.
    fn record(&self, score: Score) -> Option<VersionRecord> {
        let VersionQuery::Named(image, NumberChoice::Number(number)) = self.name.parse().ok()? else {
            return None;
        };
        let (time, signatures) = decode_offer(&self.offer).unwrap_or_default();
        let draft = VersionRecord::draft(image, score, time);
        Some(VersionRecord { number, signatures, ..draft })
    }
}

/// The result for the target.
struct Ended {
    finished: Finished,
    compared: Option<Compared>,
    grown: Option<GrownPlace>,
}

/// The target while it is received.
struct Receiving {
    target: EdgesLast<Target>,
    disk_length: u64,
    is_delta: bool,
    request: TargetRequest,
    /// What the disk fills in the segments so far, if something is to grow.
    data: Mutex<Extents>,
    ended: Arc<Mutex<Option<Ended>>>,
}

impl ReceivedDisk for Receiving {
    fn advance(&self, bytes: u64) {
        self.request.state.advance(bytes);
    }

    fn delta(&self, recipe: &SegmentRecipe<'_>, range: Extent) -> Result<Option<Delta>> {
        let data = self.request.data_to_keep(recipe, range)?;
        let mut known = self.data.lock();
        data.iter().for_each(|extent| known.push(*extent));
        drop(known);
        let find = || self.request.find_delta(recipe, range, (&self.target, true), &Silent);
        self.is_delta.then(find).transpose()
    }

    fn finish(&self, compared: Option<Compared>) -> Result<()> {
        let changes = self.request.table_changes()?;
        let data = std::mem::take(&mut *self.data.lock());
        let finished = self.target.finish(self.request.read_back, changes.as_ref(), &data)?;
        let grown = self.request.grown_place(&self.target, self.disk_length, finished.grown, &data);
        let compared = compared.map(|compared| compared.of_disk(self.disk_length));
        *self.ended.lock() = Some(Ended { finished, compared, grown });
        Ok(())
    }
}

impl DiskRead for Receiving {
    fn length(&self) -> u64 {
        DiskRead::length(&self.target)
    }

    fn sector_size(&self) -> u32 {
        self.target.sector_size()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.target.read_exact_at(buffer, offset)
    }
}

impl DiskWrite for Receiving {
    fn length(&self) -> u64 {
        DiskWrite::length(&self.target)
    }

    fn alignment(&self) -> usize {
        self.target.alignment()
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.target.write_all_at(buffer, offset)
    }

    fn write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        self.target.write_zeroes(offset, length)
    }

    fn flush(&self) -> io::Result<()> {
        self.target.flush()
    }
}
