//! A mount that moves from one server to the next while programs use it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use platter_export::fuse::{FuseHandover, FuseOptions, FuseServer};
use platter_export::tree::{ROOT, Tree};
use platter_export::{Pause, RunEnd};

use crate::memory::{MemoryFile, MemoryTree, pattern};
use crate::mounted::{force_away, is_mounted, is_possible};
use crate::moving::{run_while, through_a_socket};

const ROUNDS: u64 = 20;
/// Requests to be answered between two pauses.
const BETWEEN: u64 = 40;

fn options() -> FuseOptions {
    FuseOptions { threads: 3, ..FuseOptions::default() }
}

/// The server as another process receives it through a socket.
fn sent(server: &FuseServer) -> FuseHandover {
    let received = through_a_socket(&[server.to_parcel().unwrap()]);
    FuseHandover::from_parcel(received.into_iter().next().unwrap()).unwrap()
}

/// Writes and reads one file, and checks each byte.
fn work(file: &File, stop: &AtomicBool, answered: &AtomicU64) {
    let mut model = pattern(1 << 20);
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        at = (at + 77_773) % 900_000;
        let bytes: Vec<u8> = (0..20_000).map(|n| (n ^ at) as u8).collect();
        file.write_all_at(&bytes, at as u64).unwrap();
        model[at..at + 20_000].copy_from_slice(&bytes);
        let mut seen = vec![0; 120_000];
        file.read_exact_at(&mut seen, at as u64).unwrap();
        assert_eq!(seen, model[at..at + 120_000]);
        answered.fetch_add(2, Ordering::Relaxed);
    }
    let mut seen = vec![0; 1 << 20];
    file.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(seen, model);
}

/// Removes the mount, even when the test fails.
struct Away<'a>(&'a Path);

impl Drop for Away<'_> {
    fn drop(&mut self) {
        force_away(self.0);
    }
}

#[test]
fn programs_lose_nothing_when_the_mount_moves_many_times() {
    if !is_possible() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    for name in ["a", "b", "c"] {
        tree.put(name, MemoryFile { is_fixed_length: true, ..MemoryFile::of(pattern(1 << 20)) });
    }
    let folder = tempfile::tempdir().unwrap();
    let point = folder.path().join("tree");
    fs::create_dir(&point).unwrap();
    let _away = Away(&point);
    let mut pause = Arc::new(Pause::new().unwrap());
    let served = || Arc::clone(&tree) as Arc<dyn Tree>;
    let mut server = FuseServer::mount(&point, served(), options(), Arc::clone(&pause)).unwrap();
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let (end, files) = run_while(
        |stop| server.run(stop).unwrap(),
        &pause,
        || {
            let open = |name| OpenOptions::new().read(true).write(true).open(point.join(name)).unwrap();
            let mut names = fs::read_dir(&point).unwrap();
            names.next().unwrap().unwrap();
            (["a", "b"].map(open), names)
        },
    );
    assert_eq!(end, RunEnd::Paused);
    let (files, names) = files;
    let mut server = thread::scope(|scope| {
        let workers: Vec<_> = files
            .iter()
            .map(|file| {
                let (stop, answered) = (&stop, &answered);
                scope.spawn(move || work(file, stop, answered))
            })
            .collect();
        for round in 0..ROUNDS {
            // The next process has a pause object of its own.
            pause = Arc::new(Pause::new().unwrap());
            let handover = sent(&server);
            drop(server);
            server = FuseServer::take_over(handover, served(), options(), Arc::clone(&pause)).unwrap();
            let (end, ()) = run_while(
                |stop| server.run(stop).unwrap(),
                &pause,
                || {
                    while answered.load(Ordering::Relaxed) < (round + 1) * BETWEEN
                        && !workers.iter().any(thread::ScopedJoinHandle::is_finished)
                    {
                        thread::yield_now();
                    }
                },
            );
            assert_eq!(end, RunEnd::Paused, "round {round}");
        }
        // A server that pauses and then continues itself loses nothing either.
        let (end, left) = run_while(
            |stop| server.run(stop).unwrap(),
            &pause,
            || {
                stop.store(true, Ordering::Relaxed);
                workers.into_iter().for_each(|worker| worker.join().unwrap());
                assert_eq!(fs::read(point.join("c")).unwrap(), pattern(1 << 20));
                names.inspect(|name| assert!(name.is_ok())).count()
            },
        );
        assert_eq!((end, left), (RunEnd::Paused, 2));
        server
    });
    run_while(|stop| server.run(stop).unwrap(), &pause, || drop(files));
    assert!(is_mounted(&point));
    server.run(&AtomicBool::new(true)).unwrap();
    assert!(!is_mounted(&point), "the last one unmounts");
}

#[test]
fn an_open_file_that_is_gone_does_not_hinder_the_others() {
    if !is_possible() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    for name in ["gone", "kept"] {
        tree.put(name, MemoryFile { is_fixed_length: true, ..MemoryFile::of(pattern(1 << 20)) });
    }
    let folder = tempfile::tempdir().unwrap();
    let point = folder.path().join("tree");
    fs::create_dir(&point).unwrap();
    let _away = Away(&point);
    let served = || Arc::clone(&tree) as Arc<dyn Tree>;
    let pause = Arc::new(Pause::new().unwrap());
    let mut server = FuseServer::mount(&point, served(), options(), Arc::clone(&pause)).unwrap();
    let open = |name| OpenOptions::new().read(true).write(true).open(point.join(name)).unwrap();
    let (end, files) = run_while(|stop| server.run(stop).unwrap(), &pause, || ["gone", "kept"].map(open));
    assert_eq!(end, RunEnd::Paused);
    tree.remove_file(ROOT, "gone").unwrap();
    let pause = Arc::new(Pause::new().unwrap());
    let handover = sent(&server);
    drop(server);
    let mut server = FuseServer::take_over(handover, served(), options(), Arc::clone(&pause)).unwrap();
    run_while(
        |stop| server.run(stop).unwrap(),
        &pause,
        || {
            let [gone, kept] = files;
            let (mut bytes, stale) = (vec![0; 1 << 20], Some(libc::ESTALE));
            assert_eq!(gone.read_at(&mut bytes, 0).unwrap_err().raw_os_error(), stale);
            assert_eq!(gone.write_at(b"x", 0).unwrap_err().raw_os_error(), stale);
            kept.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, pattern(1 << 20));
        },
    );
    server.run(&AtomicBool::new(true)).unwrap();
}
