//! What names there are, as of one state of the catalog: the part of the tree that is made of images.
//!
//! A view is made anew whenever something has changed, and is never changed itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_image::Score;
use platter_records::Version;

use super::dates::{self, Day};
use super::place::{BY_DATE, Form, IMPORT, Place, hidden, join, upwards};

/// A version as a file.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) score: Score,
    /// Bytes of the disk.
    pub(super) length: u64,
    /// Bytes that somebody can read.
    pub(super) allocated: u64,
    /// When it was made, milliseconds since 1970.
    pub(super) modified: i64,
}

/// A version in the catalog.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    image: String,
    number: u64,
    contents: Arc<Contents>,
}

impl Listed {
    /// A version, if its image is in the tree.
    pub(super) fn of(version: &Version) -> Option<Self> {
        let record = &version.record;
        let image = record.image.to_string();
        let contents = Contents {
            score: record.score,
            length: record.disk_length,
            allocated: record.allocated_bytes.min(record.disk_length),
            modified: record.time_unix_ms,
        };
        hidden(&image).is_none().then(|| Self { image, number: record.number, contents: Arc::new(contents) })
    }
}

/// What is in the directory of an image, or of images below it.
#[derive(Debug)]
pub(super) struct Directory {
    /// Names of the directories in it.
    pub(super) names: BTreeSet<String>,
    /// Versions of the image that has this very name.
    pub(super) versions: BTreeMap<u64, Arc<Contents>>,
    /// This process serves its disk.
    pub(super) is_live: bool,
    /// The last time at which a version here or below was made.
    pub(super) modified: i64,
    /// The first one; no version was made after the end of time.
    first: i64,
}

impl Default for Directory {
    fn default() -> Self {
        let (names, versions) = (BTreeSet::new(), BTreeMap::new());
        Self { names, versions, is_live: false, modified: 0, first: i64::MAX }
    }
}

impl Directory {
    /// Nothing is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.versions.is_empty() && !self.is_live
    }

    /// The version of the highest number.
    pub(super) fn newest(&self) -> Option<(u64, &Arc<Contents>)> {
        self.versions.last_key_value().map(|(number, contents)| (*number, contents))
    }

    /// The version of the highest number of those made before the end of that day.
    fn newest_of(&self, day: Day) -> Option<u64> {
        let versions = self.versions.iter().rev();
        versions
            .into_iter()
            .find(|(_, contents)| contents.modified < day.end_unix_ms())
            .map(|(number, _)| *number)
    }
}

/// All names made of images.
#[derive(Debug, Default)]
pub(super) struct View {
    directories: BTreeMap<String, Directory>,
    days: BTreeSet<Day>,
}

impl View {
    /// What follows from the versions, the images whose disks are served, and the directories that were made.
    pub(super) fn new(versions: &[Listed], live: &[String], made: &BTreeSet<String>) -> Self {
        let mut view = Self::default();
        view.directories.entry(String::new()).or_default();
        for version in versions {
            let time = version.contents.modified;
            let directory = view.enter(&version.image, Some(time));
            directory.versions.insert(version.number, version.contents.clone());
            view.days.extend(Day::of(time));
        }
        for image in live {
            view.enter(image, None).is_live = true;
        }
        for path in made {
            view.enter(path, None);
        }
        view
    }

    /// The directory of that path, made with those above it, when one is missing.
    fn enter(&mut self, path: &str, time: Option<i64>) -> &mut Directory {
        let mut below: Option<&str> = None;
        for path in upwards(path) {
            let directory = self.directories.entry(path.to_owned()).or_default();
            if let Some(time) = time {
                directory.modified = directory.modified.max(time);
                directory.first = directory.first.min(time);
            }
            if let Some(below) = below {
                let name = below.rsplit('/').next().unwrap_or(below);
                directory.names.insert(name.to_owned());
            }
            below = Some(path);
        }
        self.directories.entry(path.to_owned()).or_default()
    }

    /// The directory of images at that path.
    pub(super) fn directory(&self, path: &str) -> Option<&Directory> {
        self.directories.get(path)
    }

    /// Whether a version is at that path, or below it.
    pub(super) fn has_images(&self, path: &str) -> bool {
        self.directory(path).is_some_and(|directory| directory.first < i64::MAX)
    }

    /// The contents of a version.
    pub(super) fn contents(&self, image: &str, number: u64) -> Option<&Arc<Contents>> {
        self.directory(image)?.versions.get(&number)
    }

    /// Whether there is such a place. Of what is made of no image, it says no.
    pub(super) fn has(&self, place: &Place) -> bool {
        match place {
            Place::Images(path) => self.directory(path).is_some(),
            Place::Version { image, number, .. } | Place::DayVersion { image, number, .. } => {
                self.contents(image, *number).is_some()
            }
            Place::Live(path) => self.directory(path).is_some_and(|directory| directory.is_live),
            Place::Days => true,
            Place::Year(year) => self.days.iter().any(|day| day.year() == *year),
            Place::Month(year, month) => self.days_of(*year, *month).next().is_some(),
            Place::Day(day, path) => {
                self.days.contains(day) && (path.is_empty() || self.had_below(*day, path))
            }
            Place::Gone(_) | Place::Import(_) | Place::Spool(_) => false,
        }
    }

    /// The last time at which anything in a directory changed.
    pub(super) fn modified(&self, place: &Place) -> i64 {
        let path = match place {
            Place::Images(path) | Place::Day(_, path) | Place::Live(path) => path,
            _ => "",
        };
        self.directory(path).map_or(0, |directory| directory.modified)
    }

    /// What has that name in a directory.
    pub(super) fn find(&self, at: &Place, name: &str) -> Option<Place> {
        let place = match at {
            Place::Images(path) => return self.find_image(path, name),
            Place::Days => Place::Year(dates::year(name)?),
            Place::Year(year) => Place::Month(*year, dates::month(name)?),
            Place::Month(year, month) => {
                Place::Day(Day::find(&self.days, *year, *month, name)?, String::new())
            }
            Place::Day(day, path) => match Form::split(name) {
                Some((stem, form)) => {
                    let image = join(path, stem);
                    let number = self.directory(&image)?.newest_of(*day)?;
                    Place::DayVersion { day: *day, image, number, form }
                }
                None => Place::Day(*day, join(path, name)),
            },
            _ => return None,
        };
        Some(place).filter(|place| self.has(place))
    }

    fn find_image(&self, path: &str, name: &str) -> Option<Place> {
        match name {
            BY_DATE if path.is_empty() => return Some(Place::Days),
            IMPORT if path.is_empty() => return Some(Place::Import(String::new())),
            _ => {}
        }
        let directory = self.directory(path)?;
        if directory.names.contains(name) {
            return Some(Place::Images(join(path, name)));
        }
        let (stem, form) = Form::split(name)?;
        let version = |number, is_latest| Place::Version { image: path.to_owned(), number, form, is_latest };
        match stem {
            "live" => (directory.is_live && form == Form::Raw).then(|| Place::Live(path.to_owned())),
            "latest" => Some(version(directory.newest()?.0, true)),
            number => {
                let number = number.parse().ok().filter(|value: &u64| value.to_string() == number)?;
                directory.versions.contains_key(&number).then(|| version(number, false))
            }
        }
    }

    /// All names in a directory.
    pub(super) fn names(&self, at: &Place) -> Vec<String> {
        let both = |stem: &str| [Form::Raw, Form::Score].map(|form| format!("{stem}{}", form.suffix()));
        match at {
            Place::Images(path) => {
                let Some(directory) = self.directory(path) else { return Vec::new() };
                let mut names: Vec<String> = directory.names.iter().cloned().collect();
                names.extend(directory.versions.keys().flat_map(|number| both(&number.to_string())));
                names.extend(directory.newest().into_iter().flat_map(|_| both("latest")));
                names.extend(directory.is_live.then(|| "live.raw".to_owned()));
                names.extend(
                    path.is_empty().then(|| [BY_DATE, IMPORT].map(str::to_owned)).into_iter().flatten(),
                );
                names
            }
            Place::Days => named(self.days.iter().map(|day| format!("{:04}", day.year()))),
            Place::Year(year) => {
                let days = self.days.iter().filter(|day| day.year() == *year);
                named(days.map(|day| format!("{:02}", day.month())))
            }
            Place::Month(year, month) => self.days_of(*year, *month).map(Day::name).collect(),
            Place::Day(day, path) => {
                let children = self.directory(path).into_iter().flat_map(|directory| &directory.names);
                let mut names = Vec::new();
                for name in children {
                    let path = join(path, name);
                    let had = self.directory(&path).and_then(|directory| directory.newest_of(*day));
                    names.extend(had.into_iter().flat_map(|_| both(name)));
                    names.extend(self.had_below(*day, &path).then(|| name.clone()));
                }
                names
            }
            _ => Vec::new(),
        }
    }

    fn days_of(&self, year: i16, month: i8) -> impl Iterator<Item = Day> + '_ {
        self.days.iter().copied().filter(move |day| (day.year(), day.month()) == (year, month))
    }

    /// Whether an image below a path had a version at the end of that day.
    fn had_below(&self, day: Day, path: &str) -> bool {
        let Some(directory) = self.directory(path) else { return false };
        let had = |name: &String| self.directory(&join(path, name)).map(|below| below.first);
        directory.names.iter().filter_map(had).any(|first| first < day.end_unix_ms())
    }
}

/// Each name once, in order.
fn named(names: impl Iterator<Item = String>) -> Vec<String> {
    names.collect::<BTreeSet<String>>().into_iter().collect()
}
