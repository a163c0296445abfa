//! Checks a store and reports what is wrong. It changes only the record of pack health: bad frames are quarantined, and frames
//! that are good again leave the quarantine.
//!
//! There are five verdicts. Clean: nothing is wrong. Exposed: users other than the owner can open files of the store. Leaks: the
//! store keeps bytes that nothing needs, but nothing is lost. Locked: nothing that can be read without the key is lost, and the rest
//! was not read. Damaged: something that a version needs or a pack lists is missing or wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_encryption::KeyFile;
use platter_image::frame::FrameHeader;
use platter_image::{BlockId, Error, ErrorKind, FrameIndex, Kind, Result, Score};
use platter_vfs::VfsFile;

use crate::block_lengths::BlockLengths;
use crate::catalog::{PackRow, PackState, damaged_earlier_logs, header_damage};
use crate::clock::now_unix_ms;
use crate::exposure::Exposure;
use crate::health::{BadPlace, Condition, Observation};
use crate::losses::Losses;
use crate::read_back::{BadFrame, Depth, OpenedPack, PackToRead, Step, all_cores, read_back};
use crate::readers::{MoreRoots, registered};
use crate::rebuild::is_being_rebuilt;
use crate::recipe_check::{check_recipe, is_kept};
use crate::salvage::{newer_in, read_records};
use crate::store::{Store, Writer, catalog_file};
use platter_pack::{FrameRow, HEADER_LENGTH, read_row};
use platter_records::{HoardMember, ImageName, PackId, StoreHealth, Version, VersionName, VersionRecord};

/// Maximum number of findings that are kept. The verdict covers all of them.
const FINDINGS_MAX: usize = 10_000;
/// Number of bad frames that are quarantined in one write.
const OBSERVATIONS_TOGETHER: usize = 64;

/// Options of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Read every frame completely, decode it and hash its blocks. Otherwise only the headers of frames are read.
    pub read_data: bool,
    /// With `read_data`: packs that were read completely since this time, in milliseconds since 1970 UTC, are not read again.
    pub unless_read_since_unix_ms: Option<i64>,
}

/// Progress of a check, in bytes of packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckProgress {
    /// Bytes checked so far.
    pub done: u64,
    /// Bytes to check in total.
    pub total: u64,
}

/// The overall result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing is wrong.
    Clean,
    /// Nothing is lost, but users other than the owner can open files of the store.
    Exposed,
    /// Nothing is lost, but the store keeps something that nothing needs.
    Leaks,
    /// The store is encrypted and its key was not there: nothing that was read is damaged, but most was not read.
    Locked,
    /// Something is missing or wrong.
    Damaged,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Users other than the owner can open it.
    Exposure,
    /// It is kept although nothing needs it.
    Leak,
    /// It is missing or wrong.
    Damage,
}

/// One problem that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// Its description.
    pub what: String,
    /// The pack, if it concerns one.
    pub pack: Option<PackId>,
    /// Byte offset of the frame in the pack; of several, of the first one.
    pub offset: Option<u64>,
    /// The block, page or record, if it concerns one.
    pub block: Option<BlockId>,
    /// Number of bad frames.
    pub frames: u64,
    /// Number of blocks and pages that are lost.
    pub blocks: u64,
    /// The bytes of disks that they were needed for, as far as versions need them.
    pub bytes: u64,
    /// Versions that cannot be read completely because of it.
    pub versions: Vec<VersionName>,
}

impl Finding {
    /// A finding that concerns no pack, block or version.
    pub fn new(severity: Severity, what: String) -> Self {
        let (pack, offset, block, versions) = (None, None, None, Vec::new());
        Self { severity, what, pack, offset, block, frames: 0, blocks: 0, bytes: 0, versions }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// The overall result.
    pub verdict: Verdict,
    /// The findings, up to a limit; `omitted` counts the others.
    pub findings: Vec<Finding>,
    /// Number of findings past the limit.
    pub omitted: usize,
    /// Number of packs checked.
    pub packs: usize,
    /// Total length of their files in bytes.
    pub pack_bytes: u64,
    /// Number of frames checked.
    pub frames: usize,
    /// Number of blocks checked.
    pub blocks: usize,
    /// Number of versions checked.
    pub versions: usize,
    /// Whether the store is encrypted and its key was not there: nothing was decrypted, and recipes were not walked.
    pub locked: bool,
    /// What this check and earlier reads have shown about the packs.
    pub health: StoreHealth,
}

impl CheckReport {
    fn empty(locked: bool) -> Self {
        Self {
            verdict: if locked { Verdict::Locked } else { Verdict::Clean },
            findings: Vec::new(),
            omitted: 0,
            packs: 0,
            pack_bytes: 0,
            frames: 0,
            blocks: 0,
            versions: 0,
            locked,
            health: StoreHealth::default(),
        }
    }
}

/// A check in progress.
struct Check<'a> {
    store: &'a Store,
    options: CheckOptions,
    report: CheckReport,
    progress: CheckProgress,
    tell: &'a mut dyn FnMut(CheckProgress),
    lengths: BlockLengths,
    losses: Losses,
    /// Quarantined frames that were read and are good.
    recovered: BTreeSet<BadPlace>,
    /// Observations that are to be recorded durably.
    seen: Vec<Observation>,
    /// Why bad frames could not be recorded.
    unrecorded: Option<Error>,
    given: AssignedNumbers,
}

/// The highest numbers that the catalog has assigned.
struct AssignedNumbers {
    versions: BTreeMap<ImageName, u64>,
    edit_lock: u64,
}

impl Store {
    /// Checks all packs, all versions and the catalog's file in their current state. Bad frames are quarantined. Quarantined
    /// frames that are read and are good leave the quarantine.
    ///
    /// # Errors
    /// `Transient` beside a rebuild; when the catalog or a directory cannot be read at all, or this process lacks what it needs to read a
    /// file. Any other problem is a finding.
    pub fn check(&self, options: CheckOptions, tell: &mut dyn FnMut(CheckProgress)) -> Result<CheckReport> {
        self.check_with_roots(options, &|| Ok(Vec::new()), tell)
    }

    /// As [`Store::check`], and checks the recipes that a collection keeps for `more` scores, such as those below overlays.
    ///
    /// # Errors
    /// As [`Store::check`].
    pub fn check_with_roots(
        &self,
        options: CheckOptions,
        more: MoreRoots<'_>,
        tell: &mut dyn FnMut(CheckProgress),
    ) -> Result<CheckReport> {
        let before = catalog_file(self.place());
        self.refuse_beside_rebuild(before)?;
        let locked = !self.domain().is_open();
        let (rows, versions, members, integrity, given) = {
            let integrity = self.catalog_damage()?;
            let catalog = self.catalog()?;
            let rows = catalog.packs()?;
            // After the packs: these numbers may then be newer than the packs, but never older.
            let given = AssignedNumbers {
                versions: catalog.last_numbers()?.into_iter().collect(),
                edit_lock: catalog.last_edit_lock()?,
            };
            (rows, catalog.all_versions(), catalog.hoard_members(), integrity, given)
        };
        let files = self.place().list_packs()?;
        // Observations from now on are not lifted: they may be newer than our read of the frame.
        let noted = self.0.health().files();
        let total = rows.iter().filter(|row| is_readable(row)).map(|row| row.length).sum();
        let progress = CheckProgress { done: 0, total };
        let mut check = Check {
            store: self,
            options,
            report: CheckReport::empty(locked),
            progress,
            tell,
            lengths: BlockLengths::default(),
            losses: Losses::default(),
            recovered: BTreeSet::new(),
            seen: Vec::new(),
            unrecorded: None,
            given,
        };
        if locked {
            check.losses.cannot_tell_needs();
        }
        for line in integrity {
            check.damage(format!("catalog: {line}"), |_| {});
        }
        check.packs(&rows)?;
        check.quarantine(&noted);
        check.report.health = self.health()?;
        check.unlisted(&rows, &files)?;
        let differences = self.catalog()?.differences(self.place())?;
        for line in differences.into_iter().chain(self.catalog()?.contradiction_of_packs()?) {
            check.damage(line, |_| {});
        }
        check.needs(versions, members, more)?;
        check.key_slots()?;
        if let Err(error) = self.leased(now_unix_ms()) {
            check.trouble(error, |_| {})?;
        }
        // Not damage: it cannot be written if the file system is read-only.
        drop(self.restore_standing_copy());
        check.earlier_logs()?;
        check.exposure()?;
        let report = check.report;
        self.refuse_beside_rebuild(before)?;
        Ok(report)
    }

    /// Refuses to say what a check found while `platter rebuild` replaces catalog and log, or after it did.
    fn refuse_beside_rebuild(&self, before: Option<(u64, u64)>) -> Result<()> {
        match catalog_file(self.place()) != before || is_being_rebuilt(self.place())? {
            true => Err(Error::transient(
                "a rebuild is running, or has replaced the catalog during this check: check again after it",
            )),
            false => Ok(()),
        }
    }

    /// Returns what is wrong with the catalog's file.
    fn catalog_damage(&self) -> Result<Vec<String>> {
        // No other thread uses the catalog while its header is read.
        let _writer = self.0.writer.as_ref().map(Writer::catalog);
        let catalog = self.catalog()?;
        let mut found = catalog.integrity()?;
        found.extend(header_damage(self.place())?);
        Ok(found)
    }
}

pub(crate) fn is_missing_file(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == std::io::ErrorKind::NotFound)
}

fn is_readable(row: &PackRow) -> bool {
    matches!(row.state, PackState::Live | PackState::Condemned)
}

impl Check<'_> {
    fn find(&mut self, severity: Severity, what: String, place: impl FnOnce(&mut Finding)) {
        let mut finding = Finding::new(severity, what);
        place(&mut finding);
        self.add(finding);
    }

    fn add(&mut self, finding: Finding) {
        let verdict = match finding.severity {
            Severity::Exposure => Verdict::Exposed,
            Severity::Leak => Verdict::Leaks,
            Severity::Damage => Verdict::Damaged,
        };
        self.report.verdict = self.report.verdict.max(verdict);
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(finding);
        } else {
            self.report.omitted += 1;
        }
    }

    /// Checks what versions and boot sets need, and then adds what is lost.
    fn needs(
        &mut self,
        versions: Result<Vec<Version>>,
        members: Result<Vec<HoardMember>>,
        more: MoreRoots<'_>,
    ) -> Result<()> {
        match versions {
            Ok(versions) => {
                versions.iter().try_for_each(|version| self.version(version))?;
                // Readers of forgotten versions need them as long as they run.
                let scores: BTreeSet<Score> = versions.iter().map(|version| version.record.score).collect();
                if !registered(self.store.place()).is_ok_and(|held| held.is_subset(&scores)) {
                    self.losses.cannot_tell_needs();
                }
                match more() {
                    Ok(more) => {
                        let unnamed: BTreeSet<Score> =
                            more.into_iter().filter(|score| !scores.contains(score)).collect();
                        unnamed.into_iter().try_for_each(|score| self.unnamed(score))?;
                    }
                    Err(error) => self.no_needs(error)?,
                }
            }
            Err(error) => self.no_needs(error)?,
        }
        match members {
            Ok(members) => members.iter().try_for_each(|member| self.boot_set(member))?,
            Err(error) => self.no_needs(error)?,
        }
        for finding in self.losses.findings() {
            self.add(finding);
        }
        Ok(())
    }

    /// Adds one finding for all files that other users can open.
    fn exposure(&mut self) -> Result<()> {
        let place = self.store.place();
        let Exposure { count, first } = place.exposure()?;
        if count > 0 {
            let named: Vec<String> =
                first.iter().map(|(path, others)| format!("{} ({:02o})", path.display(), others)).collect();
            let dir = place.dir().display();
            let what = format!(
                "users other than the owner can open {count} files and directories of the store, such as {}: \
                 `platter check --fix-modes` or `chmod -R go-rwx {dir}` fixes that",
                named.join(", ")
            );
            self.find(Severity::Exposure, what, |_| {});
        }
        Ok(())
    }

    /// Reports earlier change logs that are damaged. Versions do not need them.
    fn earlier_logs(&mut self) -> Result<()> {
        if !self.options.read_data {
            return Ok(());
        }
        for path in damaged_earlier_logs(self.store.place())? {
            let what = format!(
                "{} is damaged or incomplete, so `platter log` cannot show all changes that it had; nothing else needs it, and it can be \
                 removed",
                path.display()
            );
            self.find(Severity::Leak, what, |_| {});
        }
        Ok(())
    }

    /// Checks the key slots of an encrypted store, as far as that is possible without their secrets.
    fn key_slots(&mut self) -> Result<()> {
        let place = self.store.place();
        match place.read_key_file() {
            Ok(keys) => {
                for slot in keys.iter().flat_map(KeyFile::damaged_slots) {
                    let what = format!(
                        "{}: key slot {} ({:?}) is damaged, so its secret no longer opens the store: put back a copy of the file, or run \
                         `platter encryption remove {}` with another secret and add this one again",
                        place.key_file().display(),
                        slot.number,
                        slot.label,
                        slot.number
                    );
                    self.damage(what, |_| {});
                }
            }
            Err(error) => self.trouble(error, |_| {})?,
        }
        Ok(())
    }

    /// Adds a finding for an error, unless it says nothing about the store: then the check fails.
    fn trouble(&mut self, error: Error, place: impl FnOnce(&mut Finding)) -> Result<()> {
        if error.is_of_process() || error.kind() == ErrorKind::Bug {
            return Err(error);
        }
        self.damage(error.with_causes(), place);
        Ok(())
    }

    /// As [`Check::trouble`], for an error because of which it is unknown what is needed.
    fn no_needs(&mut self, error: Error) -> Result<()> {
        self.losses.cannot_tell_needs();
        self.trouble(error, |_| {})
    }

    fn damage(&mut self, what: String, place: impl FnOnce(&mut Finding)) {
        self.find(Severity::Damage, what, place);
    }

    /// Reads the packs: header, trailer and footer, and every frame against the footer.
    fn packs(&mut self, rows: &[PackRow]) -> Result<()> {
        let store = self.store;
        let packs: Vec<PackToRead> = rows
            .iter()
            .filter(|row| is_readable(row))
            .map(|row| PackToRead { row: *row, depth: self.depth(row) })
            .collect();
        read_back(&store.0, packs.into_iter(), all_cores(), |step| {
            match step {
                Step::Failed(row, error) => self.unopened(&row, &error),
                Step::Opened(pack) => self.opened(&pack),
                Step::Read(piece) => {
                    let pack = Arc::clone(&piece.pack);
                    let mut taken = Ok(());
                    piece.into_frames(|row, ids, result| {
                        let next = self.frame(&pack, row, ids, result);
                        taken = std::mem::replace(&mut taken, Ok(())).and(next);
                    });
                    taken?;
                }
                Step::Ended(pack) => self.ended(&pack),
            }
            Ok(())
        })
    }

    /// Returns how much of a pack is read.
    fn depth(&self, row: &PackRow) -> Depth {
        if !self.options.read_data {
            return Depth::Headers;
        }
        let since = self.options.unless_read_since_unix_ms.unwrap_or(i64::MAX);
        let health = self.store.0.health();
        let known = health.pack(row.id);
        let read = known.and_then(|known| known.read_back).filter(|read| read.length == row.length);
        // Bad frames are always tried again, because they may be good now.
        let has_bad = known.is_some_and(|known| !known.bad.is_empty());
        match read.is_some_and(|read| read.time_unix_ms >= since) && !has_bad {
            true => Depth::Headers,
            false => Depth::Contents,
        }
    }

    /// Whether a collection gave the pack up after the check had begun.
    fn was_given_up(&self, row: &PackRow) -> Result<bool> {
        let rows = self.store.catalog()?.packs()?;
        Ok(!rows.iter().any(|now| now.id == row.id && is_readable(now)))
    }

    fn unopened(&mut self, row: &PackRow, error: &Error) {
        if self.was_given_up(row).unwrap_or(false) {
            return;
        }
        self.report.packs += 1;
        self.report.pack_bytes += row.length;
        let what = error.with_causes();
        let remedy = match error.kind() {
            ErrorKind::Io if is_missing_file(error) => {
                ": `platter heal` restores what versions need of it, and `platter rebuild` then forgets the pack"
            }
            ErrorKind::Corrupt => ": `platter rebuild` writes it again from the pack's sound frames",
            _ => "",
        };
        self.losses.unopened(row.id, format!("{what}{remedy}"));
    }

    fn opened(&mut self, pack: &OpenedPack) {
        let (row, directory) = (&pack.row, &pack.directory);
        self.report.packs += 1;
        self.report.pack_bytes += row.length;
        let counts = (directory.frames() as u64, directory.blocks() as u64);
        if counts != (row.frames, row.blocks) {
            let what = format!(
                "the pack has {counts:?} frames and blocks, but the catalog lists {:?}",
                (row.frames, row.blocks)
            );
            self.damage(what, |finding| finding.pack = Some(row.id));
        }
        self.advance(HEADER_LENGTH);
    }

    fn ended(&mut self, pack: &OpenedPack) {
        let is_urgent = self.seen.iter().any(|seen| seen.condition != Condition::ReadBack);
        self.note(if is_urgent { 1 } else { OBSERVATIONS_TOGETHER });
        if pack.depth == Depth::Contents && !self.report.locked {
            self.see(pack.row.id, pack.row.length, Condition::ReadBack);
        }
    }

    /// Takes over the result for one frame.
    fn frame(
        &mut self,
        opened: &OpenedPack,
        row: &FrameRow,
        ids: &[BlockId],
        result: std::result::Result<FrameHeader, BadFrame>,
    ) -> Result<()> {
        let pack = opened.row.id;
        self.report.frames += 1;
        self.report.blocks += ids.len();
        self.advance(u64::from(row.packed_length));
        let known = self.store.0.health().bad(pack, row.offset);
        match (result, known) {
            (Ok(header), known) => {
                self.lengths.note(pack, row.offset, &header);
                if row.kind == Kind::Version {
                    self.numbers(&*opened.file, row, ids, pack)?;
                }
                match known {
                    Some(_) if opened.depth == Depth::Contents && !self.report.locked => {
                        self.recovered.insert((pack, row.offset));
                    }
                    Some(bad) => {
                        let what = format!("{}, and is quarantined", bad.condition.in_words());
                        self.bad_frame(what, pack, row, ids);
                    }
                    None => {}
                }
            }
            (Err(BadFrame { error, condition }), _) => {
                if let Some(condition) = condition {
                    self.see(pack, row.offset, condition);
                    self.store.0.condemn(&[(pack, row.offset)]);
                }
                self.bad_frame(error.with_causes(), pack, row, ids);
            }
        }
        Ok(())
    }

    fn see(&mut self, pack: PackId, offset: u64, condition: Condition) {
        self.seen.push(Observation { pack, offset, condition, time_unix_ms: now_unix_ms() });
        self.note(OBSERVATIONS_TOGETHER);
    }

    /// Records the observations durably once there are `at_least` of them.
    fn note(&mut self, at_least: usize) {
        if self.seen.len() >= at_least {
            let seen = std::mem::take(&mut self.seen);
            let has_bad = seen.iter().any(|seen| seen.condition != Condition::ReadBack);
            self.unrecorded = self.store.0.record(&seen).err().filter(|_| has_bad).or(self.unrecorded.take());
        }
    }

    /// Takes over a bad frame. Nothing is lost if sound frames have all of its blocks too.
    fn bad_frame(&mut self, what: String, pack: PackId, row: &FrameRow, ids: &[BlockId]) {
        let is_lost = |id: &&BlockId| !self.store.0.is_sound_elsewhere(id, (pack, row.offset));
        let lost: Vec<BlockId> = ids.iter().filter(is_lost).copied().collect();
        self.losses.bad_frame(pack, row, what, &lost);
    }

    /// Lifts the quarantine of frames that are good again, and reports other problems of the quarantine.
    fn quarantine(&mut self, noted: &BTreeSet<String>) {
        self.note(1);
        if let Some(error) = self.unrecorded.take() {
            let what = format!(
                "bad frames could not be recorded, so captures and `platter heal` still rely on them: {}: check again once that is mended",
                error.with_causes()
            );
            self.damage(what, |_| {});
        }
        let torn = self.store.0.health().torn();
        if !self.recovered.is_empty() || (torn > 0 && self.options.read_data) {
            if let Err(error) = self.store.0.lift(noted, &self.recovered) {
                let what = format!(
                    "{} quarantined frames are good again, but that could not be recorded: {}",
                    self.recovered.len(),
                    error.with_causes()
                );
                self.find(Severity::Leak, what, |_| {});
            }
        } else if torn > 0 {
            let what = format!(
                "{torn} files of the quarantine are incomplete or damaged: `platter check --read-data` finds their contents again"
            );
            self.find(Severity::Leak, what, |_| {});
        }
    }

    /// Checks the numbers in version records. If the catalog does not know a number, it may assign that number again.
    fn numbers(&mut self, file: &dyn VfsFile, row: &FrameRow, ids: &[BlockId], pack: PackId) -> Result<()> {
        let mut stored = Vec::new();
        let records = read_row(file, row, ids, &mut stored).and_then(|()| read_records(&stored));
        let records = match records {
            Ok(records) => records,
            Err(error) => {
                return self.trouble(error.within("a version record"), |finding| {
                    (finding.pack, finding.offset) = (Some(pack), Some(row.offset));
                });
            }
        };
        for (id, record) in records {
            let last = self.given.versions.get(&record.image).copied().unwrap_or(0);
            if record.number > last
                || record.edit_lock.is_some_and(|edit_lock| edit_lock > self.given.edit_lock)
            {
                let what = format!(
                    "there is a record of {}, but the catalog does not know that its number was assigned: `platter \
                     rebuild` recreates the catalog",
                    record.name()
                );
                self.damage(what, |finding| finding.block = Some(id));
            }
        }
        Ok(())
    }

    fn advance(&mut self, bytes: u64) {
        self.progress.done += bytes;
        (self.tell)(self.progress);
    }

    /// Reports pack files that the catalog does not list, or lists as dead.
    fn unlisted(&mut self, rows: &[PackRow], files: &[PackId]) -> Result<()> {
        for pack in files {
            let row = rows.iter().find(|row| row.id == *pack);
            let newer = if row.is_none() { newer_in(self.store, *pack)? } else { None };
            if let Some((severity, what)) = newer {
                self.find(severity, what, |finding| finding.pack = Some(*pack));
                continue;
            }
            let what = match row.map(|row| row.state) {
                None => {
                    "not in the catalog: it is being written now, was left by an interrupted session, or was away during a rebuild; `platter rebuild` takes it over if something lacks its blocks, otherwise `platter discard-interrupted` removes it"
                }
                Some(PackState::Deleted) => {
                    "it was deleted, but its file is there again; `platter rebuild` copies what something lacks, otherwise `platter discard-interrupted` removes it"
                }
                // Dead packs are kept for a while.
                Some(_) => continue,
            };
            self.find(Severity::Leak, what.into(), |finding| finding.pack = Some(*pack));
        }
        Ok(())
    }

    /// Checks a version: its record is the one in the catalog, and its recipe refers only to blocks in the store.
    fn version(&mut self, version: &Version) -> Result<()> {
        self.report.versions += 1;
        let of_version = |finding: &mut Finding| {
            (finding.block, finding.versions) = (Some(version.record_id), vec![version.name.clone()]);
        };
        match self
            .store
            .read_block(Kind::Version, &version.record_id)
            .and_then(|bytes| VersionRecord::decode(&bytes))
        {
            // Renames and signatures are in the catalog and its log only.
            Ok(record) if record.is_earlier_form_of(&version.record) => {}
            // So are the records of clones.
            Err(error) if error.kind() == ErrorKind::Missing => {}
            Ok(_) => self.damage("the record differs from the catalog's copy".into(), of_version),
            Err(error) if error.is_of_process() => return Err(error),
            Err(error) => {
                let what =
                    format!("version record: {}: `platter rebuild` writes it again", error.with_causes());
                self.damage(what, of_version);
            }
        }
        self.recipe(version)
    }

    /// Checks a recipe that must stay although no version has it.
    fn unnamed(&mut self, score: Score) -> Result<()> {
        // What it lacks is lost, whatever versions need.
        self.losses.cannot_tell_needs();
        if self.report.locked {
            return Ok(());
        }
        let checked = check_recipe(self.store, score, &self.losses, &self.lengths)?;
        let nowhere = checked.lost.iter().filter(|(_, (pack, _))| pack.is_none()).map(|(block, _)| *block);
        let nowhere = nowhere.map(|block| (block, "it is in no pack".to_owned()));
        let unread = checked.unread.into_iter().map(|why| (score.0, why));
        for (block, why) in unread.chain(checked.unfit).chain(nowhere) {
            let what = format!(
                "the disk {score}, which has no version any more and on which the changes to a live disk are based: {why}"
            );
            self.damage(what, |finding| finding.block = Some(block));
        }
        Ok(())
    }

    /// Checks that a member's boot set exists and matches the catalog. Its blocks are checked with the recipe of its version.
    fn boot_set(&mut self, member: &HoardMember) -> Result<()> {
        let what = match self.store.boot_set(&member.boot_set) {
            Ok(set) if set.record == member.record => return Ok(()),
            Ok(_) => "it differs from the catalog's copy".to_owned(),
            Err(error) if error.is_of_process() => return Err(error),
            Err(error) => error.with_causes(),
        };
        self.losses.cannot_tell_needs();
        let what = format!("the boot set of {}: {what}: record it again", member.version);
        self.damage(what, |finding| finding.block = Some(member.boot_set));
        Ok(())
    }

    fn recipe(&mut self, version: &Version) -> Result<()> {
        let score = version.record.score;
        let of_version = |finding: &mut Finding, block: BlockId| {
            (finding.block, finding.versions) = (Some(block), vec![version.name.clone()]);
        };
        if self.report.locked {
            let is_here = self.store.locate(&score.0)?.is_some_and(|place| is_kept(self.store, &place));
            if !is_here || self.losses.only_bad(&score.0).is_some() {
                let what = "recipe: its root is missing or damaged".into();
                self.damage(what, |finding| of_version(finding, score.0));
            }
            return Ok(());
        }
        let checked = check_recipe(self.store, score, &self.losses, &self.lengths)?;
        let length = version.record.disk_length;
        if let Some(why) = checked.unread {
            self.losses.cannot_tell_needs();
            self.damage(format!("recipe: {why}"), |finding| of_version(finding, score.0));
        } else if checked.disk_length != length {
            let what = format!("the record says {length} bytes, but the recipe says {}", checked.disk_length);
            self.damage(what, |finding| finding.versions = vec![version.name.clone()]);
        }
        for (block, why) in checked.unfit {
            self.damage(format!("recipe: {why}"), |finding| of_version(finding, block));
        }
        for (block, (pack, bytes)) in checked.lost {
            self.losses.needed(&version.name, pack, block, bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
