//! Compares two versions: opens them, compares the recipes, then partition after partition.

use std::time::Instant;

use platter_disk::survey::read_table;
use platter_filesystem::{FileTree, READABLE, filesystem_name, open_files, probe};
use platter_image::page::State;
use platter_image::recipe::{self, Difference, Differences, Recipe};
use platter_image::{DiskRead, Error, ErrorKind, Extent, Extents, Result};
use platter_vdisk::{
    BlockCache, CacheOptions, DiskView, RecipeDisk, Source, advise, is_store_damage, with_advice,
};

use super::boot_code;
use super::contents::Side;
use super::place::{DiffPlace, Places};
use super::report::{DiffEvent, DiffReport, PartitionDifference};
use super::table::{self, Pair};
use super::walk::{Walk, told};
use crate::install::title;
use platter_fetch::{OpenStore, StoreLocation};

/// Memory for decoded blocks, in bytes.
const CACHE_BYTES: u64 = 256 << 20;
/// Most changed ranges kept for comparing files: 64 MiB of memory. If there are more, ranges near each other are
/// merged.
const CHANGED_MAX: usize = 1 << 22;
/// The first distance for merging, in bytes.
const NEAR: u64 = 4096;

/// The request to compare two versions.
#[derive(Clone, Debug)]
pub struct DiffRequest {
    /// The store.
    pub store: StoreLocation,
    /// The first version: `NAME`, `NAME@7` or a score.
    pub a: String,
    /// The second.
    pub b: String,
    /// A partition of each, or files or directories in them, instead of the whole disks.
    pub places: Option<[DiffPlace; 2]>,
    /// Compare blocks only, and list every range that differs.
    pub blocks: bool,
}

/// Compares two versions, and reports differences as they are found.
///
/// # Errors
/// `Missing` when there is no such version; `Missing` or `Corrupt` when the store is damaged; `Io`.
pub fn diff(request: &DiffRequest, on_event: &mut dyn FnMut(&DiffEvent)) -> Result<DiffReport> {
    let started = Instant::now();
    let store = OpenStore::open_reader(&request.store)?;
    store.domain()?.check_open()?;
    let (resolved_a, resolved_b) = (store.resolve(&request.a)?, store.resolve(&request.b)?);
    let source_a = store.source(resolved_a.score, Default::default());
    let source_b = store.source(resolved_b.score, Default::default());
    let a = Recipe::open(resolved_a.score, &*source_a)?;
    let b = Recipe::open(resolved_b.score, &*source_b)?;
    let titles = [title(&resolved_a), title(&resolved_b)];
    let mut compared = Compared::default();
    if a.score() != b.score() || request.places.is_some() {
        let cache_options = CacheOptions { block_bytes_max: CACHE_BYTES, ..CacheOptions::default() };
        let cache = BlockCache::new(cache_options)?;
        let disk_a = RecipeDisk::open(a.score(), source_a.clone(), cache.clone())?;
        let disk_b = RecipeDisk::open(b.score(), source_b.clone(), cache)?;
        let view_a = DiskView { device: &disk_a, sector_size: a.root().sector_size };
        let view_b = DiskView { device: &disk_b, sector_size: b.root().sector_size };
        let disks = Disks { titles: &titles, a: &view_a, b: &view_b, recipe_a: &a, recipe_b: &b };
        compared = disks.compare(request, on_event)?;
    }
    let new = match request.places {
        Some(_) => None,
        None => Some(recipe::new_blocks(&a, &b)?),
    };
    let Compared { partitions, notes, sums } = compared;
    let sum = |count: fn(&PartitionDifference) -> u64| partitions.iter().map(count).sum();
    let differs = if request.blocks {
        sums != Differences::default()
    } else {
        !notes.is_empty() || partitions.iter().any(|partition| partition.differs)
    };
    let places = request.places.as_ref();
    let [name_a, name_b] = titles;
    Ok(DiffReport {
        a: places.map_or_else(|| name_a.clone(), |[place, _]| format!("{name_a}{place}")),
        b: places.map_or_else(|| name_b.clone(), |[_, place]| format!("{name_b}{place}")),
        score_a: a.score().to_string(),
        score_b: b.score().to_string(),
        differs,
        unreadable: sum(|partition| partition.unreadable),
        changed_bytes: sums.changed,
        only_a_bytes: sums.only_a,
        only_b_bytes: sums.only_b,
        freed_bytes: sums.freed,
        new_blocks: new.map(|new| new.blocks),
        new_bytes: new.map(|new| new.bytes),
        added: sum(|partition| partition.added),
        removed: sum(|partition| partition.removed),
        modified: sum(|partition| partition.modified),
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// What was found.
#[derive(Default)]
struct Compared {
    partitions: Vec<PartitionDifference>,
    notes: Vec<String>,
    sums: Differences,
}

fn blocks_event(difference: &Difference) -> DiffEvent {
    let name = |state| match state {
        State::Data { .. } => "data",
        State::Zero => "zero",
        State::Free => "free",
    };
    DiffEvent::Blocks {
        offset: difference.extent.offset,
        length: difference.extent.length,
        a: name(difference.a),
        b: name(difference.b),
    }
}

/// Differences between the recipes, by partition.
struct Areas {
    /// Partitions at the same place on both disks, ascending, with their differences.
    inside: Vec<(Pair, Differences)>,
    /// Differences outside of them.
    outside: Differences,
    /// Ranges with different data.
    changed: Vec<Extent>,
    /// Ranges closer to each other than this are merged.
    near: u64,
}

impl Areas {
    fn new(pairs: &[Pair]) -> Self {
        let in_place = pairs.iter().filter(|pair| pair.is_in_place());
        let mut inside: Vec<_> = in_place.map(|pair| (*pair, Differences::default())).collect();
        inside.sort_unstable_by_key(|(pair, _)| pair.a);
        Self { inside, outside: Differences::default(), changed: Vec::new(), near: 0 }
    }

    fn add(&mut self, difference: &Difference) {
        let mut rest = difference.extent;
        let first = self.inside.partition_point(|(pair, _)| pair.a.end() <= rest.offset);
        for (pair, sums) in &mut self.inside[first..] {
            let Some(part) = pair.a.intersect(&rest) else { break };
            let before = Extent::between(rest.offset, part.offset);
            self.outside.add(&Difference { extent: before, ..*difference });
            sums.add(&Difference { extent: part, ..*difference });
            rest = Extent::between(part.end(), rest.end());
        }
        self.outside.add(&Difference { extent: rest, ..*difference });
        let is_data = |state| matches!(state, State::Data { .. });
        if is_data(difference.a) || is_data(difference.b) {
            self.push(difference.extent);
        }
    }

    fn push(&mut self, extent: Extent) {
        match self.changed.last_mut() {
            Some(last) if extent.offset - last.end() <= self.near => last.length = extent.end() - last.offset,
            _ => self.changed.push(extent),
        }
        if self.changed.len() > CHANGED_MAX {
            self.near = (self.near * 4).max(NEAR);
            let apart = std::mem::take(&mut self.changed);
            for extent in apart {
                self.push(extent);
            }
        }
    }
}

/// The files of a filesystem, or why they cannot be read; `None` if files of its kind cannot be read.
type OpenedFiles<'a> = Option<Result<Box<dyn FileTree + 'a>>>;

/// Two versions, as disks.
struct Disks<'a> {
    /// Their names, for errors.
    titles: &'a [String; 2],
    a: &'a dyn DiskRead,
    b: &'a dyn DiskRead,
    recipe_a: &'a Recipe<&'a dyn Source>,
    recipe_b: &'a Recipe<&'a dyn Source>,
}

impl<'a> Disks<'a> {
    fn compare(&self, request: &DiffRequest, on_event: &mut dyn FnMut(&DiffEvent)) -> Result<Compared> {
        let places = request.places.as_ref();
        let places = places.map(|places| Places::find(places, [self.a, self.b], self.titles)).transpose()?;
        let (pairs, notes) = match &places {
            Some(places) => (vec![places.pair], Vec::new()),
            None => self.tables()?,
        };
        if let Some(places) = places.as_ref().filter(|_| request.blocks) {
            places.check_blocks()?;
        }
        notes.iter().for_each(|note| on_event(&DiffEvent::Note { note: note.clone() }));
        let mut areas = Areas::new(&pairs);
        let mut sums = recipe::diff(self.recipe_a, self.recipe_b, &mut |difference| {
            areas.add(difference);
            let inside = match &places {
                Some(places) => places.pair.a.intersect(&difference.extent),
                None => Some(difference.extent),
            };
            if let Some(extent) = inside.filter(|_| request.blocks) {
                on_event(&blocks_event(&Difference { extent, ..*difference }));
            }
            Ok(())
        })?;
        if places.is_some() {
            areas.outside = Differences::default();
            sums = areas.inside.first().map_or_else(Differences::default, |(_, sums)| *sums);
        }
        let partitions = match request.blocks {
            true => Vec::new(),
            false => self.partitions((&pairs, places.as_ref()), areas, on_event)?,
        };
        Ok(Compared { partitions, notes, sums })
    }

    fn tables(&self) -> Result<(Vec<Pair>, Vec<String>)> {
        let (table_a, table_b) = (read_table(self.a)?, read_table(self.b)?);
        Ok(table::compare((&table_a, self.a.length()), (&table_b, self.b.length())))
    }

    fn partitions(
        &self,
        (pairs, places): (&[Pair], Option<&Places<'_>>),
        areas: Areas,
        on_event: &mut dyn FnMut(&DiffEvent),
    ) -> Result<Vec<PartitionDifference>> {
        let changed: Extents = areas.changed.into_iter().collect();
        let mut reports = Vec::new();
        for pair in pairs {
            let sums = areas.inside.iter().find(|(inside, _)| inside == pair).map(|(_, sums)| *sums);
            let report = self.partition_or_damage((pair, places), sums, &changed, on_event)?;
            on_event(&DiffEvent::Partition(report.clone()));
            reports.push(report);
        }
        if areas.outside.data() > 0 {
            let report = PartitionDifference {
                filesystem: "unallocated".to_owned(),
                changed_bytes: Some(areas.outside.data()),
                differs: true,
                ..PartitionDifference::default()
            };
            on_event(&DiffEvent::Partition(report.clone()));
            reports.push(report);
        }
        Ok(reports)
    }

    /// Compares a partition. If the store damaged it, the others are compared anyway.
    fn partition_or_damage(
        &self,
        (pair, places): (&Pair, Option<&Places<'_>>),
        sums: Option<Differences>,
        changed: &Extents,
        on_event: &mut dyn FnMut(&DiffEvent),
    ) -> Result<PartitionDifference> {
        let error = match self.partition((pair, places), sums, changed, on_event) {
            Err(error) if is_store_damage(&error) => error,
            compared => return compared,
        };
        let what =
            || pair.number.map_or_else(|| "the disk".to_owned(), |number| format!("partition {number}"));
        let changed_bytes = sums.map(|sums| sums.data());
        Ok(PartitionDifference {
            partition: pair.number,
            changed_bytes,
            unreadable: 1,
            // The same blocks are equal, also where they cannot be read.
            differs: changed_bytes != Some(0),
            notes: vec![format!("its files cannot be compared: {}", advise(error, what))],
            ..PartitionDifference::default()
        })
    }

    fn partition(
        &self,
        (pair, places): (&Pair, Option<&Places<'_>>),
        sums: Option<Differences>,
        changed: &Extents,
        on_event: &mut dyn FnMut(&DiffEvent),
    ) -> Result<PartitionDifference> {
        let (name_a, files_a) = self.open(0, pair.a)?;
        let (name_b, files_b) = self.open(1, pair.b)?;
        let mut report = PartitionDifference {
            partition: pair.number,
            filesystem: names_of(name_a, name_b),
            changed_bytes: sums.map(|sums| sums.data()),
            ..PartitionDifference::default()
        };
        if report.changed_bytes == Some(0) && places.is_none_or(Places::is_same_path) {
            report.by_files = files_a.is_some();
            return Ok(report);
        }
        if let (Some(a), Some(b)) = (files_a, files_b) {
            match (a, b) {
                (Ok(a), Ok(b)) => return self.files((pair, places), (a, b), changed, report, on_event),
                (Err(error), _) | (_, Err(error)) => report.notes.push(by_blocks(error)?),
            }
        }
        if places.is_some_and(|places| !places.are_partitions()) {
            return Err(Error::refused(match report.notes.pop() {
                Some(note) => note,
                None => format!("files can be compared only in {READABLE}: leave out the path"),
            }));
        }
        report.differs = true;
        if report.changed_bytes.is_none() {
            report
                .notes
                .push("it was moved or resized: its blocks are counted outside of partitions".to_owned());
        }
        Ok(report)
    }

    /// Opens the files in a partition of one disk, if they can be read. Returns also the name of its filesystem.
    fn open(&self, side: usize, extent: Extent) -> Result<(String, OpenedFiles<'a>)> {
        let disk = [self.a, self.b][side];
        let within = |error: Error| error.within(&self.titles[side]);
        let found = probe(disk, extent).map_err(within)?;
        let files = match open_files(&found, disk, extent) {
            Some(Err(error)) if is_store_damage(&error) => return Err(within(error)),
            files => files.map(|files| files.map_err(within)),
        };
        let tree = files.as_ref().and_then(|files| files.as_deref().ok());
        Ok((filesystem_name(&found, tree), files))
    }

    fn files(
        &self,
        (pair, places): (&Pair, Option<&Places<'_>>),
        (mut a, mut b): (Box<dyn FileTree + 'a>, Box<dyn FileTree + 'a>),
        changed: &Extents,
        mut report: PartitionDifference,
        on_event: &mut dyn FnMut(&DiffEvent),
    ) -> Result<PartitionDifference> {
        report.by_files = true;
        let kinds = (a.filesystem(), b.filesystem());
        let is_alike = kinds.0 == kinds.1 || kinds.0.starts_with("ext") && kinds.1.starts_with("ext");
        if places.is_none_or(Places::are_partitions) {
            self.beside_files(pair, (&mut *a, &mut *b), (changed, is_alike), &mut report)?;
        }
        report.differs = !report.notes.is_empty();
        let is_unmoved = pair.a.offset == pair.b.offset && a.block_size() == b.block_size() && is_alike;
        let start = match places {
            Some(places) => places.start(&mut *a, &mut *b)?,
            None => ([a.root(), b.root()], String::new()),
        };
        let sides = (Side::new(a, self.a, self.recipe_a), Side::new(b, self.b, self.recipe_b));
        Walk::new(sides, (changed, is_unmoved), report, on_event).run(start)
    }

    /// Compares what belongs to a filesystem, but to none of its files.
    fn beside_files(
        &self,
        pair: &Pair,
        (a, b): (&mut dyn FileTree, &mut dyn FileTree),
        (changed, is_alike): (&Extents, bool),
        report: &mut PartitionDifference,
    ) -> Result<()> {
        let named = [("label", a.names().0 != b.names().0), ("UUID", a.names().1 != b.names().1)];
        let named = named.iter().filter(|(_, differs)| *differs);
        report.notes.extend(named.map(|(name, _)| format!("its filesystem has another {name}")));
        if is_alike {
            let differs = boot_code::differs(a.filesystem(), pair, [self.a, self.b], changed);
            note(report, "boot code", differs)?;
            let default = a.default_subvolume().and_then(|number| Ok(number != b.default_subvolume()?));
            note(report, "default subvolume", default)?;
        }
        Ok(())
    }
}

/// Notes whether something of a filesystem differs. If it cannot be read in one of them, that is a note as well.
fn note(report: &mut PartitionDifference, what: &str, differs: Result<bool>) -> Result<()> {
    match told(differs)? {
        Ok(false) => {}
        Ok(true) => report.notes.push(format!("its {what} differs")),
        Err(error) => {
            report.unreadable += 1;
            report.notes.push(format!("its {what} cannot be compared: {}", with_advice(&error)));
        }
    }
    Ok(())
}

/// The reason why a filesystem is compared only by its blocks; an error if the disk itself failed.
fn by_blocks(error: Error) -> Result<String> {
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::Refused => {
            Ok(format!("compared by blocks only: {}", error.with_causes()))
        }
        _ => Err(error),
    }
}

/// What both filesystems are, or first one and then the other. A name that is empty is unknown.
fn names_of(a: String, b: String) -> String {
    let known = |name: String| if name.is_empty() { "unknown".to_owned() } else { name };
    if a == b { a } else { format!("{}, then {}", known(a), known(b)) }
}
