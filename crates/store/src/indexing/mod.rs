//! Where each block of a store is: in packs that the index on disk covers, and in packs whose directories are in memory.
//!
//! The index on disk (`platter_index`) covers packs that the catalog lists. New packs are in memory until they are many; then a
//! writer adds them (`cover`). The packs that collection gives up are in memory until their files are gone.
//!
//! The index is a cache. Whoever opens a store compares it with the catalog's packs and with the files, and reads the footers of
//! packs that are not covered. If a page of it is damaged, everything is read from footers into memory, and the next writer makes
//! a new index. If it cannot be written, for example on a full disk, new packs stay in memory.
//!
//! - `block_index`, beside this folder: finds blocks, and prefers sound frames of packs that stay
//! - `directory`: which blocks a frame of a covered pack has, from the pack's footer
//! - `open` takes the catalog's packs into the index of a process, and `cover` adds packs to the index on disk

mod cover;
mod directory;
mod open;
