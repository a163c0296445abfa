//! The names of images and versions as directories.
//!
//! A view is made from all versions, again after every change of the catalog; a view itself never changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_image::Score;
use platter_records::{Version, VersionRecord};

/// The link to the newest version.
const LATEST: &str = "latest";

/// A version as it is named in messages, and its disk.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) shown: String,
    pub(super) score: Score,
    pub(super) record: Option<VersionRecord>,
}

impl Disk {
    pub(super) fn of(version: &Version) -> Self {
        let record = version.record.clone();
        Self { shown: version.name.to_string(), score: record.score, record: Some(record) }
    }

    /// When it was published, in milliseconds since 1970.
    pub(super) fn modified(&self) -> i64 {
        self.record.as_ref().map_or(0, |record| record.time_unix_ms)
    }
}

/// A name in a directory of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Images,
    Version(u64),
    /// The link to the version with that number.
    Latest(u64),
}

/// The directory of an image, or of images below it.
#[derive(Debug, Default)]
pub(super) struct Directory {
    names: BTreeSet<String>,
    versions: BTreeMap<u64, usize>,
    /// When the newest version here or below was published.
    pub(super) modified: i64,
}

impl Directory {
    /// What a name is.
    pub(super) fn find(&self, name: &str) -> Option<Named> {
        let number = name.parse().ok().filter(|number: &u64| number.to_string() == name);
        match number {
            Some(number) if self.versions.contains_key(&number) => Some(Named::Version(number)),
            _ => match self.newest().filter(|_| name == LATEST) {
                Some(newest) => Some(Named::Latest(newest)),
                None => self.names.contains(name).then_some(Named::Images),
            },
        }
    }

    /// All names: versions in the order of their numbers, then images.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.versions.keys().map(ToString::to_string).collect();
        names.extend((!self.versions.is_empty()).then(|| LATEST.to_owned()));
        let images = self.names.iter().filter(|name| self.find(name) == Some(Named::Images));
        names.extend(images.cloned());
        names
    }

    /// The number of the newest version.
    fn newest(&self) -> Option<u64> {
        self.versions.last_key_value().map(|(number, _)| *number)
    }
}

/// All names.
#[derive(Debug, Default)]
pub(super) struct Names {
    versions: Arc<Vec<Version>>,
    directories: BTreeMap<String, Directory>,
}

impl Names {
    pub(super) fn new(versions: Arc<Vec<Version>>) -> Self {
        let mut directories: BTreeMap<String, Directory> = BTreeMap::new();
        directories.entry(String::new()).or_default();
        for (index, version) in versions.iter().enumerate() {
            let (image, time) = (version.record.image.to_string(), version.record.time_unix_ms);
            let mut path = image.as_str();
            let own = directories.entry(image.clone()).or_default();
            own.versions.insert(version.record.number, index);
            own.modified = own.modified.max(time);
            while !path.is_empty() {
                let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
                let directory = directories.entry(above.to_owned()).or_default();
                directory.names.insert(name.to_owned());
                directory.modified = directory.modified.max(time);
                path = above;
            }
        }
        Self { versions, directories }
    }

    /// The directory at a path of names; the empty path is the top.
    pub(super) fn directory(&self, path: &str) -> Option<&Directory> {
        self.directories.get(path)
    }

    /// A version.
    pub(super) fn disk(&self, image: &str, number: u64) -> Option<Disk> {
        let index = self.directory(image)?.versions.get(&number)?;
        self.versions.get(*index).map(Disk::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(versions: &[u64], names: &[&str]) -> Directory {
        let versions = versions.iter().map(|number| (*number, 0)).collect();
        Directory { names: names.iter().map(ToString::to_string).collect(), versions, modified: 0 }
    }

    #[test]
    fn versions_hide_images_of_the_same_name() {
        let both = directory(&[2, 10], &["10", "3", "latest", "web"]);
        assert_eq!(both.names(), ["2", "10", "latest", "3", "web"]);
        let found = ["10", "3", "latest", "web", "02", "9"].map(|name| both.find(name));
        let (images, latest) = (Some(Named::Images), Some(Named::Latest(10)));
        assert_eq!(found, [Some(Named::Version(10)), images, latest, images, None, None]);
        let only_images = directory(&[], &["latest"]);
        assert_eq!(only_images.find("latest"), images);
        assert_eq!((both.newest(), only_images.newest()), (Some(10), None));
    }
}
