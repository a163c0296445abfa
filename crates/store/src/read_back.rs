//! Reads packs back: each frame is read, decoded and hashed. Checks and scrubs share this.
//!
//! One thread at a time reads, in the order of the packs and of their frames, so the disk sees sequential reads. Several threads
//! verify what was read. The caller gets the results in order. Memory is bounded: each thread holds one piece of at most
//! [`PIECE_BYTES`] and one frame, and at most twice as many pieces as threads wait for the caller.
//!
//! A frame that fails is read a second time before it counts as bad, unless it is known to be bad.

use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::{BlockId, Domain, Error, IoContext, Kind, Result};
use platter_pack::{FrameRow, PackDirectory, read_directory, read_row, read_row_header};
use platter_vfs::{OpenMode, VfsFile};

use crate::catalog::PackRow;
use crate::health::Condition;
use crate::quarantine::condition_of;
use crate::store::Shared;

/// Bytes of frames that are read together.
const PIECE_BYTES: u64 = 1 << 20;
/// Maximum number of frames that are read together.
const PIECE_FRAMES: usize = 512;
/// Maximum number of threads.
const THREADS_MAX: usize = 32;

/// How much of each frame is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The headers. Version records are read in full, because their contents matter.
    Headers,
    /// Everything, from the disk and not from the cache in memory.
    Contents,
}

/// A pack to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackToRead {
    pub(crate) row: PackRow,
    pub(crate) depth: Depth,
}

/// A pack that was opened.
#[derive(Debug)]
pub(crate) struct OpenedPack {
    pub(crate) row: PackRow,
    pub(crate) depth: Depth,
    pub(crate) file: Box<dyn VfsFile>,
    pub(crate) directory: PackDirectory,
}

/// A frame that failed.
#[derive(Debug)]
pub(crate) struct BadFrame {
    pub(crate) error: Error,
    /// The result of a second read; `None` if the frame was known to be bad, or the error says nothing about its bytes.
    pub(crate) condition: Option<Condition>,
}

/// Consecutive frames of a pack.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) pack: Arc<OpenedPack>,
    frames: Range<usize>,
    first_block: usize,
    /// The result for each frame.
    results: Vec<std::result::Result<FrameHeader, BadFrame>>,
}

/// A report to the caller, in order.
#[derive(Debug)]
pub(crate) enum Step {
    /// The pack could not be opened.
    Failed(PackRow, Error),
    /// The pack was opened; its pieces follow.
    Opened(Arc<OpenedPack>),
    /// The next frames of the pack that was opened last.
    Read(Piece),
    /// All frames of the pack were read.
    Ended(Arc<OpenedPack>),
}

impl Piece {
    /// Returns the frames with the ids of their blocks and their results.
    pub(crate) fn into_frames(
        self,
        mut each: impl FnMut(&FrameRow, &[BlockId], std::result::Result<FrameHeader, BadFrame>),
    ) {
        let directory = &self.pack.directory;
        for ((row, ids), result) in frames(directory, self.frames, self.first_block).zip(self.results) {
            each(row, ids, result);
        }
    }
}

fn frames(
    directory: &PackDirectory,
    frames: Range<usize>,
    mut first_block: usize,
) -> impl Iterator<Item = (&FrameRow, &[BlockId])> {
    directory.frames[frames].iter().map(move |row| {
        let ids = &directory.ids[first_block..first_block + row.blocks as usize];
        first_block += row.blocks as usize;
        (row, ids)
    })
}

/// Reads packs back with `threads` threads. Calls `each` with the results, in order; an error ends the reading.
///
/// # Errors
/// Those of `each`; what this process lacks to read a pack ([`Error::is_of_process`]); `Bug` when a decoder cannot be made.
pub(crate) fn read_back(
    shared: &Shared,
    packs: impl Iterator<Item = PackToRead> + Send,
    threads: usize,
    mut each: impl FnMut(Step) -> Result<()>,
) -> Result<()> {
    let threads = threads.clamp(1, THREADS_MAX);
    let (order_out, order) = sync_channel(2 * threads);
    let reader = Mutex::new(Reader { shared, packs, current: None, order_out: Some(order_out) });
    thread::scope(|scope| {
        for number in 0..threads {
            let started = thread::Builder::new().spawn_scoped(scope, || verify_pieces(&reader));
            match started.context(|| "starting a thread".into()) {
                Err(error) if number == 0 => return Err(error),
                // Those that could be had suffice.
                Err(_) => break,
                Ok(_) => {}
            }
        }
        // Moved, so that the threads end when the caller returns early.
        let order: Receiver<Receiver<Result<Step>>> = order;
        for result in order {
            // A thread that ended without a result has panicked, and the scope passes that on.
            let Ok(step) = result.recv() else { break };
            match step? {
                Step::Failed(_, error) if error.is_of_process() => return Err(error),
                step => each(step)?,
            }
        }
        Ok(())
    })
}

/// Number of threads for reading back as fast as possible.
pub(crate) fn all_cores() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Reads the next piece under the lock and verifies it after that, until everything was read.
fn verify_pieces<I: Iterator<Item = PackToRead>>(reader: &Mutex<Reader<'_, I>>) {
    let mut buffers = Vec::new();
    let mut decoder = None;
    loop {
        let (shared, out, unverified) = {
            let mut reader = reader.lock();
            if reader.order_out.is_none() {
                return;
            }
            let Some(unverified) = reader.next(&mut buffers) else {
                reader.order_out = None;
                return;
            };
            let (out, result) = sync_channel(1);
            // The place in the order is taken under the lock. If nobody waits any more, there is nothing to do.
            let is_wanted = reader.order_out.as_ref().is_some_and(|order| order.send(result).is_ok());
            if !is_wanted {
                return;
            }
            (reader.shared, out, unverified)
        };
        let step = match unverified {
            Unverified::Step(step) => Ok(step),
            Unverified::Piece(piece) => verify(shared, piece, &buffers, &mut decoder).map(Step::Read),
        };
        // Fails only if nobody waits any more.
        let _ = out.send(step);
    }
}

/// An item from the reader: a step, or a piece whose bytes are in the buffers.
enum Unverified {
    Step(Step),
    Piece(UnverifiedPiece),
}

struct UnverifiedPiece {
    pack: Arc<OpenedPack>,
    frames: Range<usize>,
    first_block: usize,
    read: Vec<Result<()>>,
}

/// The sequential reader.
struct Reader<'a, I> {
    shared: &'a Shared,
    packs: I,
    current: Option<Cursor>,
    /// Where the places in the order are announced; `None` after the end.
    order_out: Option<SyncSender<Receiver<Result<Step>>>>,
}

/// The place in a pack up to which was read.
struct Cursor {
    pack: Arc<OpenedPack>,
    frame: usize,
    block: usize,
}

impl<I: Iterator<Item = PackToRead>> Reader<'_, I> {
    fn next(&mut self, buffers: &mut Vec<Vec<u8>>) -> Option<Unverified> {
        let Some(cursor) = &mut self.current else {
            let PackToRead { row, depth } = self.packs.next()?;
            return Some(Unverified::Step(match open(self.shared, &row, depth) {
                Ok(pack) => {
                    let pack = Arc::new(pack);
                    self.current = Some(Cursor { pack: Arc::clone(&pack), frame: 0, block: 0 });
                    Step::Opened(pack)
                }
                Err(error) => Step::Failed(row, error),
            }));
        };
        if cursor.frame == cursor.pack.directory.frames() {
            let pack = Arc::clone(&cursor.pack);
            self.current = None;
            return Some(Unverified::Step(Step::Ended(pack)));
        }
        Some(Unverified::Piece(cursor.read(buffers)))
    }
}

impl Cursor {
    /// Reads the next piece into the buffers, one for each frame.
    fn read(&mut self, buffers: &mut Vec<Vec<u8>>) -> UnverifiedPiece {
        let (pack, first, first_block) = (Arc::clone(&self.pack), self.frame, self.block);
        let rows = &pack.directory.frames;
        let start = rows[first].offset;
        let mut read = Vec::new();
        for (row, ids) in frames(&pack.directory, first..rows.len(), first_block) {
            let is_full = row.end() - start > PIECE_BYTES || read.len() == PIECE_FRAMES;
            if is_full && !read.is_empty() {
                break;
            }
            if buffers.len() == read.len() {
                buffers.push(Vec::new());
            }
            read.push(read_at_depth(&*pack.file, row, ids, pack.depth, &mut buffers[read.len()]));
            self.block += ids.len();
        }
        self.frame += read.len();
        UnverifiedPiece { pack, frames: first..self.frame, first_block, read }
    }
}

/// Opens a pack and reads its directory.
fn open(shared: &Shared, row: &PackRow, depth: Depth) -> Result<OpenedPack> {
    let path = shared.place.pack(row.id);
    let file = shared.place.vfs().open(&path, OpenMode::Read);
    let file = file.context(|| format!("opening {}", path.display()))?;
    let length = file.length().context(|| "reading its length".into())?;
    if length != row.length {
        return Err(Error::corrupt(format!(
            "the pack has {length} bytes, but the catalog lists {}",
            row.length
        )));
    }
    if depth == Depth::Contents {
        file.drop_cache().context(|| format!("preparing to read {}", path.display()))?;
    }
    let directory = read_directory(&*file, row.id, shared.id)?;
    Ok(OpenedPack { row: *row, depth, file, directory })
}

fn is_read_whole(kind: Kind, depth: Depth) -> bool {
    depth == Depth::Contents || kind == Kind::Version
}

fn read_at_depth(
    file: &dyn VfsFile,
    row: &FrameRow,
    ids: &[BlockId],
    depth: Depth,
    stored: &mut Vec<u8>,
) -> Result<()> {
    match is_read_whole(row.kind, depth) {
        true => read_row(file, row, ids, stored),
        false => read_row_header(file, row, ids, stored),
    }
}

/// Verifies the frames of a piece; reads those that fail again.
fn verify(
    shared: &Shared,
    piece: UnverifiedPiece,
    buffers: &[Vec<u8>],
    decoder: &mut Option<FrameDecoder>,
) -> Result<Piece> {
    let decoder = match decoder {
        Some(decoder) => decoder,
        None => decoder.insert(FrameDecoder::new()?),
    };
    let UnverifiedPiece { pack, frames: range, first_block, read } = piece;
    let mut results = Vec::with_capacity(read.len());
    let rows = frames(&pack.directory, range.clone(), first_block);
    for (((row, ids), read), stored) in rows.zip(read).zip(buffers) {
        let first = read.and_then(|()| verify_frame(row, (pack.depth, shared.domain), stored, decoder));
        // The run fails: nothing was learned about the frame.
        let first = match first {
            Err(error) if error.is_of_process() => {
                return Err(error.within(format!("reading pack {}", pack.row.id)));
            }
            first => first,
        };
        results.push(first.or_else(|error| {
            let is_known = shared.health().bad(pack.row.id, row.offset).is_some();
            let Some(condition) = condition_of(&error).filter(|_| !is_known) else {
                return Err(BadFrame { error, condition: None });
            };
            let mut stored = Vec::new();
            read_at_depth(&*pack.file, row, ids, pack.depth, &mut stored)
                .and_then(|()| verify_frame(row, (pack.depth, shared.domain), &stored, decoder))
                .map_err(|_| BadFrame { error, condition: Some(condition) })
        }));
    }
    Ok(Piece { pack, frames: range, first_block, results })
}

/// Checks a frame against its row in the footer. The checksum of the frame's header covers the ids, which the footer stores.
fn verify_frame(
    row: &FrameRow,
    (depth, domain): (Depth, Domain),
    stored: &[u8],
    decoder: &mut FrameDecoder,
) -> Result<FrameHeader> {
    let is_locked = !domain.is_open() && matches!(row.kind, Kind::Data | Kind::Page);
    let header = match is_read_whole(row.kind, depth) {
        // Without the key, the checksum of what is stored is all that can be verified.
        true if is_locked => {
            let header = FrameHeader::parse(stored)?;
            header.payload(stored)?;
            header
        }
        true => decoder.decode(stored, Verify::Hashes)?.0,
        false => FrameHeader::parse(stored)?,
    };
    if header.kind == row.kind && header.raw_length == row.raw_length {
        Ok(header)
    } else {
        Err(Error::corrupt("the frame differs from what its pack's footer lists"))
    }
}
