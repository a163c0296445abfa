//! Disks in the formats of other programs: virtual machine images, and streams that hold a disk.
//!
//! The format of a file is what the user says, or what its suffix says; contents never decide it. Images of
//! virtual machines are read in place ([`open()`]); streams are unpacked first ([`Spool`]). Whatever a file contains, reading it
//! must not panic, nor take more memory than its length justifies, nor more time than the length of the disk that it states: a
//! short image of a long disk may refer to the same data at every offset. Nothing here opens a file: a reader sees the one that
//! it was given, and a name in it is never followed. So a hostile image cannot make Platter read other files. docs/sources.md
//! says what is read.

mod clonezilla;
mod compression;
mod fields;
mod format;
mod mapped;
mod ndz;
mod partclone;
mod qcow2;
mod recognize;
mod spool;
mod stream;
mod tables;
mod vdi;
mod vhd;
mod vhdx;
mod vmdk;

pub use clonezilla::{Folder, read_clonezilla};
pub use compression::Compression;
pub use format::Format;
pub use mapped::Mapped;
pub use ndz::{read_ndz, write_ndz};
pub use partclone::read_partclone;
pub use qcow2::{BackingName, backing_name};
pub use recognize::{END_LENGTH, Reader, Wrapping, wrapping};
pub use spool::Spool;
pub use stream::read_raw;

use platter_image::{DiskRead, Error, Result};

/// Opens the disk in an image of a virtual machine. `backing` is the disk that shows where the image has no
/// data of its own; formats other than qcow2 have none.
///
/// # Errors
/// `Corrupt` with structure and offset if the file is not what it must be; `Refused` if it refers to other
/// files, or uses what Platter does not read; `Io`.
pub fn open<'d>(
    file: Box<dyn DiskRead + 'd>,
    format: Format,
    backing: Option<Box<dyn DiskRead + 'd>>,
) -> Result<Mapped<'d>> {
    if backing.is_some() && format != Format::Qcow2 {
        return Err(Error::refused(format!("{format} images with a backing file are not read")));
    }
    let layout: Box<dyn mapped::Layout> = match format {
        Format::Qcow2 => Box::new(qcow2::Qcow2::open(&*file, backing.is_some())?),
        Format::Vdi => Box::new(vdi::Vdi::open(&*file)?),
        Format::Vhd => return vhd::open(file),
        Format::Vhdx => Box::new(vhdx::Vhdx::open(&*file)?),
        Format::Vmdk => Box::new(vmdk::Vmdk::open(&*file)?),
        other => return Err(Error::bug(format!("{other} is not read in place"))),
    };
    Ok(Mapped::new(file, layout, backing))
}
