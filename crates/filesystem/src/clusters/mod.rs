//! Clusters: the parts that FAT, exFAT and NTFS have in common. UFS uses the numbers and sets for its fragments.
//!
//! A volume of this family has a range of equally long clusters with consecutive numbers ([`Clusters`]). FAT and exFAT
//! chain the clusters of a file in a table ([`Table`]); everything that the directories of such a volume name is
//! collected in [`Claims`], in which each cluster has one owner. [`Chains`] finds the clusters of single files. Nothing here
//! decides what is kept when a check fails: every failure is an error of kind `Corrupt`.

mod chains;
mod claims;
mod heap;
mod set;
mod table;

pub(crate) use chains::{Chains, dos_time};
pub(crate) use claims::{Claims, Run, length_of, read_directory};
pub(crate) use heap::Clusters;
pub(crate) use set::ClusterSet;
pub(crate) use table::{Next, Table, Width};
