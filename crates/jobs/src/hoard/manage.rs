//! Manages the boot sets in the hoard: registers them from traces, unregisters them, follows images, and does the daily
//! work.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use platter_image::{Error, Result};
use platter_records::{
    BootSet, EncodedBootSet, HoardSnapshot, ImageName, NumberChoice, Registered, Version, VersionName,
    VersionQuery,
};
use platter_store::{DailyRequest, Store};
use serde::Serialize;

use super::boots::{BootFacts, boot_set_of};
use super::machine::Machine;
use super::recording::{RecordRequest, hoard_record, read_trace};
use crate::Progress;
use platter_client::OriginStore;
use platter_fetch::SourceOptions;
use platter_fetch::unix_ms;
use platter_fetch::{OpenStore, Opened, StoreLocation};

/// The machine with which new versions of an image are recorded.
pub type FollowSettings = Machine;

/// A registered boot set.
#[derive(Clone, Debug, Serialize)]
pub struct RegisterReport {
    /// `lab/debian12@3`.
    pub version: String,
    /// The revision with it.
    pub revision: u64,
    /// Whether it is new.
    pub is_new: bool,
    /// Its id, 64 hexadecimal digits.
    pub boot_set: String,
    /// Pages of the recipe.
    pub pages: u32,
    /// Blocks.
    pub blocks: u32,
    /// Bytes of both.
    pub bytes: u64,
    /// Number of reads.
    pub requests: u64,
    /// The marker that ended the recording.
    pub marker: String,
    /// How the machine was executed; empty if unknown.
    pub accelerator: String,
    /// Duration until the marker.
    pub seconds: f64,
}

/// The result of unregistering.
#[derive(Clone, Debug, Serialize)]
pub struct UnregisterReport {
    /// The revision without it.
    pub revision: u64,
    /// The versions whose boot sets were removed.
    pub unregistered: Vec<String>,
}

/// The request to import a trace as the boot of a version.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// The store of the version and the boot set.
    pub store: StoreLocation,
    /// The trace, as `attach --record` makes it.
    pub trace: PathBuf,
    /// `NAME`: the version from which the trace was recorded; `NAME@7`: exactly this version.
    pub version: String,
    /// The marker that ended the recording, in words.
    pub marker: String,
    /// The booted machine, in words.
    pub command: String,
    /// How the machine was executed; may be empty.
    pub accelerator: String,
    /// Name and version of the program, such as `platter 0.1.0`.
    pub tool_version: String,
}

/// The request for the daily work.
#[derive(Clone, Debug)]
pub struct HoardDailyRequest {
    /// The store.
    pub store: StoreLocation,
    /// Boot sets that were added this many days ago are dropped, except the latest of each image; `None` keeps all.
    pub keep_days: Option<u64>,
    /// Changes are kept for this many days; a node with an older revision gets the full list.
    pub window_days: u64,
    /// The current time, in milliseconds since 1970 UTC; `None` reads the clock.
    pub now_unix_ms: Option<i64>,
    /// Name and version of the program, such as `platter 0.1.0`.
    pub tool_version: String,
    /// Set to true to end the job.
    pub stop: Arc<AtomicBool>,
}

/// The report of the daily work.
#[derive(Clone, Debug, Serialize)]
pub struct HoardDailyReport {
    /// Days counted so far.
    pub day: u64,
    /// The newest revision.
    pub revision: u64,
    /// The oldest revision since which changes are known.
    pub oldest: u64,
    /// Versions whose boot sets went.
    pub dropped: Vec<String>,
    /// New versions of followed images that were recorded.
    pub recorded: Vec<RegisterReport>,
    /// Failed recordings, with their reasons.
    pub failed: Vec<String>,
}

/// Returns the members of the hoard.
///
/// # Errors
/// The store's errors.
pub fn hoard_list(store: &StoreLocation) -> Result<HoardSnapshot> {
    OpenStore::open_reader(store)?.hoard()
}

/// Registers a boot set.
pub(super) fn register(
    store: &StoreLocation,
    version: &VersionName,
    set: &BootSet,
) -> Result<RegisterReport> {
    match OpenStore::open_writer(store)?.opened() {
        Opened::Local(store) => {
            let registered = store.register_boot_set(version, set, unix_ms())?;
            Ok(report(version, set, &set.encode()?, &registered))
        }
        Opened::Remote(store) => register_at(store.origin(), version, set),
    }
}

/// Registers a boot set at an origin.
pub(super) fn register_at(
    store: &OriginStore,
    version: &VersionName,
    set: &BootSet,
) -> Result<RegisterReport> {
    let encoded = set.encode()?;
    let registered = store.register_boot_set(version, &encoded)?;
    Ok(report(version, set, &encoded, &registered))
}

fn report(
    version: &VersionName,
    set: &BootSet,
    encoded: &EncodedBootSet,
    registered: &Registered,
) -> RegisterReport {
    let record = &set.record;
    RegisterReport {
        version: version.to_string(),
        revision: registered.revision,
        is_new: registered.is_new,
        boot_set: encoded.id.to_string(),
        pages: record.pages,
        blocks: record.blocks,
        bytes: set.length(),
        requests: record.requests,
        marker: record.marker.clone(),
        accelerator: record.accelerator.clone(),
        seconds: record.duration_ms as f64 / 1e3,
    }
}

/// Registers the boot in a trace as the boot set of its version.
///
/// # Errors
/// `Missing` when there is no such version; `Refused` when the trace is of another one; `Corrupt` when it is invalid;
/// the store's errors.
pub fn hoard_import(request: &ImportRequest, progress: &dyn Progress) -> Result<RegisterReport> {
    let trace = read_trace(&request.trace)?;
    for (is_so, what) in [
        (!trace.is_whole, "the trace is incomplete: its last requests are missing".to_owned()),
        (trace.lost > 0, format!("{} requests were not recorded", trace.lost)),
    ] {
        if is_so {
            progress.note(&what);
        }
    }
    let store = OpenStore::open_reader(&request.store)?;
    let version = version_of(&store, &request.version, trace.header.base_score)?;
    let source = store.source(version.record.score, SourceOptions::default());
    let facts = BootFacts {
        marker: request.marker.clone(),
        command: request.command.clone(),
        accelerator: request.accelerator.clone(),
        time_unix_ms: trace.header.began_unix_ms,
        duration_ms: None,
        tool_version: request.tool_version.clone(),
        ..BootFacts::default()
    };
    let set = boot_set_of(&trace, &version.name, facts, &*source)?;
    register(&request.store, &version.name, &set)
}

/// Returns the newest version of this name with this score.
fn version_of(store: &OpenStore, name: &str, score: platter_image::Score) -> Result<Version> {
    let VersionQuery::Named(image, choice) = name.parse()? else {
        return Err(Error::refused(
            "a boot set belongs to a version: name one with this score, as NAME or NAME@7",
        ));
    };
    let candidates = match choice {
        NumberChoice::Latest if !name.contains('@') => store.history(&image)?,
        _ => store.resolve(name)?.version.into_iter().collect(),
    };
    let found = candidates.into_iter().find(|version| version.record.score == score);
    found.ok_or_else(|| Error::refused(format!("the trace is of {score}, which is no version of {name}")))
}

/// Removes boot sets from the hoard: `NAME@7`, or all of `NAME`.
///
/// # Errors
/// `Missing` when there is none; `Refused` for a score or `NAME@latest`; the store's errors.
pub fn hoard_unregister(store: &StoreLocation, what: &str) -> Result<UnregisterReport> {
    let (image, number) = match what.parse()? {
        VersionQuery::Named(image, NumberChoice::Number(number)) => (image, Some(number)),
        VersionQuery::Named(image, NumberChoice::Latest) if !what.contains('@') => (image, None),
        _ => return Err(Error::refused("name an image, or a version by its number")),
    };
    let (revision, unregistered) = match OpenStore::open_reader(store)?.changer()? {
        Opened::Local(store) => {
            let (revision, names) = store.unregister_boot_set(&image, number, unix_ms())?;
            (revision, names.iter().map(ToString::to_string).collect())
        }
        Opened::Remote(store) => store.origin().unregister_boot_set(&image, number)?,
    };
    Ok(UnregisterReport { revision, unregistered })
}

/// Sets how the daily work records new versions of an image; `None`: no longer.
///
/// # Errors
/// `Missing` when there is no such image; `Refused` for an origin's store; the store's errors.
pub fn hoard_follow(
    store: &StoreLocation,
    image: &ImageName,
    settings: Option<&FollowSettings>,
) -> Result<()> {
    let place = store.local("following an image")?;
    let text = settings.map(serde_json::to_string).transpose();
    let text = text.map_err(|error| Error::bug("cannot serialize settings").with_source(error))?;
    Store::open_reader(place)?.hoard_follow(image, text.as_deref())
}

/// Returns the followed images, with their settings.
///
/// # Errors
/// `Refused` for an origin's store; `Corrupt` when settings are invalid; the store's errors.
pub fn hoard_followed(store: &StoreLocation) -> Result<Vec<(ImageName, FollowSettings)>> {
    let followed = Store::open_reader(store.local("following images")?)?.hoard_followed()?;
    let parse = |(image, text): (ImageName, String)| {
        let settings = serde_json::from_str(&text).map_err(|error| {
            Error::corrupt(format!("invalid recording settings of {image}")).with_source(error)
        })?;
        Ok((image, settings))
    };
    followed.into_iter().map(parse).collect()
}

/// Counts a day, drops old boot sets, and records the newest versions of followed images without one.
///
/// # Errors
/// `Refused` for an origin's store; the store's errors. A failed boot is in the report.
pub fn hoard_daily(request: &HoardDailyRequest, progress: &dyn Progress) -> Result<HoardDailyReport> {
    let place = request.store.local("the hoard's daily work")?;
    let (mut recorded, mut failed) = (Vec::new(), Vec::new());
    for (image, machine) in hoard_followed(&request.store)? {
        let store = Store::open_reader(place)?;
        // All its versions were forgotten: there is nothing to record until a new one exists.
        let Ok(version) = store.version(&image, NumberChoice::Latest) else { continue };
        if store.hoard()?.members.iter().any(|member| member.version == version.name) {
            continue;
        }
        let record = RecordRequest {
            store: request.store.clone(),
            version: version.name.to_string(),
            machine,
            tool_version: request.tool_version.clone(),
            stop: request.stop.clone(),
        };
        match hoard_record(&record, progress) {
            Ok(report) => recorded.push(report),
            Err(error) => failed.push(format!("{}: {error}", version.name)),
        }
    }
    // Last, because a new recording may be the latest of its image.
    let wish = DailyRequest {
        now_unix_ms: request.now_unix_ms.unwrap_or_else(unix_ms),
        keep_days: request.keep_days,
        window_days: request.window_days,
    };
    let report = Store::open_reader(place)?.hoard_daily(wish)?;
    Ok(HoardDailyReport {
        day: report.day,
        revision: report.revision,
        oldest: report.oldest,
        dropped: report.dropped.iter().map(ToString::to_string).collect(),
        recorded,
        failed,
    })
}
