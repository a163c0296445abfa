//! Registers the boots of a node's disks at the origin, in a separate thread, which runs while there are any.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use platter_fetch::RemoteStore;
use platter_image::{Error, ErrorKind, Result, Score};
use platter_jobs::{Observation, ObservedBoot, register_observed};
use platter_records::{ImageName, Version};

use super::boots::BootRecorder;
use super::event::LiveEvent;
use super::served::Served;
use super::version::base_version;

impl Served {
    /// Detects ended boots, and registers them on a separate thread.
    pub(super) fn record_boots(self: &Arc<Self>) {
        let Some(recorder) = self.boots().cloned() else { return };
        recorder.look();
        if !recorder.has_due() || recorder.is_registering.swap(true, Ordering::AcqRel) {
            return;
        }
        let (served, registering) = (self.clone(), recorder.clone());
        let register = move || {
            while let Some(observed) = registering.take_due() {
                served.register_boot(&registering, observed);
            }
            registering.is_registering.store(false, Ordering::Release);
        };
        if thread::Builder::new().name("boots".to_owned()).spawn(register).is_err() {
            recorder.is_registering.store(false, Ordering::Release);
        }
    }

    fn register_boot(&self, recorder: &BootRecorder, observed: ObservedBoot) {
        let score = observed.score;
        match self.try_to_register(recorder, &observed) {
            Ok(Observation::Registered(report)) => {
                recorder.note_added(&observed);
                self.tell(&LiveEvent::Note(format!(
                    "{}: recorded a boot of {} blocks, {} bytes: revision {} of the hoard",
                    report.version, report.blocks, report.bytes, report.revision
                )));
            }
            Ok(Observation::KnownAlready) => recorder.note_known(&observed),
            // Reading the whole disk is a copy, not a boot.
            Ok(Observation::Copy) => {}
            Err(error) if error.kind() == ErrorKind::Transient => {
                self.tell(&LiveEvent::Note(format!(
                    "a boot of {score} is kept until the origin answers: {error}"
                )));
                recorder.postpone(observed);
            }
            Err(error) => {
                recorder.note_refused(score);
                self.tell(&LiveEvent::Note(format!("a boot of {score} is not recorded: {error}")));
            }
        }
    }

    fn try_to_register(&self, recorder: &BootRecorder, observed: &ObservedBoot) -> Result<Observation> {
        let store = self
            .store()
            .remote()
            .map(RemoteStore::origin)
            .ok_or_else(|| Error::bug("a node without an origin"))?;
        let version = self.version_that_booted(observed.score)?;
        let source = self.source(observed.score);
        register_observed((store, &recorder.hoard), &version, (observed, &recorder.observer), &*source)
    }

    /// Returns the version with this score, preferably of an attached image.
    fn version_that_booted(&self, score: Score) -> Result<Version> {
        let base = score.to_string();
        let attached = self.attached()?.into_iter().find(|disk| disk.base == base);
        let image: Option<ImageName> = attached.and_then(|disk| disk.disk.parse().ok());
        let version = match image {
            Some(image) => base_version(self.store(), &image, score)?,
            None => self.store().resolve(&base)?.version,
        };
        version.ok_or_else(|| Error::missing(format!("no version has the score {score}")))
    }
}
