//! One collection, step by step. Before it gives up packs or deletes files, the set sums of all packs must be right
//! (`catalog/audit`).

use std::collections::{BTreeSet, HashMap};

use platter_collection::{Candidate, CollectRequest, choose, may_condemn, may_delete, may_die, what_fits};
use platter_image::frame::packed_length;
use platter_image::{BlockId, Error, ErrorKind, FrameAddress, FrameStore, IoContext, Result};

use super::copying::{BATCH, Copying};
use super::inspect::Inspection;
use super::mark::Marking;
use super::roots::Roots;
use super::survey::{Survey, SurveyedPack};
use crate::catalog::{PackRow, PackState};
use crate::lack::first_lack;
use crate::readers::MoreRoots;
use crate::reserve;
use crate::salvage::Waiting;
use crate::store::{Store, Writer};
use platter_pack::FrameRow;
use platter_records::{CollectReport, PackChange, PackCount, PackId};

/// How often to mark again because versions were published meanwhile.
const ROUNDS_MAX: usize = 32;
/// Compaction leaves this many bytes free for records and the catalog: enough for some hundred packs.
const LEFT_FREE: u64 = 64 << 10;
/// Frames that are compressed again are published after at least as many bytes, or this part of the store, so that an interruption
/// loses little work.
const ROUND: u64 = 1 << 30;
const ROUND_PART: u64 = 32;

/// A collection under way.
struct Run<'a> {
    store: &'a Store,
    writer: &'a Writer,
    request: &'a CollectRequest,
    more: MoreRoots<'a>,
    tell: &'a mut dyn FnMut(&str),
    copying: Copying<'a>,
    report: CollectReport,
}

/// What one pass did.
enum Pass {
    /// It only reported: a dry run, or one that has to be confirmed.
    Reported,
    /// It gave up what nothing needs, and these packs could be compacted.
    Done(Vec<Candidate>),
}

impl Store {
    /// Collects garbage: gives up packs that nothing needs, and deletes the files of packs that were given up long enough ago.
    /// Works beside sessions of this process, and beside readers in others. `more` lists scores that must stay besides the
    /// catalog's.
    ///
    /// # Errors
    /// `Refused` when the store was opened for reading, a write has failed, or a collection is under way; `Corrupt` when
    /// something that is needed cannot be read: then nothing was given up; `Io`, also when it cannot be found out whether a leased disk is
    /// complete.
    pub fn collect(
        &self,
        request: &CollectRequest,
        more: MoreRoots<'_>,
        tell: &mut dyn FnMut(&str),
    ) -> Result<CollectReport> {
        let writer = self.0.writer()?;
        let Some(_one) = writer.collecting.try_lock() else {
            return Err(Error::refused("a collection is under way: wait for it to end"));
        };
        writer.check()?;
        self.0.learn_health()?;
        let held = self.held_for_followers(request.now_unix_ms)?;
        if !request.dry_run {
            // Without space for it, some leases end later.
            let _ = self.place().note_clock_of_leases(request.now_unix_ms);
        }
        let leased = self.leased_only(request.now_unix_ms)?;
        let mut dropped = leased.in_vain;
        let mut report = CollectReport::default();
        if request.end_leases {
            dropped.extend(leased.kept.iter().copied());
        } else {
            report.leased = leased.kept.len();
        }
        let with_readers = || {
            let mut scores = more()?;
            scores.extend(held.iter().copied());
            let leased = self.leased(request.now_unix_ms)?.into_iter();
            scores.extend(leased.filter(|score| !dropped.contains(score)));
            Ok(scores)
        };
        let copying = Copying::new(self, request.recompress)?;
        let mut run = Run { store: self, writer, request, more: &with_readers, tell, copying, report };
        if request.dry_run {
            run.pass(None)?;
            run.worth_compressing()?.iter().for_each(|pack| run.report.compacted.add(pack.length));
        } else {
            let space = reserve::lend(self.place());
            let done = run.collect();
            if request.end_leases && done.is_ok() && !run.report.needs_confirmation {
                // Even if this fails, leases of disks that are not whole any more keep nothing.
                let ended = self.place().end_leases_of_disks(&leased.kept);
                run.report.failed.extend(ended.err().map(|error| error.with_causes()));
            }
            drop(space);
            self.0.cover_packs();
            done?;
        }
        run.count_trash()?;
        Ok(run.report)
    }

    /// Returns how many packs collections have given up so far.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn packs_given_up(&self) -> Result<u64> {
        let packs = self.catalog()?.packs()?;
        let is_given_up = |state| matches!(state, PackState::Dead | PackState::Deleted);
        Ok(packs.iter().filter(|row| is_given_up(row.state)).count() as u64)
    }
}

impl<'a> Run<'a> {
    /// Marks, empties the trash, gives up what nothing needs, and compacts.
    fn collect(&mut self) -> Result<()> {
        let Pass::Done(waiting) = self.pass(None)? else { return Ok(()) };
        self.empty_trash()?;
        self.rewrite(waiting, u64::MAX, u64::MAX)?;
        let waiting = self.worth_compressing()?;
        // While the trash is kept, old and new packs take space.
        let allowed = if self.request.keep_trash_ms > 0 { self.space_for_copies()? / 2 } else { u64::MAX };
        self.rewrite(waiting, allowed, ROUND.max(self.report.before.bytes / ROUND_PART))
    }

    /// Rewrites packs, as far as the copies fit into the free space and into `allowed` bytes. What is copied is published after about
    /// `round` bytes.
    fn rewrite(&mut self, mut waiting: Vec<Candidate>, mut allowed: u64, round: u64) -> Result<()> {
        let mut emptied = BTreeSet::new();
        // Each round can free the space that the next one needs.
        loop {
            let (mut chosen, mut bytes) = (what_fits(&waiting, allowed.min(self.space_for_copies()?)), 0);
            chosen.retain(|pack| {
                let is_begun = bytes < round;
                bytes += if is_begun { pack.needed } else { 0 };
                is_begun
            });
            if chosen.is_empty() {
                break;
            }
            allowed = allowed.saturating_sub(bytes);
            waiting.retain(|pack| !chosen.contains(pack));
            let chosen: BTreeSet<PackId> = chosen.iter().map(|pack| pack.id).collect();
            self.compact(&chosen)?;
            // Those of earlier rounds, too: a pack that is still in use must not become the home of its blocks again.
            emptied.extend(chosen);
            self.pass(Some(&emptied))?;
            self.empty_trash()?;
        }
        waiting.iter().for_each(|pack| self.report.waiting.add(pack.length));
        Ok(())
    }

    /// Returns the packs of which a sample gets smaller at the level of the request.
    fn worth_compressing(&mut self) -> Result<Vec<Candidate>> {
        if self.request.recompress.is_none() || self.report.needs_confirmation {
            return Ok(Vec::new());
        }
        (self.tell)("compressing samples");
        let mut marking = Marking::with_room(self.store)?;
        let survey = self.survey_now(&mut marking)?;
        let mut worth = Vec::new();
        for (at, pack) in survey.packs.iter().enumerate().filter(|(_, pack)| pack.needed > 0 && !pack.has_bad)
        {
            if self.copying.is_worth_it(&survey, at)? {
                worth.push(pack.candidate());
            }
        }
        Ok(worth)
    }

    /// Marks and surveys all packs as they are now.
    fn survey_now<'m>(&self, marking: &'m mut Marking<'a>) -> Result<Survey<'m>>
    where
        'a: 'm,
    {
        let snapshot = self.writer.catalog().roots()?;
        let mut rows = snapshot.packs.clone();
        marking.add(&Roots::of(snapshot, self.store.place(), self.more)?)?;
        rows.extend(self.writer.interrupted().referred().iter().map(|(_, pack)| PackRow::live(pack)));
        Survey::new(self.store, marking.live(), &rows, &BTreeSet::new())
    }

    /// Bytes that copies may take. They may take the reserve, too, if what they replace is deleted at once.
    fn space_for_copies(&self) -> Result<u64> {
        let place = self.store.place();
        let context = || format!("asking for the free space of {}", place.dir().display());
        let free = place.vfs().free_space(place.dir()).context(context)?;
        let reserve = if self.request.keep_trash_ms > 0 { reserve::length(place) } else { 0 };
        Ok(free.saturating_sub(LEFT_FREE + reserve))
    }

    /// Marks, gives up what nothing needs, and returns what could be compacted. `emptied`: what was compacted.
    fn pass(&mut self, emptied: Option<&BTreeSet<PackId>>) -> Result<Pass> {
        let (store, is_first) = (self.store, emptied.is_none());
        let nothing = BTreeSet::new();
        let mut marking = Marking::with_room(store)?;
        for _ in 0..ROUNDS_MAX {
            (self.tell)("marking");
            let snapshot = self.writer.catalog().roots()?;
            let mut packs = snapshot.packs.clone();
            let roots = Roots::of(snapshot, store.place(), self.more)?;
            marking
                .add(&roots)
                .map_err(|error| if is_first { error.within("nothing is collected") } else { error })?;
            // What was found only in packs that the catalog does not list, which the next commit lists.
            let found = self.writer.interrupted().referred();
            if self.request.dry_run {
                packs.extend(found.iter().map(|(_, pack)| PackRow::live(pack)));
            } else if !found.is_empty() {
                store.upkeep_session()?.commit(|_, _, _| Ok(Ok(())))?;
                continue;
            }
            let covered = marking.covered();
            let survey = Survey::new(store, marking.live(), &packs, emptied.unwrap_or(&nothing))?;
            let unneeded = |pack: &&SurveyedPack| pack.needed == 0;
            let chosen: Vec<&SurveyedPack> = survey.packs.iter().filter(unneeded).collect();
            let partly = if is_first { self.partly_needed(&survey) } else { Vec::new() };
            if is_first {
                self.describe(&survey, &chosen, &partly);
                let share_max = self.report.before.bytes / 100 * CollectRequest::BRAKE_PERCENT;
                let needs_confirmation = self.report.unneeded_bytes > share_max;
                self.report.needs_confirmation = needs_confirmation && !self.request.is_confirmed;
                if self.request.dry_run || self.report.needs_confirmation {
                    return Ok(Pass::Reported);
                }
                // Only now it is known that nothing in the trash is needed. Before the first write, which may need the space.
                self.empty_trash()?;
                self.delete_copies()?;
            }
            self.audit()?;
            let Some(condemned) = self.condemn(&covered, &survey, &chosen)? else { continue };
            let dead = self.give_up(&condemned)?;
            if is_first {
                self.report.given_up = PackCount::default();
            }
            for pack in survey.packs.iter().filter(|pack| dead.contains(&pack.ordinal)) {
                self.report.given_up.add(pack.length);
            }
            return Ok(Pass::Done(partly));
        }
        Err(Error::transient("versions are published faster than they can be marked: try again later"))
    }

    fn describe(&mut self, survey: &Survey<'_>, chosen: &[&SurveyedPack], partly: &[Candidate]) {
        let report = &mut self.report;
        (report.before, report.given_up, report.compacted) = Default::default();
        report.live_bytes = survey.packs.iter().map(|pack| pack.needed).sum();
        survey.packs.iter().for_each(|pack| report.before.add(pack.length));
        chosen.iter().for_each(|pack| report.given_up.add(pack.length));
        let dropped = partly.iter().map(|pack| pack.length.saturating_sub(pack.needed));
        report.unneeded_bytes = report.given_up.bytes + dropped.sum::<u64>();
        if self.request.dry_run {
            partly.iter().for_each(|pack| report.compacted.add(pack.length));
        }
    }

    /// Condemns packs. `None`: roots appeared that are not marked, so the marking goes on.
    fn condemn(
        &mut self,
        covered: &super::mark::Covered,
        survey: &Survey<'_>,
        chosen: &[&SurveyedPack],
    ) -> Result<Option<BTreeSet<u32>>> {
        let shared = &self.store.0;
        let mut catalog = self.writer.catalog();
        self.writer.check()?;
        if !covered.covers(&Roots::of(catalog.roots()?, self.store.place(), self.more)?) {
            return Ok(None);
        }
        let (mut condemned, mut saved) = (BTreeSet::new(), BTreeSet::new());
        {
            let mut index = shared.index.write();
            for surveyed in chosen {
                let pack = shared.packs.get(surveyed.ordinal)?;
                let mut are_copied = true;
                for home in &surveyed.relies_on {
                    are_copied &= shared.packs.get(survey.packs[*home].ordinal)?.state() == PackState::Live;
                }
                if may_condemn(pack.state(), pack.is_pinned(), are_copied) {
                    condemned.insert(surveyed.ordinal);
                }
            }
            for ordinal in &condemned {
                let pack = shared.packs.get(*ordinal)?;
                pack.set_state(PackState::Condemned);
                self.writer.rescued.lock().remove(&pack.id);
            }
            index.demote(&condemned);
            // What an interrupted collection condemned and this one does not.
            for surveyed in survey.packs.iter().filter(|pack| !condemned.contains(&pack.ordinal)) {
                if surveyed.state == PackState::Condemned {
                    shared.packs.get(surveyed.ordinal)?.rescue();
                    index.promote(surveyed.ordinal);
                    saved.insert(surveyed.ordinal);
                }
            }
        }
        self.commit_states(&mut catalog, &[(&condemned, PackState::Condemned), (&saved, PackState::Live)])?;
        Ok(Some(condemned))
    }

    /// Proves once more that nothing needs the condemned packs, and declares them dead. Returns those that are.
    fn give_up(&mut self, condemned: &BTreeSet<u32>) -> Result<BTreeSet<u32>> {
        if condemned.is_empty() {
            return Ok(BTreeSet::new());
        }
        (self.tell)("inspecting");
        let inspected = self.inspect(condemned);
        let shared = &self.store.0;
        let mut catalog = self.writer.catalog();
        self.writer.check()?;
        let (mut dead, mut saved) = (BTreeSet::new(), BTreeSet::new());
        {
            let mut index = shared.index.write();
            for ordinal in condemned {
                let pack = shared.packs.get(*ordinal)?;
                if inspected.is_ok() && may_die(pack.state(), pack.is_pinned()) {
                    pack.set_state(PackState::Dead);
                    dead.insert(*ordinal);
                } else {
                    pack.rescue();
                    index.promote(*ordinal);
                    saved.insert(*ordinal);
                }
            }
        }
        self.commit_states(&mut catalog, &[(&dead, PackState::Dead), (&saved, PackState::Live)])?;
        // Their files may be deleted next, but whoever planned their frames looks for the blocks' other places.
        dead.iter().try_for_each(|ordinal| shared.take_into_memory(*ordinal))?;
        inspected.map_err(|error| error.within("nothing was given up"))?;
        Ok(dead)
    }

    fn inspect(&self, condemned: &BTreeSet<u32>) -> Result<usize> {
        let inspection = Inspection::of(self.store, condemned)?;
        let snapshot = self.writer.catalog().roots()?;
        inspection.prove(&Roots::of(snapshot, self.store.place(), self.more)?)
    }

    /// Commits states of packs. After an error the store accepts no more writes, because the outcome is unknown.
    fn commit_states(
        &self,
        catalog: &mut crate::catalog::Catalog,
        states: &[(&BTreeSet<u32>, PackState)],
    ) -> Result<()> {
        if states.iter().all(|(packs, _)| packs.is_empty()) {
            return Ok(());
        }
        let now = self.request.now_unix_ms.max(0).cast_unsigned();
        let mut changes = Vec::new();
        for (packs, state) in states {
            let epoch = if *state == PackState::Dead { now } else { 0 };
            for ordinal in *packs {
                changes.push(PackChange { pack: self.store.0.packs.get(*ordinal)?.id, state: *state, epoch });
            }
        }
        self.writer.poison(catalog.change(&self.store.1, |change| change.set_pack_states(&changes)))
    }

    /// Deletes the files of packs that died long enough ago.
    fn empty_trash(&mut self) -> Result<()> {
        let (store, place) = (self.store, self.store.place());
        self.audit()?;
        let latest = self.request.now_unix_ms.saturating_sub(self.request.keep_trash_ms);
        let packs = self.writer.catalog().packs()?;
        // After a failed sync of its directory and a power failure, a deleted file can be there again.
        let files: BTreeSet<PackId> = place.list_packs()?.into_iter().collect();
        let returned: Vec<&PackRow> =
            packs.iter().filter(|row| row.state == PackState::Deleted && files.contains(&row.id)).collect();
        // One from a backup may have what the store lacks: a rebuild copies it.
        let is_kept = !returned.is_empty() && first_lack(store)?.is_some();
        for row in returned.into_iter().filter(|_| !is_kept) {
            if let Err(error) = place.remove_if_there(&place.pack(row.id)) {
                self.report.failed.push(error.with_causes());
            }
        }
        // Without a trash, the clock does not matter: it may have run ahead when a pack died.
        let is_old = |since: u64| i64::try_from(since).is_ok_and(|since| since <= latest);
        let keeps_none = self.request.keep_trash_ms <= 0;
        let old = packs.into_iter().filter(|row| may_delete(row.state) && (keeps_none || is_old(row.epoch)));
        let mut deleted = Vec::new();
        for row in old {
            let at = store.0.packs.all().iter().position(|pack| pack.id == row.id).map(|at| at as u32);
            at.into_iter().for_each(|ordinal| store.0.packs.close(ordinal));
            let removed = place
                .remove_if_there(&place.pack(row.id))
                .and_then(|()| place.sync_dir(&place.pack_dir(row.id)));
            match removed {
                Ok(()) => deleted.push((row, at)),
                Err(error) => self.report.failed.push(error.with_causes()),
            }
        }
        if deleted.is_empty() {
            return Ok(());
        }
        self.writer.check()?;
        let mut catalog = self.writer.catalog();
        let state = PackState::Deleted;
        let changes: Vec<PackChange> =
            deleted.iter().map(|(row, _)| PackChange { pack: row.id, state, epoch: row.epoch }).collect();
        self.writer.poison(catalog.change(&self.store.1, |change| change.set_pack_states(&changes)))?;
        for (row, at) in deleted {
            self.report.deleted.add(row.length);
            if let Some(ordinal) = at {
                store.0.packs.get(ordinal)?.set_state(PackState::Deleted);
            }
        }
        Ok(())
    }

    /// Compares the packs with the sums of what was added and collected.
    fn audit(&self) -> Result<()> {
        let contradiction = self.writer.catalog().contradiction_of_packs()?;
        contradiction.map_or(Ok(()), |what| Err(Error::corrupt(what)))
    }

    /// Deletes packs that an interrupted compaction left: no version refers to them, and other packs have all of their blocks.
    fn delete_copies(&mut self) -> Result<()> {
        let (store, place) = (self.store, self.store.place());
        // They may be the only ones that are sound: the others are read.
        let mut proven: HashMap<FrameAddress, bool> = HashMap::new();
        let mut is_elsewhere = |id: &BlockId| {
            let Some(place) = store.0.locate_sound(id).ok().flatten() else { return false };
            let pack = store.0.packs.get(place.frame.pack);
            pack.is_ok_and(|pack| pack.state() == PackState::Live)
                && *proven.entry(place.frame).or_insert_with(|| store.0.prove_known(place.frame))
        };
        let mut is_copy =
            |(_, _, index): &Waiting| index.frames().all(|(_, ids)| ids.iter().all(&mut is_elsewhere));
        let waiting = self.writer.interrupted().take_waiting();
        let (copies, others): (Vec<Waiting>, Vec<Waiting>) =
            waiting.into_iter().partition(|waiting| is_copy(waiting));
        self.writer.interrupted().put_back(others);
        for (_, pack, _) in copies {
            place.remove_if_there(&place.pack(pack.id))?;
            place.sync_dir(&place.pack_dir(pack.id))?;
            self.report.deleted.add(pack.length);
        }
        Ok(())
    }

    fn count_trash(&mut self) -> Result<()> {
        for row in self.writer.catalog().packs()?.iter().filter(|row| row.state == PackState::Dead) {
            self.report.trash.add(row.length);
        }
        Ok(())
    }

    /// Chooses packs to compact.
    fn partly_needed(&self, survey: &Survey<'_>) -> Vec<Candidate> {
        let partly = survey.packs.iter().filter(|pack| pack.needed > 0 && !pack.has_bad);
        let candidates: Vec<Candidate> = partly.map(SurveyedPack::candidate).collect();
        choose(&candidates, self.request.compact_percent, self.store.place().pack_length_target())
    }

    /// Copies the needed frames of packs to new packs and publishes these. The next pass finds that the old ones are not needed
    /// any more.
    fn compact(&mut self, packs: &BTreeSet<PackId>) -> Result<()> {
        (self.tell)("compacting");
        let store = self.store;
        let mut marking = Marking::with_room(store)?;
        let survey = self.survey_now(&mut marking)?;
        let session = store.upkeep_session()?;
        for (at, pack) in survey.packs.iter().enumerate().filter(|(_, pack)| packs.contains(&pack.id)) {
            self.report.compacted.add(pack.length);
            let (file, directory) = (store.0.packs.file(pack.ordinal)?, survey.directory(at)?);
            let is_sound = |row: &FrameRow| !store.0.is_bad(row.address(pack.ordinal));
            let needed = directory.iter().filter(|(row, ids)| survey.is_needed(at, ids) && is_sound(row));
            for batch in needed.collect::<Vec<_>>().chunks(BATCH) {
                let frames = self.copying.read(&*file, batch);
                let frames = match frames
                    .map_err(|error| error.within(format!("compacting pack {}", pack.id)))
                {
                    // It stays as it is, and keeps no other pack from getting smaller.
                    Err(error) if self.request.recompress.is_some() && error.kind() == ErrorKind::Corrupt => {
                        self.report.failed.push(error.with_causes());
                        break;
                    }
                    frames => frames?,
                };
                for frame in frames {
                    session.append(&frame)?;
                    self.report.copied_bytes += packed_length(frame.stored.len(), frame.blocks.len()) as u64;
                }
            }
        }
        session.keep()
    }
}
