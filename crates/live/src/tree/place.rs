//! The places in the tree, by name.

use serde::{Deserialize, Serialize};

use super::dates::Day;

/// The directory of days, in the root.
pub(super) const BY_DATE: &str = "by-date";
/// The directory where files become versions, in the root.
pub(super) const IMPORT: &str = "import";

/// The form of a version as a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Form {
    /// Its disk.
    Raw,
    /// Its score, in text.
    Score,
}

impl Form {
    const ALL: [(Self, &'static str); 2] = [(Self::Raw, ".raw"), (Self::Score, ".score")];

    pub(super) fn suffix(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Splits a file's name into its stem and form.
    pub(super) fn split(name: &str) -> Option<(&str, Self)> {
        Self::ALL.into_iter().find_map(|(form, suffix)| Some((name.strip_suffix(suffix)?, form)))
    }
}

/// A place in the tree. Paths are parts separated by slashes; the empty path is the top.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Place {
    /// The directory of an image, or of images below it.
    Images(String),
    /// One version of an image, by its number or as the newest one.
    Version {
        image: String,
        number: u64,
        form: Form,
        is_latest: bool,
    },
    /// The live disk of an image.
    Live(String),
    /// A file that was removed with another one.
    Gone(String),
    /// All years.
    Days,
    Year(i16),
    Month(i16, i8),
    /// The images of a day, or those below a path.
    Day(Day, String),
    /// The newest version that an image had at the end of a day.
    DayVersion {
        day: Day,
        image: String,
        number: u64,
        form: Form,
    },
    /// A directory for files that become versions.
    Import(String),
    /// A file that becomes a version.
    Spool(String),
}

impl Place {
    /// Returns the parent of a directory.
    pub(super) fn parent(&self) -> Self {
        match self {
            Self::Images(path) | Self::Live(path) => Self::Images(above(path).to_owned()),
            Self::Version { image, .. } => Self::Images(image.clone()),
            Self::Gone(path) => Self::Images(above(path).to_owned()),
            Self::Days => Self::Images(String::new()),
            Self::Year(_) => Self::Days,
            Self::Month(year, _) => Self::Year(*year),
            Self::Day(day, path) if path.is_empty() => Self::Month(day.year(), day.month()),
            Self::Day(day, path) => Self::Day(*day, above(path).to_owned()),
            Self::DayVersion { day, image, .. } => Self::Day(*day, above(image).to_owned()),
            Self::Import(path) if path.is_empty() => Self::Images(String::new()),
            Self::Import(path) | Self::Spool(path) => Self::Import(above(path).to_owned()),
        }
    }

    /// Returns its place after the images at and below `from` moved to `to`; `None` if it does not move.
    pub(super) fn moved(&self, from: &str, to: &str) -> Option<Self> {
        let mut moved = self.clone();
        let path = match &mut moved {
            Self::Images(path) | Self::Live(path) | Self::Day(_, path) => path,
            Self::Version { image, .. } | Self::DayVersion { image, .. } => image,
            _ => return None,
        };
        *path = moved_path(path, from, to)?;
        Some(moved)
    }
}

/// Returns a path after `from` and everything below moved to `to`; `None` if it does not move.
pub(super) fn moved_path(path: &str, from: &str, to: &str) -> Option<String> {
    let rest = path.strip_prefix(from)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
}

/// Returns the path of a name in a directory.
pub(super) fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// Returns the parent of a path.
pub(super) fn above(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

/// Returns the path and all its parents, the top last.
pub(super) fn upwards(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| (!path.is_empty()).then(|| above(path)))
}

/// Returns why an image with this name cannot be in the tree; `None` if it can.
pub(super) fn hidden(path: &str) -> Option<String> {
    let first = path.split('/').next().unwrap_or_default();
    if first == BY_DATE || first == IMPORT {
        return Some(format!("{first} is a directory of this tree's own"));
    }
    let file = path.split('/').find(|part| Form::split(part).is_some())?;
    Some(format!("{file} would look like a file: image names ending in .raw or .score are not in this tree"))
}
