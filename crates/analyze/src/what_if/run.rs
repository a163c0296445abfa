//! Reads the disks of the images once for all plans that cut streams, and once for each plan that captures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;
use platter_fetch::{OpenStore, memory_cache};
use platter_image::page::State;
use platter_image::recipe::Recipe;
use platter_image::{Error, Extent, IoContext, Result, Score};
use platter_vdisk::RecipeDisk;

use super::capture::Capturer;
use super::counter::{Counted, Counter};
use super::disk::ImageDisk;
use super::plan::{BLOCK_BYTES_MAX, Cut, Plan, WhatIf};
use crate::progress::Progress;

/// Memory for decoded blocks, in bytes.
const CACHE_BYTES: usize = 64 << 20;
/// Data is read in windows of this length; one without data is not read.
const WINDOW: u64 = 4 << 20;
/// Windows that are read ahead.
const WINDOWS_TOGETHER: usize = 4;

const _: () = assert!(WINDOW.is_multiple_of(BLOCK_BYTES_MAX));

/// An image whose data is read.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) score: Score,
    /// A partition; `None` for the whole disk.
    pub(crate) range: Option<Extent>,
    /// Its data, in bytes, as far as it is known.
    pub(crate) data_bytes: u64,
}

/// What is counted and compressed for all plans, in their order, and the damage that was met, in sentences.
pub(crate) struct Predicted {
    pub(crate) plans: Vec<Counted>,
    pub(crate) damage: Vec<String>,
}

/// Counts and compresses the data of images, in about `memory_bytes` bytes of memory.
///
/// # Errors
/// `Refused` when the memory does not suffice for a plan that captures; errors that are no damage.
pub(crate) fn predict(
    store: &OpenStore,
    subjects: &[Subject],
    what_if: &WhatIf,
    (memory_bytes, threads): (u64, usize),
    progress: &dyn Progress,
) -> Result<Predicted> {
    let bytes_max = memory_bytes / what_if.plans.len().max(1) as u64;
    let all: u64 = subjects.iter().map(|subject| subject.data_bytes).sum();
    let (captured, streamed): (Vec<Plan>, Vec<Plan>) =
        what_if.plans.iter().partition(|plan| plan.cut == Cut::Files);
    let damage = Mutex::new(Vec::new());
    let note = |subject: &Subject, what: &str| {
        let text = format!("{}: {what}", subject.name);
        let mut damage = damage.lock();
        if !damage.contains(&text) {
            damage.push(text);
        }
    };
    let mut counters: Vec<Counter> =
        streamed.iter().map(|plan| Counter::new(*plan, subjects.len(), bytes_max)).collect::<Result<_>>()?;
    if !counters.is_empty() {
        progress.begin("reading data", all);
        for subject in subjects {
            let read = Opened::new(store, subject)
                .and_then(|opened| opened.stream(&mut counters, threads, progress));
            told(read, &mut |what| note(subject, what), &subject.name)?;
            counters.iter_mut().try_for_each(Counter::end_image)?;
        }
    }
    let mut of_captures = Vec::new();
    for plan in captured {
        let mut capturer = Capturer::new(plan, subjects.len(), store.domain()?, threads, bytes_max);
        progress.begin("cutting along files", all);
        for subject in subjects {
            let mut advance = |bytes| progress.advance(bytes);
            let read =
                Opened::new(store, subject).and_then(|opened| opened.capture(&mut capturer, &mut advance));
            told(read, &mut |what| note(subject, what), &subject.name)?;
            capturer.end_image();
        }
        of_captures.push(capturer.finish());
    }
    let (mut streamed, mut captured) = (counters.into_iter().map(Counter::finish), of_captures.into_iter());
    let next = |plan: &Plan| if plan.cut == Cut::Files { captured.next() } else { streamed.next() };
    let plans = what_if.plans.iter().filter_map(next).collect();
    Ok(Predicted { plans, damage: damage.into_inner() })
}

/// Notes damage; returns other errors.
fn told(read: Result<Option<String>>, note: &mut dyn FnMut(&str), name: &str) -> Result<()> {
    match read {
        Ok(damage) => damage.iter().for_each(|what| note(what)),
        Err(error) if error.is_data_loss() => note(&error.with_causes()),
        Err(error) => return Err(error.within(name)),
    }
    Ok(())
}

/// An image that is read.
struct Opened {
    disk: ImageDisk,
    /// The windows that have data.
    windows: Vec<Extent>,
    /// Bytes whose recipe cannot be read, and the first reason.
    lost: (u64, Option<String>),
}

impl Opened {
    fn new(store: &OpenStore, subject: &Subject) -> Result<Self> {
        let source = store.source(subject.score, Default::default());
        let recipe = Recipe::open(subject.score, &*source)?;
        let recipe = match subject.range {
            Some(range) => recipe.of_part(range),
            None => recipe,
        };
        let root = *recipe.root();
        let all = Extent::new(0, root.disk_length);
        let lost_bytes = AtomicU64::new(0);
        let damage = Mutex::new(None);
        let on_lost = |lost: Extent, error: &Error| {
            lost_bytes.fetch_add(lost.length, Ordering::Relaxed);
            damage.lock().get_or_insert_with(|| error.with_causes());
        };
        let (mut windows, mut next_window) = (Vec::new(), 0);
        for entry in recipe.readable_entries(all, &on_lost) {
            let entry = entry?;
            if !matches!(entry.state, State::Data { .. }) {
                continue;
            }
            let end = entry.extent.end().div_ceil(WINDOW);
            for window in next_window.max(entry.extent.offset / WINDOW)..end {
                windows.extend(Extent::new(window * WINDOW, WINDOW).intersect(&all));
            }
            next_window = next_window.max(end);
        }
        let disk = RecipeDisk::open(subject.score, source.clone(), memory_cache(CACHE_BYTES)?)?;
        let disk = ImageDisk::new(disk, subject.range, root.sector_size);
        Ok(Self { disk, windows, lost: (lost_bytes.into_inner(), damage.into_inner()) })
    }

    /// Adds the data to all counters. Returns the damage that was met.
    fn stream(
        self,
        counters: &mut [Counter],
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Option<String>> {
        let share = counters.len().div_ceil(threads.max(1)).max(1);
        let mut groups = self.windows.chunks(WINDOWS_TOGETHER);
        let mut next = self.read(groups.next())?;
        while !next.is_empty() {
            let read = &std::mem::take(&mut next);
            let following = groups.next();
            next = thread::scope(|scope| {
                let start = || thread::Builder::new();
                let starting = || "starting a thread".to_owned();
                let reader = start().spawn_scoped(scope, || self.read(following)).context(starting)?;
                let count = |own: &mut [Counter]| own.iter_mut().try_for_each(|counter| add(counter, read));
                let workers: Vec<_> = counters
                    .chunks_mut(share)
                    .map(|own| start().spawn_scoped(scope, move || count(own)).context(starting))
                    .collect::<Result<_>>()?;
                let panicked = || Error::bug("a thread of the analysis panicked");
                for worker in workers {
                    worker.join().unwrap_or_else(|_| Err(panicked()))?;
                }
                reader.join().unwrap_or_else(|_| Err(panicked()))
            })?;
            progress.advance(read.iter().map(|(_, data)| data.len() as u64).sum());
        }
        Ok(self.damage())
    }

    fn read(&self, windows: Option<&[Extent]>) -> Result<Vec<(u64, Vec<u8>)>> {
        let windows = windows.unwrap_or_default().iter();
        let read = windows.map(|window| {
            let mut data = vec![0; window.length as usize];
            self.disk.read(&mut data, window.offset)?;
            Ok((window.offset, data))
        });
        read.collect()
    }

    fn capture(self, capturer: &mut Capturer, advance: &mut dyn FnMut(u64)) -> Result<Option<String>> {
        capturer.add(&self.disk, advance)?;
        Ok(self.damage())
    }

    fn damage(&self) -> Option<String> {
        let (in_recipe, of_recipe) = &self.lost;
        let (in_data, of_data) = self.disk.lost();
        let damage = of_recipe.as_ref().or(of_data.as_ref())?;
        Some(format!("{} bytes cannot be read, and count as zeros: {damage}", in_recipe + in_data))
    }
}

fn add(counter: &mut Counter, read: &[(u64, Vec<u8>)]) -> Result<()> {
    read.iter().try_for_each(|(offset, data)| counter.add(*offset, data))
}
