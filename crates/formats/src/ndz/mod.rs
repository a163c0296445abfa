//! Frisbee images (`.ndz`), versions 2, 3 and 5. docs/sources.md has what is read and what is not.
//!
//! A file is a sequence of chunks of 1 MiB. Each has a header with the ranges of the disk that it holds, and one zlib
//! stream with their contents ([`chunk`]). Chunks may come in any order.

mod chunk;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::read_ndz;
pub use writer::write_ndz;
