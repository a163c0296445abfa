//! Writes a version in the format of another program: through `qemu-img`, which reads it over NBD, or as a Frisbee image.
//! No raw copy is made.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use platter_disk::install::Phase;
use platter_formats::Format;
use platter_image::page::State;
use platter_image::recipe::Recipe;
use platter_image::{DiskRead, Error, ErrorKind, Extent, Extents, IoContext, Result};
use platter_vdisk::{Allocation, BlockDevice, RecipeDisk};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use super::raw::refuse_existing;
use super::request::ExportRequest;
use crate::install::{allocated, title};
use crate::one_disk::{Scratch, while_served};
use crate::target::TargetRequest;
use crate::{ExportReport, Progress};
use platter_fetch::memory_cache;

/// Memory for decoded blocks, in bytes.
const CACHE_BYTES: usize = 256 << 20;
/// Bytes that are read at once.
const PIECE: u64 = 4 << 20;
/// Only the owner reads a new file, as with raw files.
const FILE_MODE: u32 = 0o600;
/// The disk's name for `qemu-img`.
const DISK: &str = "disk";
const PROGRAM: &str = "qemu-img";
/// Most bytes of messages of `qemu-img` that are shown.
const MESSAGE_MAX: usize = 1000;

/// How a version is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExportOptions {
    /// The format; without one, the suffix of the file decides.
    pub format: Option<Format>,
    /// Compress the data in the file (qcow2 and VMDK).
    pub compress: bool,
}

/// Whether a version is written byte by byte.
pub fn is_raw(file: &Path, options: ExportOptions) -> bool {
    options.format.unwrap_or_else(|| Format::of_suffix(file)) == Format::Raw
}

/// Checks whether versions are written in that format.
///
/// # Errors
/// `Refused`.
pub fn check_format(file: &Path, options: ExportOptions) -> Result<()> {
    match is_raw(file, options) && !options.compress {
        true => Ok(()),
        false => {
            arguments(options.format.unwrap_or_else(|| Format::of_suffix(file)), options.compress).map(drop)
        }
    }
}

/// A version that is read for an export.
struct Exported {
    recipe_disk: Arc<Reporting>,
    /// What is not free space.
    kept: Extents,
    report: ExportReport,
    total: u64,
}

impl Exported {
    fn open(request: &ExportRequest, file: &str) -> Result<Self> {
        let (store, resolved) = request.open()?;
        let source = store.source(resolved.score, Default::default());
        let recipe = Recipe::open(resolved.score, &*source)?;
        store.check_presence(&recipe)?;
        let length = recipe.root().disk_length;
        let (mut kept, mut written) = (Extents::new(), 0);
        for entry in recipe.entries(Extent::new(0, length)) {
            let entry = entry?;
            written += if matches!(entry.state, State::Data { .. }) { entry.extent.length } else { 0 };
            if !matches!(entry.state, State::Free) {
                kept.push(entry.extent);
            }
        }
        let disk = RecipeDisk::open(resolved.score, source.clone(), memory_cache(CACHE_BYTES)?)?;
        let total = allocated(&resolved).unwrap_or(length);
        let report = ExportReport {
            version: title(&resolved),
            score: resolved.score.to_string(),
            file: file.to_owned(),
            disk_bytes: length,
            written_bytes: written,
            seconds: 0.0,
        };
        let sector_size = recipe.root().sector_size;
        Ok(Self {
            recipe_disk: Arc::new(Reporting { disk, sector_size, failed: Mutex::default() }),
            kept,
            report,
            total,
        })
    }
}

/// Writes this version to a new file, in the format that the options or the suffix of the file say.
///
/// # Errors
/// `Refused` when the file exists or the format is not written; `Missing` without `qemu-img`, or when the store is damaged;
/// `Corrupt`; `Io`. The file is then removed.
pub fn export_image(
    request: &ExportRequest,
    target: &TargetRequest,
    options: ExportOptions,
    progress: &dyn Progress,
) -> Result<ExportReport> {
    let started = Instant::now();
    let path = &target.path;
    let format = options.format.unwrap_or_else(|| Format::of_suffix(path));
    let arguments = arguments(format, options.compress)?;
    refuse_existing(path)?;
    let exported = Exported::open(request, &path.display().to_string())?;
    target.agree(None, &request.store.directories())?;
    let sector_size = exported.recipe_disk.sector_size;
    if sector_size != 512 {
        progress.note(&format!(
            "the disk has sectors of {sector_size} bytes, which {format} files do not state: attach it as a disk with such \
             sectors, or its partition table is not valid"
        ));
    }
    let part = part_of(path, format);
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&part);
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Error::refused(format!(
            "{} exists: another export writes it, or was killed; then remove it",
            part.display()
        )),
        _ => Error::io(format!("creating {}", part.display()), error),
    })?;
    target.state.is_written_to(&part);
    target.state.remove_if_incomplete();
    target.state.enter(Phase::Filling);
    target.state.expect(exported.total);
    progress.begin("exporting", exported.total);
    let written = match arguments {
        Some(arguments) => convert(&exported, &arguments, &part),
        None => write_frisbee(&exported, &file, target, progress),
    };
    let written = written.and_then(|()| {
        file.sync_all().context(|| format!("syncing {}", part.display()))?;
        if part == *path { Ok(()) } else { put_in_place(&part, path) }
    });
    written.map_err(|error| target.explain(error))?;
    target.state.enter(Phase::Complete);
    Ok(ExportReport { seconds: started.elapsed().as_secs_f64(), ..exported.report })
}

/// Where an image is written until it is complete: a part of one can look whole to other programs. A VMDK contains its own name, so it is
/// written under that.
fn part_of(path: &Path, format: Format) -> PathBuf {
    if format == Format::Vmdk {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// Gives the complete image its name, unless somebody has made a file of that name meanwhile. Durable on return.
fn put_in_place(part: &Path, path: &Path) -> Result<()> {
    let context = || format!("renaming {} to {}", part.display(), path.display());
    match rustix::fs::renameat_with(CWD, part, CWD, path, RenameFlags::NOREPLACE) {
        // Not all filesystems know this flag.
        Err(Errno::INVAL) => {
            refuse_existing(path)?;
            std::fs::rename(part, path).context(context)?;
        }
        renamed => renamed.map_err(io::Error::from).context(context)?,
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).context(context)
}

/// The arguments of `qemu-img` for a format; `None` if it is written without it.
fn arguments(format: Format, compress: bool) -> Result<Option<Vec<&'static str>>> {
    let arguments = match (format, compress) {
        (Format::Qcow2, true) => vec!["-c", "-O", "qcow2"],
        (Format::Vmdk, true) => vec!["-O", "vmdk", "-o", "subformat=streamOptimized"],
        (Format::Qcow2, false) => vec!["-O", "qcow2"],
        (Format::Vmdk, false) => vec!["-O", "vmdk"],
        (Format::Vdi, false) => vec!["-O", "vdi"],
        (Format::Vhd, false) => vec!["-O", "vpc", "-o", "force_size=on"],
        (Format::Vhdx, false) => vec!["-O", "vhdx"],
        (Format::Ndz, false) => return Ok(None),
        (format, true) => {
            return Err(Error::refused(format!("{format} is not written compressed, only qcow2 and vmdk")));
        }
        (format, false) => {
            return Err(Error::refused(format!(
                "{format} is not written: `platter export VERSION -` writes a raw disk to a pipe"
            )));
        }
    };
    Ok(Some(arguments))
}

fn convert(exported: &Exported, arguments: &[&str], path: &Path) -> Result<()> {
    let disk = exported.recipe_disk.clone();
    let converted = while_served(DISK, disk.clone(), &Scratch::make()?, |uri| {
        let mut command = Command::new(PROGRAM);
        command.args(["convert", "-f", "raw"]).args(arguments).arg(uri).arg(path);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let output = command.output().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::missing(format!(
                "{PROGRAM} is not installed (Debian: qemu-utils); it writes all formats but raw and ndz"
            )),
            _ => Error::io(format!("running {PROGRAM}"), error),
        })?;
        let message = String::from_utf8_lossy(&output.stderr);
        let message: String = message.trim().chars().take(MESSAGE_MAX).collect();
        match output.status.success() {
            true => Ok(()),
            false => {
                Err(Error::new(ErrorKind::Io, format!("{PROGRAM} failed ({}): {message}", output.status)))
            }
        }
    });
    // The reason, if a block could not be read.
    match disk.failed.lock().take() {
        Some(error) => Err(error),
        None => converted,
    }
}

fn write_frisbee(
    exported: &Exported,
    file: &File,
    target: &TargetRequest,
    progress: &dyn Progress,
) -> Result<()> {
    let mut image = BufWriter::new(file);
    let advance = |bytes| {
        target.state.advance(bytes);
        progress.advance(bytes);
    };
    platter_formats::write_ndz(&*exported.recipe_disk, &exported.kept, &mut image, &advance)?;
    image.flush().context(|| "writing the last chunk".to_owned())
}

/// Writes this version byte by byte to a stream, such as a pipe; free space as zeros.
///
/// # Errors
/// `Missing` or `Corrupt` when the store is damaged; `Io`. The stream has then only a part of the disk.
pub fn export_stream(
    request: &ExportRequest,
    stream: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<ExportReport> {
    let started = Instant::now();
    let exported = Exported::open(request, "-")?;
    let length = exported.report.disk_bytes;
    progress.begin("exporting", length);
    let mut piece = vec![0; PIECE as usize];
    for offset in (0..length).step_by(PIECE as usize) {
        let bytes = &mut piece[..PIECE.min(length - offset) as usize];
        exported.recipe_disk.read(bytes, offset)?;
        stream
            .write_all(bytes)
            .context(|| format!("writing the bytes of the disk from offset {offset} on"))?;
        progress.advance(bytes.len() as u64);
    }
    stream.flush().context(|| "writing the end of the disk".to_owned())?;
    Ok(ExportReport { seconds: started.elapsed().as_secs_f64(), ..exported.report })
}

/// A disk that keeps the first error, because a client over NBD learns only that there was one.
struct Reporting {
    disk: RecipeDisk,
    sector_size: u32,
    failed: Mutex<Option<Error>>,
}

impl BlockDevice for Reporting {
    fn length(&self) -> u64 {
        self.disk.length()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.disk.read(buffer, offset).inspect_err(|error| {
            let mut failed = self.failed.lock();
            failed.get_or_insert_with(|| Error::from_messages(error.kind(), error.messages()));
        })
    }

    fn is_near(&self, range: Extent) -> Option<bool> {
        self.disk.is_near(range)
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        self.disk.extents(range, visit)
    }
}

impl DiskRead for Reporting {
    fn length(&self) -> u64 {
        self.disk.length()
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read(buffer, offset).map_err(io::Error::other)
    }
}
