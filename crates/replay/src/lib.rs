//! Runs every fuzz target of `fuzz/` over its seeds and corpus with the stable compiler, as tests.
//!
//! A target is the same source file here and under cargo-fuzz: this crate replaces the two crates that the
//! targets import, `libfuzzer_sys` and `platter_fuzz`. It is a crate of its own because the targets need most
//! of the others. No crate may depend on it, and it contains only tests.

#[cfg(test)]
extern crate self as libfuzzer_sys;
#[cfg(test)]
extern crate self as platter_fuzz;

#[cfg(test)]
#[path = "../../../fuzz/src"]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a target fails by panicking")]
mod shared {
    pub(crate) mod base_disk;
    pub(crate) mod cast_keys;
    pub(crate) mod cast_pair;
    pub(crate) mod edits;
    pub(crate) mod probe_pair;
    pub(crate) mod read_only;
    pub(crate) mod region;
    pub(crate) mod vocabulary;
    pub(crate) mod walk;
}
#[cfg(test)]
pub use shared::{
    base_disk::BaseDisk,
    cast_pair::{ADDRESS, CONNECTION, CastPair},
    edits::{EDIT_LENGTH, EDITS_MAX, Edit, edits},
    probe_pair::ProbePair,
    read_only::ReadOnly,
    region::examine_region,
    vocabulary::{bug_free, xxh3, xxh3_after},
    walk::{visit, walk},
};

#[cfg(test)]
#[path = "../../../fuzz/fuzz_targets"]
#[allow(
    unused_attributes,
    unexpected_cfgs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a target is a program under cargo-fuzz, and fails by panicking"
)]
mod targets {
    pub(crate) mod boot_set;
    pub(crate) mod btrfs;
    pub(crate) mod change_log;
    pub(crate) mod control;
    pub(crate) mod datagram;
    pub(crate) mod directory;
    pub(crate) mod fat_ntfs;
    pub(crate) mod filesystem;
    pub(crate) mod formats;
    pub(crate) mod frame;
    pub(crate) mod frame_stream;
    pub(crate) mod health;
    pub(crate) mod hoard_manifest;
    pub(crate) mod index;
    pub(crate) mod join_message;
    pub(crate) mod keys;
    pub(crate) mod moved_session;
    pub(crate) mod names;
    pub(crate) mod nbd;
    pub(crate) mod ninep;
    pub(crate) mod overlay;
    pub(crate) mod pack;
    pub(crate) mod page;
    pub(crate) mod partition;
    pub(crate) mod peer;
    pub(crate) mod pins;
    pub(crate) mod probe;
    pub(crate) mod recipe_root;
    pub(crate) mod trace;
    pub(crate) mod ufs;
    pub(crate) mod unpack;
    pub(crate) mod volumes;
    pub(crate) mod xfs;
}

/// Replaces the macro of `libfuzzer_sys`: turns a target into a function of bytes. Defined after the targets,
/// which name it by its path.
#[cfg(test)]
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: &[u8]| $body:block) => {
        pub(crate) fn run($input: &[u8]) $body
    };
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use parking_lot::Mutex;
    use peak_alloc::PeakAlloc;

    use crate::targets;

    #[global_allocator]
    static MEMORY: PeakAlloc = PeakAlloc;
    /// One target at a time, because the allocator counts for all threads.
    static ALONE: Mutex<()> = Mutex::new(());

    /// What an input may take from the Rust allocator, with the disk that a target makes of it.
    const BYTES_MAX: usize = 256 << 20;

    /// Each input is also tried truncated to this many lengths, and with this many single bytes changed.
    const CUTS: usize = 4;
    const CHANGES: usize = 8;

    fn fuzz_dir() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
    }

    /// The files of a directory, sorted; none if the directory does not exist.
    fn files(dir: &Path) -> Vec<PathBuf> {
        let listed = fs::read_dir(dir).into_iter().flatten();
        let mut files: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    /// Runs a target over an input.
    fn run_within_memory(run: fn(&[u8]), input: &[u8], name: &Path) {
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        run(input);
        let taken = MEMORY.peak_usage().saturating_sub(before);
        assert!(taken <= BYTES_MAX, "{}, or a change of it, takes {taken} bytes", name.display());
    }

    /// Runs a target over the committed seeds and over the inputs that a fuzzer has left in `fuzz/corpus`.
    fn replay(target: &str, run: fn(&[u8])) {
        let seeds = files(&fuzz_dir().join("seeds").join(target));
        assert!(!seeds.is_empty(), "fuzz/seeds/{target} has no seeds");
        let _alone = ALONE.lock();
        for path in seeds.into_iter().chain(files(&fuzz_dir().join("corpus").join(target))) {
            let input = fs::read(&path).unwrap();
            run_within_memory(run, &input, &path);
            for part in 1..=CUTS {
                run_within_memory(run, &input[..input.len() * part / (CUTS + 1)], &path);
            }
            let mut changed = input.clone();
            for change in 0..CHANGES.min(input.len()) {
                // Spread over the input, more densely at its start, where the fields are.
                let place = (input.len() - 1) * change * change / (CHANGES * CHANGES);
                changed[place] ^= 1 << change;
                run_within_memory(run, &changed, &path);
                changed[place] = input[place];
            }
        }
    }

    macro_rules! replays {
        ($($target:ident)*) => {
            $(#[test]
            fn $target() {
                replay(stringify!($target), targets::$target::run);
            })*

            const TARGETS: &[&str] = &[$(stringify!($target)),*];
        };
    }

    replays! {
        boot_set btrfs change_log control datagram directory fat_ntfs filesystem formats frame frame_stream health hoard_manifest index join_message keys moved_session names nbd
        ninep overlay pack page partition peer pins probe recipe_root trace ufs unpack volumes xfs
    }

    #[test]
    fn every_target_is_replayed_and_known_to_the_fuzzer() {
        let found = files(&fuzz_dir().join("fuzz_targets"));
        let found: Vec<&str> = found.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
        assert_eq!(found, TARGETS);
        let manifest = fs::read_to_string(fuzz_dir().join("Cargo.toml")).unwrap();
        for target in TARGETS {
            assert!(
                manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")),
                "{target} has no [[bin]]"
            );
        }
    }
}
