//! The names for one state of the catalog: the part of the tree that consists of images.
//!
//! A new view is made after every change; a view itself never changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_image::Score;
use platter_records::{Version, VersionName};

use super::dates::{self, Day};
use super::place::{BY_DATE, Form, IMPORT, Place, hidden, join, upwards};

/// A version as a file.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) name: VersionName,
    pub(super) score: Score,
    /// Bytes of the disk.
    pub(super) length: u64,
    /// Readable bytes.
    pub(super) allocated: u64,
    /// Time of publishing, in milliseconds since 1970.
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
    /// Returns a version, if its image is in the tree.
    pub(super) fn of(version: &Version) -> Option<Self> {
        let record = &version.record;
        let image = record.image.to_string();
        let contents = Contents {
            name: version.name.clone(),
            score: record.score,
            length: record.disk_length,
            allocated: record.allocated_bytes.min(record.disk_length),
            modified: record.time_unix_ms,
        };
        hidden(&image).is_none().then(|| Self { image, number: record.number, contents: Arc::new(contents) })
    }
}

/// The contents of the directory of an image, or of images below it.
#[derive(Debug)]
pub(super) struct Directory {
    /// Names of its subdirectories.
    pub(super) names: BTreeSet<String>,
    /// Versions of the image with exactly this name.
    pub(super) versions: BTreeMap<u64, Arc<Contents>>,
    /// Whether this process serves its disk.
    pub(super) is_live: bool,
    /// Time of the latest version here or below.
    pub(super) modified: i64,
    /// Time of the earliest version; `i64::MAX` if there is none.
    first: i64,
}

impl Default for Directory {
    fn default() -> Self {
        let (names, versions) = (BTreeSet::new(), BTreeMap::new());
        Self { names, versions, is_live: false, modified: 0, first: i64::MAX }
    }
}

impl Directory {
    /// Whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.versions.is_empty() && !self.is_live
    }

    /// Returns the version with the highest number.
    pub(super) fn newest(&self) -> Option<(u64, &Arc<Contents>)> {
        self.versions.last_key_value().map(|(number, contents)| (*number, contents))
    }

    /// Returns the highest number of the versions made before the end of this day.
    fn newest_of(&self, day: Day) -> Option<u64> {
        let versions = self.versions.iter().rev();
        versions
            .into_iter()
            .find(|(_, contents)| contents.modified < day.end_unix_ms())
            .map(|(number, _)| *number)
    }
}

/// All names that consist of images.
#[derive(Debug, Default)]
pub(super) struct View {
    directories: BTreeMap<String, Directory>,
    days: BTreeSet<Day>,
}

impl View {
    /// Builds the view from the versions, the images of served disks, and created directories.
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

    /// Returns the directory of this path; creates it and its parents if they are missing.
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

    /// Returns the directory of images at this path.
    pub(super) fn directory(&self, path: &str) -> Option<&Directory> {
        self.directories.get(path)
    }

    /// Whether there is a version at or below this path.
    pub(super) fn has_images(&self, path: &str) -> bool {
        self.directory(path).is_some_and(|directory| directory.first < i64::MAX)
    }

    /// Returns the contents of a version.
    pub(super) fn contents(&self, image: &str, number: u64) -> Option<&Arc<Contents>> {
        self.directory(image)?.versions.get(&number)
    }

    /// Whether a place exists. False for places that do not consist of images.
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

    /// Returns the time of the last change in a directory.
    pub(super) fn modified(&self, place: &Place) -> i64 {
        let path = match place {
            Place::Images(path) | Place::Day(_, path) | Place::Live(path) => path,
            _ => "",
        };
        self.directory(path).map_or(0, |directory| directory.modified)
    }

    /// Looks up a name in a directory.
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

    /// Returns all names in a directory.
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

    /// Whether an image below a path had a version at the end of this day.
    fn had_below(&self, day: Day, path: &str) -> bool {
        let Some(directory) = self.directory(path) else { return false };
        let had = |name: &String| self.directory(&join(path, name)).map(|below| below.first);
        directory.names.iter().filter_map(had).any(|first| first < day.end_unix_ms())
    }
}

/// Returns each name once, in order.
fn named(names: impl Iterator<Item = String>) -> Vec<String> {
    names.collect::<BTreeSet<String>>().into_iter().collect()
}
