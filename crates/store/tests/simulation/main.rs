//! The store on a simulated disk, catalog and all: power cuts, failing calls, damage. `RUNS` and seeds are printed
//! with every failure; a seed repeats it.

mod crash;
mod damage;
mod fault;
mod sqlite;
mod work;
