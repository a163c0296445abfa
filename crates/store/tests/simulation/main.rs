//! The store on a simulated disk, catalog and all: power cuts, failing calls, damage. Every failure names its seed
//! and call, which repeat it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is test code")]

mod crash;
mod damage;
mod fault;
mod forged;
mod heal;
mod rebuild;
mod sqlite;
mod token;
mod work;
