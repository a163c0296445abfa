//! Tests the store, including the catalog, on a simulated disk: power failures, failing calls, damage. Every failure names the
//! seed and call that reproduce it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod changes;
mod collect;
mod crash;
mod damage;
mod edit_lock;
mod fault;
mod forged;
mod heal;
mod heal_from;
mod index;
mod lending;
mod promote;
mod rebuild;
mod replica;
mod scrub;
mod sqlite;
mod work;
