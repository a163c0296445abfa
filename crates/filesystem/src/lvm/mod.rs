//! LVM2: where the logical volumes lie on the physical volumes of a disk (docs/filesystems/lvm.md).
//!
//! A physical volume has a label, areas with the metadata of its volume group as text, and extents. A logical volume consists
//! of segments, and each segment of extents in one place, or striped over several. Extents that no logical volume has are
//! free.
//!
//! [`assemble()`] returns the logical volumes with the places of their bytes. It never looks at what they contain:
//! [`crate::examine()`] does that. Nothing is free unless label, areas and text have correct checksums and agree with each
//! other, all physical volumes of the group are on this disk, and every flag and every kind of segment is known.
//!
//! Sources: LVM2's `lib/format_text` and `lib/label`; lvm(8), vgcfgbackup(8).

mod assemble;
mod group;
mod label;
mod metadata_area;
mod text;

pub(crate) use assemble::{LogicalVolume, assemble, assemble_readable};
