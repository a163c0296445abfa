//! Arguments of the commands that look into an image.

use std::path::PathBuf;

use clap::Args;
use platter_browse::FileLocation;

#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// NAME[@NUMBER], or a place in it: NAME:PARTITION/PATH
    pub(crate) location: FileLocation,
    /// Also show mode, owner, size and time
    #[arg(long, short)]
    pub(crate) long: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Find {
    /// NAME[@NUMBER]:PARTITION/PATH; without the partition if only one has a filesystem that can be read
    pub(crate) location: FileLocation,
    /// Only files whose name matches; `*` and `?` as in a shell
    #[arg(long, value_name = "PATTERN")]
    pub(crate) name: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Cat {
    /// NAME[@NUMBER]:PARTITION/PATH; without the partition if only one has a filesystem that can be read
    pub(crate) location: FileLocation,
}

#[derive(Args, Debug)]
pub(crate) struct Cp {
    /// NAME[@NUMBER]:PARTITION/PATH; without the partition if only one has a filesystem that can be read
    pub(crate) location: FileLocation,
    /// File or directory to create on this machine; an existing directory receives the copy under its own name
    pub(crate) target: PathBuf,
    /// Copy a directory with everything below it
    #[arg(long, short)]
    pub(crate) recursive: bool,
}
