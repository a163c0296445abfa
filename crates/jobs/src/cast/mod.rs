//! Casts a version to every receiver that wants it.

mod chunks;
mod hoard;
mod on_demand;
mod reporter;
mod segments;
mod spool;
mod status;

use std::sync::Arc;
use std::time::{Duration, Instant};

use platter_cast::OFFER_BYTES_MAX;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{Domain, Error, ErrorKind, FrameIndex, Kind, Result, Score, plan};
use platter_net::{
    Bottleneck, ChunkSource, ReceiverState, ReceiverStatus, Segment, SendEvent, SendOptions, SendSummary,
    SessionDescription,
};
use platter_records::{Resolved, encode_offer};
use platter_store::Store;

use crate::cast_keys::{check_audience_of_cast, refuse_readable, secret_of};
use crate::chunk_contents::encode;
use crate::install::title;
use crate::{CastReport, Progress, ReceiverReport, default_holder};
use chunks::Chunks;
pub use chunks::Others;
use platter_client::{OriginStore, ServerOptions};
use platter_fetch::{StoreLocation, origin_of};
use reporter::Reporter;
use segments::segments;
use spool::Spool;

pub(crate) use hoard::{hoard_session, hoard_title};
pub use on_demand::{CastDesk, CastDeskOptions};
use platter_api::{CastState, CastStatus, ListedCast};
pub use segments::SEGMENT_DATA_MAX;
pub use spool::SpoolDirectory;
use status::{end, set_receivers};

/// Bytes of a symbol.
const SYMBOL_BYTES: u64 = platter_cast::SYMBOL_BYTES as u64;

/// The request to cast a version.
#[derive(Clone, Debug)]
pub struct CastRequest {
    /// The store. A version of an origin is first copied to a temporary store.
    pub store: StoreLocation,
    /// The version.
    pub version: String,
    /// The temporary store, if the version is an origin's.
    pub spool: Option<SpoolDirectory>,
    /// Most bytes of data in a segment of the disk, which limits what receivers have to remember; the default is
    /// [`SEGMENT_DATA_MAX`].
    pub segment_data_max: u64,
    /// Whether every machine of the network may read a version that its origin gives only to access tokens.
    pub readable: bool,
    /// Addresses, rate, and receivers to wait for.
    pub network: SendOptions,
    /// The origin to report to, if one listens.
    pub report_to: Option<ServerOptions>,
}

/// Casts a version. `on_event` gets the receivers' arrivals, progress and results.
///
/// # Errors
/// `Missing` or `Corrupt` when the store is damaged; `Refused` for an encrypted store, or an origin with access
/// tokens, without a join key; `Io` when the network cannot be used. Failures of receivers are
/// not errors: the report lists them.
pub fn cast(
    request: &CastRequest,
    progress: &dyn Progress,
    on_event: &mut dyn FnMut(&SendEvent),
) -> Result<CastReport> {
    let spool = match &request.store {
        StoreLocation::Local(_) => None,
        StoreLocation::Remote(origin) => {
            let directory = request.spool.clone().map_or_else(|| SpoolDirectory::make(None), Ok)?;
            let has_key = request.network.join_key.is_some();
            // Its domain is looked at below: a copy is never encrypted.
            let allowed = check_audience_of_cast(Domain::SHARED, &origin.server, has_key, request.readable);
            let copy = allowed.and_then(|()| Spool::fetch(origin, &request.version, &directory, progress));
            Some(copy.inspect_err(|_| directory.remove())?)
        }
    };
    let store = Store::open_reader(match &spool {
        Some(spool) => spool.place(),
        None => request.store.local("casting")?,
    })?;
    refuse_readable(store.domain(), request.network.join_key.is_some())?;
    let resolved = store
        .resolve(&spool.as_ref().map_or_else(|| request.version.clone(), |it| it.version().to_string()))?;
    progress.begin("planning", 0);
    let (description, source) = describe(&store, &resolved, request.segment_data_max, Others::Along)?;
    // If the origin cannot be reached, the cast continues without reports.
    let reporter = request.report_to.as_ref().and_then(|origin| Reporter::start(origin).ok());
    deliver(&request.network, (&description, &source), reporter, on_event).map_err(|error| {
        match error.kind() {
            ErrorKind::Corrupt => error.within(format!(
                "casting {} (`platter check --read-data` lists what is damaged, `platter heal` repairs it)",
                title(&resolved)
            )),
            _ => error,
        }
    })
}

/// Casts what another process has planned with [`describe`], and reads. Reports to no origin. `on_event` as in [`cast`].
///
/// # Errors
/// As [`cast`]; those of the source.
pub fn cast_planned(
    network: &SendOptions,
    description: &SessionDescription,
    source: &dyn ChunkSource,
    on_event: &mut dyn FnMut(&SendEvent),
) -> Result<CastReport> {
    deliver(network, (description, source), None, on_event)
}

fn deliver(
    network: &SendOptions,
    (description, source): (&SessionDescription, &dyn ChunkSource),
    reporter: Option<Reporter>,
    on_event: &mut dyn FnMut(&SendEvent),
) -> Result<CastReport> {
    let title = description.name.clone();
    let tell = reporter.map(Tell::Origin);
    let mut told = Told::begin(tell, title.clone(), description.score, description.total_bytes());
    let sent = platter_net::send(network, description, source, |event| {
        told.hear(&event);
        on_event(&event);
    });
    told.end(sent.as_ref().map(|summary| &summary.receivers[..]));
    Ok(cast_report(title, description, &sent?))
}

/// Lists the casts that an origin makes or was told of, newest first: those that the access token may see. For a store in a directory,
/// the origin that serves it on this machine is asked.
///
/// # Errors
/// Errors of the origin.
pub fn casts(store: &StoreLocation) -> Result<Vec<ListedCast>> {
    match store {
        StoreLocation::Remote(origin) => OriginStore::open(&origin.server)?.casts(),
        StoreLocation::Local(place) => {
            let origin = origin_of(place);
            let listed = OriginStore::open(&origin).and_then(|store| store.casts());
            listed.map_err(|error| match error.kind() {
                ErrorKind::Transient => error.within(format!(
                    "the server of a store lists its casts, at {}: `platter serve` opens that socket if it is given no other address; else \
                     add it to them (--listen), or ask the server at another one (--server)",
                    origin.address
                )),
                _ => error,
            })
        }
    }
}

/// Returns the description of a cast, and the source of its chunks, which are made of these frames.
///
/// # Errors
/// `Missing` or `Corrupt` when frames are; `Refused` without the keys of an encrypted store; those of reading frames.
pub fn describe<'a, F: FrameIndex + PageSource>(
    frames: &'a F,
    resolved: &Resolved,
    segment_data_max: u64,
    others: Others,
) -> Result<(SessionDescription, VersionChunks<'a, F>)> {
    let recipe = Recipe::open(resolved.score, frames)?;
    let domain = recipe.root().domain;
    let (segment_length, ranges) = segments(&recipe, segment_data_max)?;
    let mut source = VersionChunks { frames, domain, parts: Vec::new() };
    let mut description = SessionDescription {
        score: resolved.score,
        secret: secret_of(domain)?,
        name: title(resolved),
        offer: resolved
            .version
            .as_ref()
            .map_or_else(Vec::new, |it| encode_offer(&it.record, OFFER_BYTES_MAX)),
        segment_length,
        segments: Vec::new(),
        chunk_lengths: Vec::new(),
    };
    for range in ranges {
        let pages = Chunks::plan(frames, Kind::Page, domain, &plan::pages(&recipe, range, frames)?, others)?;
        let data = Chunks::plan(frames, Kind::Data, domain, &plan::blocks(&recipe, range, frames)?, others)?;
        let contents = encode(&data.contents);
        let recipe_chunks = (pages.lengths.len() + contents.len()) as u32;
        description
            .segments
            .push(Segment { chunks: recipe_chunks + data.lengths.len() as u32, recipe_chunks });
        for part in [
            SegmentData::Frames(Kind::Page, pages),
            SegmentData::Contents(contents),
            SegmentData::Frames(Kind::Data, data),
        ] {
            let first = description.chunk_lengths.len();
            description.chunk_lengths.extend(part.lengths());
            source.parts.push((first, part));
        }
    }
    Ok((description, source))
}

/// Returns the report of an ended cast.
pub(crate) fn cast_report(
    version: String,
    description: &SessionDescription,
    summary: &SendSummary,
) -> CastReport {
    let lengths = description.chunk_lengths.iter();
    CastReport {
        version,
        score: description.score.to_string(),
        cast_bytes: description.total_bytes(),
        symbols: lengths.map(|length| u64::from(*length).div_ceil(SYMBOL_BYTES)).sum(),
        symbols_sent: summary.progress.source_symbols + summary.progress.repair_symbols,
        symbols_repair: summary.progress.repair_symbols,
        wire_bytes: summary.progress.wire_bytes,
        seconds: summary.duration.as_secs_f64(),
        rejected_datagrams: summary.progress.rejected,
        repeated_datagrams: summary.progress.repeated,
        receivers: summary.receivers.iter().map(receiver_report).collect(),
    }
}

/// Shortest time between two reports of the same state.
const TELL_PAUSE: Duration = Duration::from_millis(500);

/// Who takes the status of a cast.
enum Tell {
    /// An origin, over its API.
    Origin(Reporter),
    /// The origin of this process.
    Own(Box<dyn Fn(&CastStatus)>),
}

impl Tell {
    fn tell(&mut self, status: &CastStatus) {
        match self {
            Self::Origin(reporter) => reporter.tell(status.clone()),
            Self::Own(tell) => tell(status),
        }
    }
}

/// The status of a cast, for who takes it.
struct Told {
    tell: Option<Tell>,
    status: CastStatus,
    began: Instant,
    told: Instant,
}

impl Told {
    fn begin(tell: Option<Tell>, title: String, score: Score, cast_bytes: u64) -> Self {
        let status = CastStatus {
            version: title,
            score: score.to_string(),
            sender: default_holder(),
            cast_bytes,
            ..CastStatus::default()
        };
        Self { tell, status, began: Instant::now(), told: Instant::now() }
    }

    fn hear(&mut self, event: &SendEvent) {
        let Some(tell) = &mut self.tell else { return };
        match event {
            SendEvent::Ready { group, .. } => self.status.group = group.to_string(),
            SendEvent::Status { .. } if self.told.elapsed() < TELL_PAUSE => return,
            SendEvent::Status { receivers, progress } => {
                set_receivers(&mut self.status, receivers);
                self.status.sent_bytes = progress.bytes;
                self.status.rate_bits_per_second = progress.rate_bits_per_second;
                if progress.started {
                    self.status.state = CastState::Casting;
                }
            }
        }
        self.status.seconds = self.began.elapsed().as_secs_f64();
        self.told = Instant::now();
        tell.tell(&self.status);
    }

    fn end(mut self, receivers: Result<&[ReceiverStatus], &Error>) {
        let Some(tell) = &mut self.tell else { return };
        if let Ok(receivers) = receivers {
            set_receivers(&mut self.status, receivers);
        }
        end(&mut self.status, receivers.err().map(ToString::to_string), self.began.elapsed());
        tell.tell(&self.status);
    }
}

/// The chunks of a version, read from a source of frames.
pub struct VersionChunks<'a, F> {
    frames: &'a F,
    domain: Domain,
    /// For each segment its pages, the contents of its chunks of data, and its data: number of the first chunk, and chunks.
    parts: Vec<(usize, SegmentData)>,
}

/// Some chunks of a segment.
enum SegmentData {
    Frames(Kind, Chunks),
    Contents(Vec<Vec<u8>>),
}

impl SegmentData {
    fn lengths(&self) -> Vec<u32> {
        match self {
            Self::Frames(_, chunks) => chunks.lengths.clone(),
            Self::Contents(chunks) => chunks.iter().map(|chunk| chunk.len() as u32).collect(),
        }
    }
}

impl<F: FrameIndex> ChunkSource for VersionChunks<'_, F> {
    fn read(&self, index: u32) -> Result<Arc<[u8]>> {
        let index = index as usize;
        let part = self.parts.partition_point(|(first, _)| *first <= index).checked_sub(1);
        let part = part.and_then(|part| self.parts.get(part));
        let none = || Error::bug(format!("there is no chunk {index}"));
        let (first, part) = part.ok_or_else(none)?;
        match part {
            SegmentData::Frames(kind, chunks) => chunks.read(index - first, self.frames, *kind, self.domain),
            SegmentData::Contents(chunks) => {
                chunks.get(index - first).map(|chunk| Arc::from(&chunk[..])).ok_or_else(none)
            }
        }
    }
}

/// The word for what limits a receiver.
fn bottleneck_name(bottleneck: Bottleneck) -> String {
    match bottleneck {
        Bottleneck::Sender => "sender".into(),
        Bottleneck::Network => "network".into(),
        Bottleneck::Decoding => "decoding".into(),
        Bottleneck::Disk => "disk".into(),
    }
}

/// Returns the report of a receiver, at any time.
pub fn receiver_report(status: &ReceiverStatus) -> ReceiverReport {
    let mut report = ReceiverReport {
        name: status.name.clone(),
        state: "receiving".into(),
        score: None,
        reason: None,
        written_bytes: 0,
        seconds: status.heard_at.saturating_sub(status.joined_at).as_secs_f64(),
        bytes_per_second: 0.0,
        repaired_symbols: status.repaired,
        limited_by: status.bottleneck.map(bottleneck_name),
    };
    match &status.state {
        ReceiverState::Active => {}
        ReceiverState::Silent => report.state = "silent".into(),
        ReceiverState::Stalled => report.state = "stalled".into(),
        ReceiverState::Slow => report.state = "slow".into(),
        ReceiverState::Lost(reason) => (report.state, report.reason) = ("lost".into(), Some(reason.clone())),
        ReceiverState::Failed(reason) => {
            (report.state, report.reason) = ("failed".into(), Some(reason.clone()));
        }
        ReceiverState::Done(result) => {
            (report.state, report.score) =
                ("done".into(), result.outcome.as_ref().ok().map(ToString::to_string));
            report.written_bytes = result.bytes_written;
            report.seconds = result.duration_ms as f64 / 1000.0;
            report.repaired_symbols = result.repaired;
        }
    }
    if report.seconds > 0.0 {
        report.bytes_per_second = report.written_bytes as f64 / report.seconds;
    }
    report
}
