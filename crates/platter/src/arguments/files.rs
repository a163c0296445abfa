//! Arguments of the commands that look into an image.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use platter_browse::FileLocation;
use platter_jobs::{Error, Result, VersionQuery};

use super::signing::SignatureArguments;
use super::target::CacheArguments;

/// Reads a place in an image of a valid name.
pub(super) fn location_of_version() -> impl TypedValueParser<Value = FileLocation> {
    OsStringValueParser::new().try_map(|text| {
        let location = FileLocation::parse(text.as_bytes())?;
        location.version.parse::<VersionQuery>()?;
        Ok::<_, Error>(location)
    })
}

/// Reads a place in an image, whose path can be any bytes.
fn location() -> impl TypedValueParser<Value = FileLocation> {
    OsStringValueParser::new().try_map(|text| FileLocation::parse(text.as_bytes()))
}

#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// NAME[@NUMBER], or a place in it: NAME:PARTITION/PATH or NAME:GROUP-VOLUME/PATH
    #[arg(value_parser = location())]
    pub(crate) location: FileLocation,
    /// Also show mode, owner, size and time
    #[arg(long, short)]
    pub(crate) long: bool,
    /// End each name with NUL instead of a line end
    #[arg(long)]
    pub(crate) print0: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Find {
    /// NAME[@NUMBER]:PARTITION/PATH; without the partition if only one has a filesystem that can be read
    #[arg(value_parser = location())]
    pub(crate) location: FileLocation,
    /// Only files whose name matches; `*` and `?` as in a shell
    #[arg(long, value_name = "PATTERN")]
    pub(crate) name: Option<OsString>,
    /// End each path with NUL instead of a line end
    #[arg(long)]
    pub(crate) print0: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Cat {
    /// NAME[@NUMBER]:PARTITION/PATH; without the partition if only one has a filesystem that can be read
    #[arg(value_parser = location())]
    pub(crate) location: FileLocation,
}

#[derive(Args, Debug)]
pub(crate) struct Cp {
    /// NAME[@NUMBER]:PARTITION/PATH; without the partition if only one has a filesystem that can be read
    #[arg(value_parser = location())]
    pub(crate) location: FileLocation,
    /// File or directory to create on this machine; an existing directory receives the copy under its own name
    pub(crate) target: PathBuf,
    /// Copy a directory with everything below it
    #[arg(long, short)]
    pub(crate) recursive: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Mount {
    /// NAME[@NUMBER], or a filesystem or directory in it: NAME:PARTITION/PATH; without it, all images. Then an empty directory
    #[arg(required = true, num_args = 1..=2, value_names = ["IMAGE", "DIR"])]
    pub(crate) what: Vec<OsString>,
    /// Other users can use the mount, too, as far as the modes of the files allow
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Memory for decoded blocks in MiB
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) cache: u32,
    #[command(flatten)]
    pub(crate) cache_of_origin: CacheArguments,
    #[command(flatten)]
    pub(crate) signatures: SignatureArguments,
}

impl Mount {
    /// The image, if one is named, and the mount point.
    ///
    /// # Errors
    /// `Refused` if the first of two words is no image.
    pub(crate) fn parts(&self) -> Result<(Option<FileLocation>, &Path)> {
        match &self.what[..] {
            [image, dir] => {
                let text = image.as_bytes();
                if text.starts_with(b"/") || text.starts_with(b".") || text.starts_with(b"~") {
                    let dir = dir.display();
                    let image = image.display();
                    return Err(Error::refused(format!(
                        "the image comes first: platter mount {dir} {image}"
                    )));
                }
                Ok((Some(FileLocation::parse(text)?), Path::new(dir)))
            }
            [dir] => Ok((None, Path::new(dir))),
            _ => Err(Error::refused("name an empty directory, or an image and an empty directory")),
        }
    }
}
