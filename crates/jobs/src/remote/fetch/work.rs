//! The threads that ask: each has one request at a time, and verifies what comes before anybody sees it.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cell::Cell;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use platter_image::frame::stream::{FrameStreamReader, FramesRequest};
use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::{BlockId, Error, IoContext, Kind, Result, Score};

use super::queue::Key;
use super::state::{Look, Next, Request, State};
use crate::node::{Asking, NodeCache};
use crate::remote::client::Client;

/// Threads of one source: for requests ahead, and some for those that somebody waits for.
const THREADS_MAX: usize = 10;
/// A frame must have come so long after the one before it, or after the request was answered.
const FRAME_TIME_MAX: Duration = Duration::from_secs(60);

/// What a source and its threads share.
pub(super) struct Shared {
    client: Arc<Client>,
    wish: Wish,
    /// Where everything goes that comes.
    cache: Option<Arc<NodeCache>>,
    started: Instant,
    state: Mutex<State>,
    changed: Condvar,
    threads: Mutex<Threads>,
}

/// What all requests of a source say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) score: Score,
    /// Only what is asked for is to come.
    pub(super) exact: bool,
}

#[derive(Default)]
struct Threads {
    running: usize,
    idle: usize,
}

impl Shared {
    pub(super) fn new(
        client: Arc<Client>,
        wish: Wish,
        state: State,
        cache: Option<Arc<NodeCache>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            wish,
            cache,
            started: Instant::now(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            threads: Mutex::default(),
        })
    }

    /// Whether everything that comes goes to a cache.
    pub(super) fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Looks for something, and sees to it that it is asked for.
    ///
    /// # Errors
    /// `Io` when no thread can be started.
    pub(super) fn look(self: &Arc<Self>, key: Key) -> Result<Look> {
        let look = self.lock().look(key);
        if let Look::OnItsWay(_) = look {
            self.wake()?;
        }
        Ok(look)
    }

    /// The same for what will be wanted; a thread that cannot be started is told to whoever waits.
    pub(super) fn hint(self: &Arc<Self>, kind: Kind, ids: &[BlockId]) {
        self.lock().hint(kind, ids);
        let _ = self.wake();
    }

    /// Ends the threads, each as soon as what it has asked for says something.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock()
    }

    /// Wakes a thread that has nothing to do, or starts one.
    fn wake(self: &Arc<Self>) -> Result<()> {
        self.changed.notify_one();
        let mut threads = self.threads();
        if threads.idle > 0 || threads.running == THREADS_MAX {
            return Ok(());
        }
        let shared = self.clone();
        match thread::Builder::new().name("fetch".to_owned()).spawn(move || shared.work()) {
            Ok(_) => threads.running += 1,
            // Others do it, if there are others.
            Err(error) if threads.running == 0 => {
                return Err(error).context(|| "starting a thread that fetches".to_owned());
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn work(self: &Arc<Self>) {
        while let Some((mut request, asking)) = self.next_request() {
            // There may be more to ask for; without a thread, whoever waits has started one.
            let _ = self.wake();
            let asked = catch_unwind(AssertUnwindSafe(|| self.ask(&mut request)));
            // Whoever waits for it must not wait for ever.
            let result = asked.unwrap_or_else(|_| Err(Error::bug("a thread that fetches panicked")));
            drop(asking);
            self.lock().end(request, result, self.now());
            self.changed.notify_all();
        }
        self.threads().running -= 1;
    }

    /// The next request to be sent, and that it is under way, for other sources of the same cache.
    fn next_request(&self) -> Option<(Request, Option<Asking>)> {
        let mut state = self.lock();
        loop {
            let time = match state.next(self.now()) {
                Next::Ask(mut request) => {
                    let narrow = |comes: &dyn Fn(&BlockId) -> bool| state.narrow(&mut request, comes);
                    let asking = self.cache.as_ref().map(|cache| cache.ask(narrow));
                    if !request.ids.is_empty() {
                        return Some((request, asking));
                    }
                    state.end(request, Ok(Vec::new()), self.now());
                    continue;
                }
                Next::End => return None,
                Next::Wait(time) => time,
            };
            self.threads().idle += 1;
            match time {
                None => self.changed.wait(&mut state),
                Some(time) => drop(self.changed.wait_for(&mut state, time)),
            }
            self.threads().idle -= 1;
        }
    }

    /// Sends a request and takes its frames; gives what was not found.
    fn ask(self: &Arc<Self>, request: &mut Request) -> Result<Vec<BlockId>> {
        let Wish { score, exact } = self.wish;
        let asked = FramesRequest { score, kind: request.kind, exact, ids: request.ids.clone() };
        fetch(&self.client, &asked, &mut |header, stored| {
            // Before anybody is told: also what was only hinted at and nobody waits for stays.
            let cache = self.cache.as_ref().filter(|_| request.wants(header));
            let is_kept = cache.is_some_and(|cache| cache.keep(stored, header));
            let mut state = self.lock();
            if state.closed {
                return Err(Error::refused("nobody wants it any more"));
            }
            state.take(request, header, stored, is_kept, self.now())?;
            drop(state);
            // There may be room for another request now.
            let _ = self.wake();
            Ok(())
        })
    }
}

/// Sends one request and takes its frames as they come, decoded and hashed; gives what was not found.
///
/// # Errors
/// What the origin says; `Transient` when it is away; `Corrupt` when it lies; what `take` says.
pub(in crate::remote) fn fetch(
    client: &Client,
    asked: &FramesRequest,
    take: &mut dyn FnMut(&FrameHeader, &[u8]) -> Result<()>,
) -> Result<Vec<BlockId>> {
    let stream = client.post_for_stream("/api/v1/frames", &asked.to_bytes())?;
    let until = Rc::new(Cell::new(Instant::now() + FRAME_TIME_MAX));
    let mut limited = Limited { stream, until: until.clone() };
    let mut reader = FrameStreamReader::new(&mut limited, asked.ids.len());
    let mut decoder = FrameDecoder::new()?;
    let mut stored = Vec::new();
    let within = |error: Error| error.within(format!("{}: fetching frames", client.name()));
    while reader.next_frame(&mut stored).map_err(within)?.is_some() {
        // Before anything of it is given out, whoever sent it (design: verify).
        let (header, _) = decoder.decode(&stored, Verify::Hashes).map_err(within)?;
        take(&header, &stored).map_err(within)?;
        until.set(Instant::now() + FRAME_TIME_MAX);
    }
    let not_found = reader.not_found().unwrap_or_default().to_vec();
    // Only a connection whose answer was read to its end is used again, and to open one takes several times as long as the
    // way is. What comes of it does not matter.
    let _ = limited.read(&mut [0]);
    Ok(not_found)
}

/// A stream whose reads fail after some time: one that comes a byte now and then is as good as silent.
struct Limited<R> {
    stream: R,
    until: Rc<Cell<Instant>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() > self.until.get() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it comes too slowly"));
        }
        self.stream.read(buffer)
    }
}
