//! Garbage collection: packs that nothing needs are given up, and their files deleted.
//!
//! Why no block that is needed is lost (design: collection), as the model in `platter_collection` checks over random schedules:
//!
//! 1. *Roots.* What must stay is what versions and boot sets in the catalog need, what readers registered, and what overlays
//!    stand on. Condemning happens under the catalog's lock, and only if every root that exists at that moment was marked.
//!    Otherwise, the marking goes on.
//! 2. *Sessions.* A session pins the packs of the blocks that it finds, under the index lock, until its commit. A pinned pack is
//!    not condemned. Publishing a recipe either finds a version with the same score in its own commit, or has pinned every block
//!    of the recipe. So at each moment, a block that a version needs is marked by any collector that condemns later, or its
//!    pack is pinned.
//! 3. *Condemned packs* can still be read. A lookup that finds a block there returns the pack to live; so does a read. Under
//!    the same locks as before, condemned packs that are not pinned become dead. That is committed before the first file is
//!    deleted, and never undone: pack ids are never used again.
//! 4. *Copies.* A pack may be condemned although it has live blocks, if each of them has a sound copy in a live pack that is not
//!    condemned in the same run. These copies are read and hashed before the pack becomes dead. Compaction only adds copies.
//! 5. *Doubt.* Any error before the commit of step 3 ends the run with nothing given up. The second proof ([`inspect`]) shares no
//!    code with the marking.
//!
//! Dead packs stay where they are for a while, the trash, because readers in other processes may have planned their frames. No
//! decision above depends on a clock.

mod copying;
mod exclusive;
mod inspect;
mod mark;
mod roots;
mod run;
mod survey;

pub(crate) use mark::can_be_marked;
