//! Reads a store and says what is wrong with it. It changes nothing but what is known of the health of packs: bad frames go
//! into quarantine.
//!
//! Four verdicts: clean; exposed, where others than the owner may open files of the store; leaks, where bytes are kept that nothing needs, and nothing is lost; damaged, where
//! something that a version needs, or a pack says it has, is not there or is not right.

use std::collections::{BTreeMap, BTreeSet};

use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::page::State;
use platter_image::recipe::{Recipe, check_piece};
use platter_image::{BlockId, BlockPlace, Error, ErrorKind, Extent, FrameSource, IoContext, Kind, Result};
use platter_vfs::{OpenMode, VfsFile};

use crate::block_lengths::BlockLengths;
use crate::catalog::{PackRow, PackState};
use crate::exposure::Exposure;
use crate::health::{BadPlace, Condition, Observation};
use crate::hoard_member::HoardMember;
use crate::identity::PackId;
use crate::name::{ImageName, VersionName};
use crate::pack::{FrameRow, HEADER_LENGTH, PackDirectory, read_directory, read_row, read_row_header};
use crate::quarantine::{condition_of, now_unix_ms};
use crate::record::VersionRecord;
use crate::resolve::Version;
use crate::salvage::read_records;
use crate::store::{Store, describe};

/// Most findings that are kept; the verdict counts all.
const FINDINGS_MAX: usize = 10_000;
/// Bad frames that are quarantined together.
const OBSERVATIONS_TOGETHER: usize = 64;

/// What to check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Read every frame whole, decode it and hash its blocks; otherwise frames' headers only.
    pub read_data: bool,
}

/// How far a check has got, in bytes of packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckProgress {
    /// Checked so far.
    pub done: u64,
    /// To be checked altogether.
    pub total: u64,
}

/// What a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Clean,
    /// Nothing is lost, but others than the owner may open files of it.
    Exposed,
    /// Nothing is lost, but something is kept that nothing needs.
    Leaks,
    /// Something is lost or wrong.
    Damaged,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Others than the owner may open it.
    Exposure,
    /// Kept without need.
    Leak,
    /// Lost or wrong.
    Damage,
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is, in words.
    pub what: String,
    /// In which pack.
    pub pack: Option<PackId>,
    /// At which byte of the pack: a frame's first.
    pub offset: Option<u64>,
    /// Which block, page or record.
    pub block: Option<BlockId>,
    /// Versions that cannot be read whole because of it.
    pub versions: Vec<VersionName>,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// All in one word.
    pub verdict: Verdict,
    /// Everything found, up to a limit; `omitted` counts the rest.
    pub findings: Vec<Finding>,
    /// Findings past the limit.
    pub omitted: usize,
    /// Packs, frames and blocks looked at, and versions.
    pub packs: usize,
    /// Frames looked at.
    pub frames: usize,
    /// Blocks looked at.
    pub blocks: usize,
    /// Versions looked at.
    pub versions: usize,
    /// What no check has ever read back, this one included.
    pub never_read_back: Unread,
    /// When the pack was read back whose turn was longest ago, of those that ever were.
    pub oldest_read_back_unix_ms: Option<i64>,
}

/// Packs whose contents were not read since they were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// How many.
    pub packs: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// A check under way.
struct Check<'a> {
    store: &'a Store,
    options: CheckOptions,
    report: CheckReport,
    progress: CheckProgress,
    tell: &'a mut dyn FnMut(CheckProgress),
    decoder: FrameDecoder,
    lengths: BlockLengths,
    /// Blocks that stand in damaged frames only.
    damaged: BTreeSet<BlockId>,
    /// Places in quarantine that were read and are good.
    recovered: BTreeSet<BadPlace>,
    /// What is to be noted durably.
    seen: Vec<Observation>,
    given: Given,
}

/// The highest numbers that were given, as the catalog has them.
struct Given {
    versions: BTreeMap<ImageName, u64>,
    token: u64,
}

impl Store {
    /// Checks every pack, every version and the catalog's file, as they are now. What is found bad is quarantined; a place in
    /// quarantine that is read and good leaves it.
    ///
    /// # Errors
    /// When the catalog or a directory cannot be read at all. Whatever else is wrong is a finding.
    pub fn check(&self, options: CheckOptions, tell: &mut dyn FnMut(CheckProgress)) -> Result<CheckReport> {
        let report = CheckReport {
            verdict: Verdict::Clean,
            findings: Vec::new(),
            omitted: 0,
            packs: 0,
            frames: 0,
            blocks: 0,
            versions: 0,
            never_read_back: Unread::default(),
            oldest_read_back_unix_ms: None,
        };
        let (rows, versions, members, integrity, given) = {
            let catalog = self.catalog()?;
            let rows = catalog.packs()?;
            // After the packs: of what is published meanwhile, only the numbers may be known.
            let given = Given {
                versions: catalog.last_numbers()?.into_iter().collect(),
                token: catalog.last_token()?,
            };
            (rows, catalog.all_versions(), catalog.hoard_members(), catalog.integrity()?, given)
        };
        let files = self.place().list_packs()?;
        // What is noted from here on is not lifted: it may have been seen after a place was read.
        let noted = self.0.health().files();
        let total = rows.iter().filter(|row| is_readable(row)).map(|row| row.length).sum();
        let progress = CheckProgress { done: 0, total };
        let decoder = FrameDecoder::new()?;
        let mut check = Check {
            store: self,
            options,
            report,
            progress,
            tell,
            decoder,
            lengths: BlockLengths::default(),
            damaged: BTreeSet::new(),
            recovered: BTreeSet::new(),
            seen: Vec::new(),
            given,
        };
        for line in integrity {
            check.damage(format!("catalog: {line}"), |_| {});
        }
        for row in rows.iter().filter(|row| is_readable(row)) {
            check.pack(row)?;
        }
        check.quarantine(&noted);
        check.read_back(&rows);
        check.unlisted(&rows, &files);
        let differences = self.catalog()?.differences(self.place())?;
        for line in differences {
            check.damage(line, |_| {});
        }
        match versions {
            Ok(versions) => versions.iter().try_for_each(|version| check.version(version))?,
            Err(error) => check.damage(describe(&error), |_| {}),
        }
        match members {
            Ok(members) => members.iter().for_each(|member| check.boot_set(member)),
            Err(error) => check.damage(describe(&error), |_| {}),
        }
        check.exposure()?;
        Ok(check.report)
    }
}

fn is_readable(row: &PackRow) -> bool {
    matches!(row.state, PackState::Live | PackState::Condemned)
}

impl Check<'_> {
    fn find(&mut self, severity: Severity, what: String, place: impl FnOnce(&mut Finding)) {
        let mut finding =
            Finding { severity, what, pack: None, offset: None, block: None, versions: Vec::new() };
        place(&mut finding);
        let verdict = match severity {
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

    /// Files that others may open, as one finding.
    fn exposure(&mut self) -> Result<()> {
        let place = self.store.place();
        let Exposure { count, first } = place.exposure()?;
        if count > 0 {
            let named: Vec<String> =
                first.iter().map(|(path, others)| format!("{} ({:02o})", path.display(), others)).collect();
            let dir = place.dir().display();
            let what = format!(
                "others than the owner may open {count} files and directories of the store, such as {}: \
                 `platter check --fix-modes` or `chmod -R go-rwx {dir}` ends that",
                named.join(", ")
            );
            self.find(Severity::Exposure, what, |_| {});
        }
        Ok(())
    }

    fn damage(&mut self, what: String, place: impl FnOnce(&mut Finding)) {
        self.find(Severity::Damage, what, place);
    }

    /// A pack that counts: header, trailer, footer, and every frame against the footer.
    fn pack(&mut self, row: &PackRow) -> Result<()> {
        self.report.packs += 1;
        let path = self.store.place().pack(row.id);
        let opened = self.store.place().vfs().open(&path, OpenMode::Read);
        let read = opened.context(|| format!("opening {}", path.display())).and_then(|file| {
            let length = file.length().context(|| "asking its length".into())?;
            if length != row.length {
                return Err(Error::corrupt(format!(
                    "it has {length} bytes, the catalog says {}",
                    row.length
                )));
            }
            Ok((read_directory(&*file, row.id, self.store.id())?, file))
        });
        match read {
            Ok((directory, file)) => {
                let counts = (directory.frames() as u64, directory.blocks() as u64);
                if counts != (row.frames, row.blocks) {
                    let what = format!("it has {counts:?} frames and blocks, the catalog says otherwise");
                    self.damage(what, |finding| finding.pack = Some(row.id));
                }
                self.frames(row.id, &*file, &directory);
                if self.options.read_data {
                    self.see(row.id, row.length, Condition::ReadBack);
                }
            }
            Err(error) => {
                let what = describe(&error);
                let remedy = match error.kind() {
                    ErrorKind::Corrupt => ": `platter rebuild` writes it anew from the pack's good frames",
                    _ => "",
                };
                self.damage(format!("{what}{remedy}"), |finding| finding.pack = Some(row.id));
            }
        }
        Ok(())
    }

    fn frames(&mut self, pack: PackId, file: &dyn VfsFile, directory: &PackDirectory) {
        self.advance(HEADER_LENGTH);
        let mut stored = Vec::new();
        for (row, ids) in directory.iter() {
            self.report.frames += 1;
            self.report.blocks += ids.len();
            self.advance(u64::from(row.packed_length));
            let known = self.store.0.health().bad(pack, row.offset);
            let checked = self.frame(file, row, ids, &mut stored).and_then(|header| {
                self.lengths.note(pack, row.offset, &header);
                if row.kind == Kind::Version { self.numbers(file, row, ids, &mut stored) } else { Ok(()) }
            });
            match (checked, known) {
                (Ok(()), None) => {}
                (Ok(()), Some(_)) if self.options.read_data => {
                    self.recovered.insert((pack, row.offset));
                }
                (Ok(()), Some(bad)) => {
                    let what = format!("{}, and is in quarantine", bad.condition.in_words());
                    self.bad_frame(what, pack, row, ids);
                }
                (Err(error), known) => {
                    // Known bad places stay; a new one is bad when reading it again fails too.
                    let condition = known.is_none().then(|| condition_of(&error)).flatten();
                    let again = condition.map(|_| self.frame(file, row, ids, &mut stored));
                    if let Some(Ok(header)) = again {
                        self.lengths.note(pack, row.offset, &header);
                        continue;
                    }
                    if let Some(condition) = condition {
                        self.see(pack, row.offset, condition);
                        self.store.0.condemn(&[(pack, row.offset)]);
                    }
                    self.bad_frame(describe(&error), pack, row, ids);
                }
            }
        }
        let is_urgent = self.seen.iter().any(|seen| seen.condition != Condition::ReadBack);
        self.note(if is_urgent { 1 } else { OBSERVATIONS_TOGETHER });
    }

    fn see(&mut self, pack: PackId, offset: u64, condition: Condition) {
        self.seen.push(Observation { pack, offset, condition, time_unix_ms: now_unix_ms() });
        self.note(OBSERVATIONS_TOGETHER);
    }

    /// Makes durable what was seen, once it is so much.
    fn note(&mut self, at_least: usize) {
        if self.seen.len() >= at_least {
            self.store.0.quarantine(&std::mem::take(&mut self.seen));
        }
    }

    /// A frame that is bad. Nothing is lost by it when every block of it stands in a sound frame too.
    fn bad_frame(&mut self, what: String, pack: PackId, row: &FrameRow, ids: &[BlockId]) {
        let is_lost = |id: &&BlockId| !self.store.0.is_sound_elsewhere(id, (pack, row.offset));
        let lost: Vec<BlockId> = ids.iter().filter(is_lost).copied().collect();
        let (severity, what) = match lost.is_empty() {
            true => (Severity::Leak, format!("{what}; all of it was stored anew elsewhere")),
            false => (Severity::Damage, what),
        };
        self.damaged.extend(&lost);
        self.find(severity, what, |finding| {
            (finding.pack, finding.offset) = (Some(pack), Some(row.offset));
            finding.block = lost.first().or(ids.first()).copied();
        });
    }

    /// Ends the quarantine of what was read and is good; says what else is wrong with the quarantine.
    fn quarantine(&mut self, noted: &BTreeSet<String>) {
        self.note(1);
        let torn = self.store.0.health().torn();
        if !self.recovered.is_empty() || (torn > 0 && self.options.read_data) {
            if let Err(error) = self.store.0.lift(noted, &self.recovered) {
                let what = format!(
                    "{} frames in quarantine are good again; that could not be written: {}",
                    self.recovered.len(),
                    describe(&error)
                );
                self.find(Severity::Leak, what, |_| {});
            }
        } else if torn > 0 {
            let what = format!(
                "{torn} files of the quarantine are torn or damaged: `platter check --read-data` finds again what they said"
            );
            self.find(Severity::Leak, what, |_| {});
        }
    }

    /// How much was never read back.
    fn read_back(&mut self, rows: &[PackRow]) {
        let health = self.store.0.health();
        for row in rows.iter().filter(|row| is_readable(row)) {
            let read = health.pack(row.id).and_then(|known| known.read_back);
            match read.filter(|read| read.length == row.length) {
                Some(read) => {
                    let oldest = self.report.oldest_read_back_unix_ms.get_or_insert(read.time_unix_ms);
                    *oldest = read.time_unix_ms.min(*oldest);
                }
                None => {
                    self.report.never_read_back.packs += 1;
                    self.report.never_read_back.bytes += row.length;
                }
            }
        }
    }

    /// The numbers in version records: the catalog must know that they were given, or it would give them again.
    fn numbers(
        &mut self,
        file: &dyn VfsFile,
        row: &FrameRow,
        ids: &[BlockId],
        stored: &mut Vec<u8>,
    ) -> Result<()> {
        read_row(file, row, ids, stored)?;
        for (id, record) in read_records(stored)? {
            let last = self.given.versions.get(&record.image).copied().unwrap_or(0);
            if record.number > last || record.token.is_some_and(|token| token > self.given.token) {
                let what = format!(
                    "there is a record of {}, and the catalog does not know that its number was given: `platter \
                     rebuild` makes it anew",
                    record.name()
                );
                self.damage(what, |finding| finding.block = Some(id));
            }
        }
        Ok(())
    }

    /// A frame, whose header's checksum covers the ids that the footer has.
    fn frame(
        &mut self,
        file: &dyn VfsFile,
        row: &FrameRow,
        ids: &[BlockId],
        stored: &mut Vec<u8>,
    ) -> Result<FrameHeader> {
        let header = if self.options.read_data {
            read_row(file, row, ids, stored)?;
            self.decoder.decode(stored, Verify::Hashes)?.0
        } else {
            read_row_header(file, row, ids, stored)?;
            FrameHeader::parse(stored)?
        };
        let agrees = header.kind == row.kind && header.raw_length == row.raw_length;
        if agrees {
            Ok(header)
        } else {
            Err(Error::corrupt("the frame is not the one its pack's footer lists"))
        }
    }

    fn advance(&mut self, bytes: u64) {
        self.progress.done += bytes;
        (self.tell)(self.progress);
    }

    /// Files that the catalog does not know, or has given up.
    fn unlisted(&mut self, rows: &[PackRow], files: &[PackId]) {
        for pack in files {
            let row = rows.iter().find(|row| row.id == *pack);
            let what = match row.map(|row| row.state) {
                None => {
                    "not in the catalog: being written now, or left by an interruption; a capture that needs its blocks uses them, `platter discard-interrupted` removes it"
                }
                Some(PackState::Dead | PackState::Deleted) => {
                    "given up, but its file has not been deleted yet"
                }
                Some(_) => continue,
            };
            self.find(Severity::Leak, what.into(), |finding| finding.pack = Some(*pack));
        }
    }

    /// A version: its record is where the catalog says, and its recipe leads to blocks that are here.
    fn version(&mut self, version: &Version) -> Result<()> {
        self.report.versions += 1;
        let name = || vec![version.name.clone()];
        match self
            .store
            .read_block(Kind::Version, &version.record_id)
            .and_then(|bytes| VersionRecord::decode(&bytes))
        {
            Ok(record) if record == version.record => {}
            Ok(_) => self.damage("the record is not the one the catalog has".into(), |finding| {
                (finding.block, finding.versions) = (Some(version.record_id), name());
            }),
            Err(error) => {
                let what = format!("version record: {}: `platter rebuild` writes it anew", describe(&error));
                self.damage(what, |finding| {
                    (finding.block, finding.versions) = (Some(version.record_id), name());
                });
            }
        }
        if let Err(error) = self.recipe(version) {
            if error.kind() == ErrorKind::Bug {
                return Err(error);
            }
            self.damage(format!("recipe: {}", describe(&error)), |finding| {
                (finding.block, finding.versions) = (Some(version.record.score.0), name());
            });
        }
        Ok(())
    }

    /// A boot set is where the catalog says. What it names, its version's recipe names too.
    fn boot_set(&mut self, member: &HoardMember) {
        let what = match self.store.boot_set(&member.boot_set) {
            Ok(set) if set.record == member.record => return,
            Ok(_) => "it is not the one the catalog has".to_owned(),
            Err(error) => describe(&error),
        };
        let what = format!("the boot set of {}: {what}: record it again", member.version);
        self.damage(what, |finding| finding.block = Some(member.boot_set));
    }

    fn recipe(&mut self, version: &Version) -> Result<()> {
        let recipe = Recipe::open(version.record.score, self.store)?;
        let length = recipe.root().disk_length;
        if length != version.record.disk_length {
            let what = format!("the record says {} bytes, the recipe {length}", version.record.disk_length);
            self.damage(what, |finding| finding.versions = vec![version.name.clone()]);
        }
        let mut seen = BTreeSet::new();
        for entry in recipe.entries(Extent::new(0, length)) {
            let entry = entry?;
            let State::Data { block, offset } = entry.state else { continue };
            // Neighbours often share a block: only what is wrong is remembered.
            let place = self.store.locate(&block)?;
            if place.is_none() || self.damaged.contains(&block) {
                if seen.insert(block) {
                    self.block_of(version, block, place.is_some());
                }
            } else if let Some(length) = place.and_then(|place| self.length_at(&place))
                && let Err(error) = check_piece(&block, offset.into(), entry.extent.length, length)
                && seen.insert(block)
            {
                self.damage(format!("recipe: {}", describe(&error)), |finding| {
                    (finding.block, finding.versions) = (Some(block), vec![version.name.clone()]);
                });
            }
        }
        Ok(())
    }

    fn length_at(&self, place: &BlockPlace) -> Option<u64> {
        let pack = self.store.pack_id(place.frame).ok()?;
        self.lengths.of(pack, place.frame.offset, place.slot)
    }

    /// A version needs a block that is missing or damaged: named once, with all versions.
    fn block_of(&mut self, version: &Version, block: BlockId, is_here: bool) {
        let known = self
            .report
            .findings
            .iter_mut()
            .find(|finding| finding.block == Some(block) && finding.pack.is_none());
        if let Some(finding) = known {
            finding.versions.push(version.name.clone());
            return;
        }
        let what = if is_here { "it stands in a damaged frame" } else { "it is nowhere in the store" };
        self.damage(format!("block {block}: {what}"), |finding| {
            (finding.block, finding.versions) = (Some(block), vec![version.name.clone()]);
        });
    }
}
