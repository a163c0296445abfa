//! All images, or one, as trees of files: a view that FUSE shows read-only.
//!
//! ```text
//!  DIR/lab/debian12/3/1/etc/hostname     all images: names, versions, partitions, files
//!  DIR/lab/debian12/latest               a link to the newest version
//!  DIR/1/etc/hostname                    one version
//!  DIR/etc/hostname                      one filesystem
//! ```
//!
//! A disk without a partition table has its filesystem in `disk`. Names of images may have several parts, so the number of a
//! version, and `latest`, hide an image below with the same name.
//!
//! # Numbers
//!
//! A node's number is made from the number of its file, so no table of files is needed, and a file has the same number as long as
//! the mount lasts ([`numbers`]). Programs like `tar` recognize files with several names by it.
//!
//! # Bounds
//!
//! Nothing is kept for a program between its requests. What was read last is kept in caches with limits: blocks, filesystems,
//! inodes, names in directories, places of contents. Each request may read as much of a filesystem as one walk through it, so
//! also a hostile one ends. Names with `/` or NUL are left out by the readers, and the kernel refuses directories that contain
//! themselves. Damage is an error for the file, and a message.

mod catalog;
mod filesystems;
mod numbers;
mod recent;
mod view;

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use platter_export::fuse::{FilesServer, FuseEvent, FuseOptions};
use platter_fetch::{OpenStore, StoreLocation};
use platter_image::{Error, Result};
use platter_records::VersionRecord;
use platter_vdisk::with_advice;

use crate::location::FileLocation;
use view::MountedFiles;

/// Further messages about damage are not printed. Each is printed once.
const MESSAGES_MAX: usize = 1000;
/// At the end, programs have this long to stop using the mount.
const FAREWELL_TIME: Duration = Duration::from_secs(2);

/// Decides whether a version may be used: by its record, `None` for a score that no version has.
pub type Admit = Box<dyn Fn(Option<&VersionRecord>) -> Result<()> + Send + Sync>;

/// What is mounted, and how.
pub struct MountRequest<'a> {
    /// One version, filesystem or directory; `None`: all images.
    pub location: Option<&'a FileLocation>,
    /// Memory for decoded blocks, in bytes.
    pub memory_bytes: usize,
    /// Asked before the first use of each version.
    pub admit: Admit,
    /// Where.
    pub mount_point: &'a Path,
    /// Other users of this machine may use it, as far as the modes in the filesystems allow.
    pub allow_other: bool,
    /// Ends the mount.
    pub stop: &'a AtomicBool,
}

impl fmt::Debug for MountRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountRequest").field("location", &self.location).finish_non_exhaustive()
    }
}

/// Something happened.
#[derive(Clone, Debug)]
pub enum MountEvent<'a> {
    /// The files can be used.
    Mounted(&'a Path),
    /// A message about damage, or about the mount.
    Note(String),
}

/// Mounts, and returns when it was unmounted, or soon after `stop` is true.
///
/// # Errors
/// `Missing` if there is no such version, path or mount point; `Refused` if the version may not be used, the mount point is not
/// empty, or mounting is not allowed; `Io` from mounting; those of reading the store.
pub fn mount(
    store: &StoreLocation,
    request: MountRequest<'_>,
    on_event: impl Fn(&MountEvent<'_>) + Send + Sync + 'static,
) -> Result<()> {
    let MountRequest { location, memory_bytes, admit, mount_point, allow_other, stop } = request;
    let messages = Arc::new(Messages { on_event: Box::new(on_event), told: Mutex::default() });
    let tell = messages.clone();
    // Without the key, nothing could be read.
    OpenStore::open_reader(store)?.domain()?.check_open()?;
    let view = MountedFiles::open(store, location, memory_bytes, admit, allow_other, move |error| {
        tell.error(error);
    })?;
    let options = FuseOptions {
        allow_other,
        farewell_time: FAREWELL_TIME,
        on_event: Arc::new(move |event| messages.fuse(event)),
        ..FuseOptions::default()
    };
    FilesServer::serve(mount_point, Arc::new(view), options, stop)
}

/// Passes events on, and limits the messages about damage: a program can ask for the same file again and again.
struct Messages {
    on_event: Box<dyn Fn(&MountEvent<'_>) + Send + Sync>,
    /// Those about damage.
    told: Mutex<HashSet<String>>,
}

impl Messages {
    fn note(&self, text: String) {
        (self.on_event)(&MountEvent::Note(text));
    }

    fn error(&self, error: &Error) {
        let text = with_advice(error);
        let mut told = self.told.lock();
        let count = told.len();
        if count > MESSAGES_MAX || !told.insert(text.clone()) {
            return;
        }
        drop(told);
        match count {
            MESSAGES_MAX => self.note("there were many errors; further ones are not shown".to_owned()),
            _ => self.note(text),
        }
    }

    fn fuse(&self, event: &FuseEvent<'_>) {
        match event {
            FuseEvent::Mounted { mount_point } => (self.on_event)(&MountEvent::Mounted(mount_point)),
            FuseEvent::RequestFailed { error, .. } => self.error(error),
            FuseEvent::StaleUnmounted { mount_point } => {
                self.note(format!("{}: removed the stale mount of a dead process", mount_point.display()));
            }
            FuseEvent::Busy { mount_point } => {
                self.note(format!("{} is still in use; unmounting it anyway", mount_point.display()));
            }
            FuseEvent::Unmounted { .. } | FuseEvent::PassthroughRefused { .. } => {}
        }
    }
}
