//! Everything that a store says: names, records, locks, quotas, hoard, history, key slots and the contents of all disks.

use std::collections::BTreeMap;
use std::fmt::Debug;

use platter_encryption::KeyFile;
use platter_image::page::{Entry, State};
use platter_image::recipe::Recipe;
use platter_image::{Extent, Kind, Result};
use platter_records::{ChangeRecord, NumberChoice, Version};
use platter_store::{Store, StorePlace};

use super::store::{Sample, secrets};

/// Answers by what was asked; an error is `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    answers: BTreeMap<String, Option<String>>,
    /// The changes in the logs, and whether they are said to be all.
    history: Option<(Vec<ChangeRecord>, bool)>,
}

impl Facts {
    pub(crate) fn read(place: &StorePlace, sample: &Sample) -> Self {
        let mut facts = Self::default();
        if sample.is_encrypted {
            facts.keys(place);
        }
        match Store::open_reader(place) {
            Ok(store) => facts.names(&store, sample),
            Err(_) => facts.note("open", None::<()>),
        }
        facts
    }

    fn note(&mut self, what: impl Into<String>, answer: Option<impl Debug>) {
        self.answers.insert(what.into(), answer.map(|answer| format!("{answer:?}")));
    }

    fn keys(&mut self, place: &StorePlace) {
        let keys = place.read_key_file().ok().flatten();
        // What a slot says that contradicts its checksum is known to be wrong.
        let sound = keys.as_ref().filter(|keys| keys.damaged_slots().is_empty());
        self.note("key slots", sound.map(KeyFile::slots));
        for (number, secret) in secrets().iter().enumerate() {
            let opened = keys.as_ref().and_then(|keys| keys.unlock(secret).ok());
            self.note(format!("secret {number}"), opened.map(|(master, slot)| (master.domain(), slot)));
        }
    }

    fn names(&mut self, store: &Store, sample: &Sample) {
        self.note("id", Some((store.id(), store.domain())));
        let versions = store.versions().ok();
        for version in versions.iter().flatten() {
            let Version { name, record, .. } = version;
            self.note(format!("history of {}", name.image), store.history(&name.image).ok());
            self.note(format!("edit lock of {}", name.image), store.edit_lock(&name.image).ok());
            let one = store.version(&name.image, NumberChoice::Number(name.number));
            self.note(format!("version {name}"), one.ok());
            self.note(format!("score of {name}"), store.resolve(&record.score.to_string()).ok());
            let expected = sample.disks.iter().find(|(score, _)| *score == record.score);
            let disk = disk(store, version).ok();
            let is_right = disk.map(|disk| expected.is_some_and(|(_, expected)| *expected == disk));
            self.note(format!("disk of {name}"), is_right);
        }
        self.note("versions", versions);
        self.note("images", store.images().ok());
        self.note("forgotten", store.forgotten().ok());
        self.note("edit locks", store.edit_locks().ok());
        self.note("protected", store.protected().ok());
        self.quotas(store);
        let hoard = store.hoard().ok();
        for member in hoard.iter().flat_map(|hoard| &hoard.members) {
            self.note(format!("boot set of {}", member.version), store.boot_set(&member.boot_set).ok());
        }
        self.note("hoard", hoard);
        self.note("hoard's revisions", store.hoard_revisions().ok());
        self.note("hoard follows", store.hoard_followed().ok());
        self.note("standing", store.standing().ok());
        let history = store.changes_after(0, usize::MAX).ok();
        self.history = history.map(|history| (history.changes, history.is_whole));
    }

    /// What a damaged page names is not counted.
    fn quotas(&mut self, store: &Store) {
        let quotas = store.quotas(&|_| true).ok();
        let limits: Option<Vec<_>> =
            quotas.as_ref().map(|all| all.iter().map(|one| one.quota.clone()).collect());
        self.note("quotas", limits);
        let is_complete = self.answers.values().all(Option::is_some);
        self.note("quotas' use", quotas.filter(|_| is_complete));
    }

    /// Whether every question was answered.
    pub(crate) fn is_complete(&self) -> bool {
        let disks = self.answers.iter().filter(|(what, _)| what.starts_with("disk of"));
        self.answers.values().all(Option::is_some)
            && disks.map(|(_, is_right)| is_right).all(|is_right| is_right.as_deref() == Some("true"))
            && self.history.as_ref().is_some_and(|(changes, is_whole)| *is_whole && changes.len() > 10)
    }

    /// Panics if an answer differs from the expected one. Returns whether any is missing.
    pub(crate) fn compare(&self, expected: &Self, context: &str) -> bool {
        let fails = self.compare_answers(expected, context);
        let (Some((found, is_whole)), Some((all, _))) = (&self.history, &expected.history) else {
            return true;
        };
        assert!(found.iter().all(|change| all.contains(change)), "{context}: a wrong change");
        assert!(found == all || !is_whole, "{context}: changes are missing");
        fails
    }

    /// As [`Facts::compare`], after a repair, which is a change of its own.
    pub(crate) fn compare_healed(&self, expected: &Self, context: &str) -> bool {
        self.compare_answers(expected, context)
    }

    fn compare_answers(&self, expected: &Self, context: &str) -> bool {
        let mut fails = false;
        for (what, expected) in &expected.answers {
            match self.answers.get(what).cloned().flatten() {
                None => fails = true,
                found => assert!(found == *expected, "{context}: {what}: {found:?} instead of {expected:?}"),
            }
        }
        let more: Vec<_> = self
            .answers
            .iter()
            .filter(|(what, _)| *what != "open" && !expected.answers.contains_key(*what))
            .collect();
        assert!(more.is_empty(), "{context}: {more:?}");
        fails
    }
}

/// Reads the disk of a version.
fn disk(store: &Store, version: &Version) -> Result<Vec<u8>> {
    let recipe = Recipe::open(version.record.score, store)?;
    let mut disk = Vec::new();
    for entry in recipe.entries(Extent::new(0, recipe.root().disk_length)) {
        let Entry { extent, state } = entry?;
        match state {
            State::Data { block, offset } => {
                let bytes = store.read_block(Kind::Data, &block)?;
                let from = offset as usize;
                disk.extend(&bytes[from..from + extent.length as usize]);
            }
            _ => disk.resize(extent.end() as usize, 0),
        }
    }
    Ok(disk)
}
