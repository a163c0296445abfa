//! Receives a cast onto a device or a file.

mod sink;
mod writer;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use platter_disk::Target;
use platter_disk::install::FreeSpace;
use platter_disk::refusal::{self, Reason, TargetCheck};
use platter_image::recipe::Root;
use platter_image::{DiskWrite, Error, Result};
use platter_net::{ReceiveEvent, ReceiveOptions, Wanted};

use crate::install::{move_backup_gpt, open_target};
use crate::{Progress, ReceiveReport};
use sink::DiskSink;
pub(crate) use sink::Frames;

/// What to receive, where to, and how.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// A block device, or a file that is made if it is missing.
    pub target: PathBuf,
    /// What to do with space nobody can read.
    pub free: FreeSpace,
    /// Which refusals the user overrides.
    pub force: Vec<Reason>,
    /// Which cast, and where to listen.
    pub network: ReceiveOptions,
}

/// What is said where nothing but a name is known of the disk.
const UNPROVED: &str = "nothing proves that this is the disk you mean: the sender is trusted by the name it gives, and any machine of this \
    network can give it. `platter show NAME` at the store prints the score; `platter receive SCORE TARGET` takes no other disk";

/// Receives a whole disk.
///
/// # Errors
/// `Refused` when the target must not be written to (nothing was); `Missing` when no sender is heard, or the sender
/// lacks blocks; `Io`.
pub fn receive(request: &ReceiveRequest, progress: &dyn Progress) -> Result<ReceiveReport> {
    let started = Instant::now();
    // Before the cast is joined everything is checked but size and sectors: those need the image, and are checked
    // when the target is opened, before the first write.
    let check = TargetCheck { force: &request.force, ..TargetCheck::default() };
    refusal::check_target(&request.target, &check)?;
    let opened = Arc::new(Mutex::new(None::<Opened>));
    let opener = {
        let (opened, request) = (opened.clone(), request.clone());
        move |root: &Root| -> Result<Box<dyn DiskWrite>> {
            let target = Arc::new(open_target(&request.target, root, &[], &request.force, None)?);
            *opened.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Opened { target: target.clone(), disk_length: root.disk_length });
            Ok(Box::new(Shared(target)))
        }
    };
    let mut sink = DiskSink::new(opener, request.free)?;
    let is_proved = matches!(request.network.wanted, Wanted::Score(_));
    if !is_proved {
        progress.note(UNPROVED);
    }
    progress.begin("waiting for a sender", 0);
    let (mut name, mut wanted_before, mut done) = (String::new(), 0, 0);
    let summary = platter_net::receive(&request.network, &mut sink, |event| match event {
        ReceiveEvent::Joined { name: joined, score } => {
            progress.note(&format!("joined the cast of {joined}, score {score}"));
            name = joined;
        }
        ReceiveEvent::SenderLost => progress.note("the sender is gone; waiting for it to come back"),
        ReceiveEvent::Progress { wanted, bytes, .. } => {
            if wanted != wanted_before {
                wanted_before = wanted;
                progress.begin("receiving", 0);
            }
            progress.advance(bytes.saturating_sub(done));
            done = bytes;
        }
    })?;
    let opened = opened.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Opened { target, disk_length } =
        opened.ok_or_else(|| Error::bug("received a disk without a target"))?;
    let (moved, mut notes) = move_backup_gpt(&target, disk_length)?;
    if !is_proved {
        notes.push(UNPROVED.to_owned());
    }
    Ok(ReceiveReport {
        version: name,
        score: summary.outcome.score.to_string(),
        target: request.target.display().to_string(),
        written_bytes: summary.outcome.bytes_written,
        backup_gpt_moved: moved,
        seconds: summary.duration.as_secs_f64().min(started.elapsed().as_secs_f64()),
        symbols: summary.symbols,
        repaired_symbols: summary.repaired,
        duplicate_symbols: summary.duplicates,
        fetched_chunks: summary.fetched_chunks,
        acknowledged: summary.acknowledged,
        score_given: is_proved,
        notes,
    })
}

/// What the recipe has brought to light.
struct Opened {
    target: Arc<Target>,
    disk_length: u64,
}

/// The target, shared by the sink that writes it and by what is done afterwards.
struct Shared(Arc<Target>);

impl DiskWrite for Shared {
    fn length(&self) -> u64 {
        DiskWrite::length(&*self.0)
    }

    fn alignment(&self) -> usize {
        self.0.alignment()
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> std::io::Result<()> {
        self.0.write_all_at(buffer, offset)
    }

    fn write_zeroes(&self, offset: u64, length: u64) -> std::io::Result<()> {
        self.0.write_zeroes(offset, length)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.0.flush()
    }
}
