//! The tree of all images of a store, as files and directories.
//!
//! | name | what |
//! | --- | --- |
//! | `lab/debian12/7.raw`, `7.score` | the disk of version 7, read only, and its score in text |
//! | `lab/debian12/latest.raw`, `latest.score` | the same of the newest version: another node for each version |
//! | `lab/debian12/live.raw` | the disk of that name that this process serves, written where that may be written |
//! | `by-date/2026/11/20/lab/debian12.raw`, `.score` | the newest version that there was at the end of that day, UTC, for each day on which one was made |
//! | `import/lab/debian12.raw` | a file written there becomes the next version when it is closed |
//!
//! Score files are the pointer files of vdiskfs (Liguori and Van Hensbergen, "Experiences with Content Addressable
//! Storage and Virtual Disks", 2008).
//!
//! Changes of names change images. `mkdir` makes a directory in the memory of this process. `mv` renames an image, or
//! all images below a directory, in one commit. `rm 7.raw` forgets version 7 and removes `7.score` with it. `rm
//! 7.score` alone is refused, and so is `rm latest.raw` while there is a version. Still, `rm -r` works, because a file
//! that was removed with another can be removed once more: it is not listed, but can be looked up. Empty directories
//! stay until they are removed.
//!
//! Images whose name begins with `by-date` or `import`, or has a part that ends in `.raw` or `.score`, are not in the
//! tree, because such a part would look like a file. They are accessible in all other ways. `lab` and `lab/debian12`
//! can both be images: the versions of one are beside the directory of the other.
//!
//! Must never change the contents of an open version, nor query the catalog when a file is read or written.

mod change;
mod dates;
mod files;
mod holes;
mod image_tree;
mod keep;
mod nodes;
mod place;
mod spool;
mod spool_file;
#[cfg(test)]
mod tests;

mod view;

pub use image_tree::ImageTree;
pub(super) use nodes::NodesState;
