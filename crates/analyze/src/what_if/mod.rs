//! What the images would take if they were cut and compressed otherwise: their data is read, cut, counted and compressed, and
//! nothing is written.
//!
//! - `plan`: which cuts, sizes of blocks and compressors there are
//! - `cut`: cuts a stream of data at multiples of a size, or where its contents say so
//! - `counter`: counts the blocks of all images for one of the plans
//! - `frames`: compresses blocks in frames as a store does, and keeps only the lengths
//! - `capture`: along files, by the real capture, into a store that keeps only lengths
//! - `disk`: reads the disks; what is damaged reads as zeros, and is counted
//!
//! Images are added one after the other, in the order in which they were named, as if they were captured into an empty store.

mod capture;
mod counter;
mod cut;
mod disk;
mod frames;
mod plan;
mod run;

pub(crate) use counter::Counted;
pub use plan::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Compression, Cut, Plan, WhatIf};
pub(crate) use run::{Subject, predict};
