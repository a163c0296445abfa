//! Recipes: Merkle trees of pages, each describing one disk (design: recipes, `docs/formats/recipe.md`).
//!
//! The root's hash is the disk's score. Cloning a disk copies 32 bytes; publishing rewrites the changed pages
//! and the path above them; equal scores mean equal disks.

mod builder;
mod diff;
mod pieces;
mod reader;
mod root;

pub use builder::{PageSink, RecipeBuilder};
pub use diff::{Difference, Differences, NewBlocks, diff, new_blocks};
pub use pieces::{PieceCheck, check_piece};
pub use reader::{Entries, OnLost, PageSource, Recipe};
pub use root::{CutPolicy, Root};
