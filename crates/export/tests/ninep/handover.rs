//! A server that pauses, and another that continues with its clients: open files, directories that are being read, and
//! messages that arrived in part.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use platter_export::ninep::NinepServer;
use platter_export::tree::ROOT;
use platter_export::{Pause, RunEnd, SocketHandover, SocketServer};
use platter_transport::Listener;

use crate::memory_tree::{MemoryTree, pattern};
use crate::moving::{run_while, through_a_socket};
use crate::raw_client::*;
use crate::running_server::options;

const ROUNDS: usize = 40;

/// Another server with the state of the first, sent through a socket.
fn next(mut server: SocketServer, tree: &Arc<MemoryTree>, pause: &Arc<Pause>) -> SocketServer {
    let received = through_a_socket(&server.to_parcels().unwrap());
    server.leave();
    let SocketHandover { listener, sessions } = SocketHandover::from_parcels(received).unwrap();
    NinepServer::over(listener, sessions, Arc::clone(tree) as _, options(), Arc::clone(pause)).unwrap()
}

#[test]
fn open_files_and_directories_stay_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let (tree, pause) = (Arc::new(MemoryTree::new()), Arc::new(Pause::new().unwrap()));
    let listener = Listener::unix(&path).unwrap();
    let mut first =
        NinepServer::over(listener, Vec::new(), Arc::clone(&tree) as _, options(), Arc::clone(&pause))
            .unwrap();
    let request = message(WRITE, 900, &[Int(1), Long(5000), Int(3000), Raw(&[9; 3000])]);
    let (end, (mut client, silent, seen)) = run_while(
        |stop| first.run(stop).unwrap(),
        &pause,
        || {
            let silent = RawClient::connect(&path);
            let mut client = RawClient::connect(&path);
            client.version(65_536);
            client.attach(0);
            client.open(1, &["lab", "disk"], 2);
            client.open(2, &[], 0);
            let seen = client.list(2, 0, 60);
            client.send(&request[..2000]);
            (client, silent, seen)
        },
    );
    assert_eq!(end, RunEnd::Paused);
    let mut second = next(first, &tree, &pause);
    let (_, ()) = run_while(
        |stop| second.run(stop).unwrap(),
        &pause,
        || {
            client.send(&request[2000..]);
            let reply = client.reply();
            assert_eq!((reply.tag, reply.error()), (900, None));
            assert_eq!(client.read(1, 4000, 1000), pattern(4000, 1000));
            assert_eq!(client.read(1, 5000, 3000), [9; 3000]);
            let more = client.list(2, seen.last().unwrap().1, 4000);
            assert!(more.iter().all(|name| !seen.contains(name)), "{seen:?} {more:?}");
            assert!(more.iter().any(|(name, _)| name == "lab") || seen.iter().any(|(name, _)| name == "lab"));
            // A client that had sent nothing yet starts now.
            let mut silent = silent;
            silent.version(8192);
            silent.attach(0);
        },
    );
}

#[test]
fn a_client_under_load_moves_many_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let (tree, stop) = (Arc::new(MemoryTree::new()), AtomicBool::new(false));
    let mut pause = Arc::new(Pause::new().unwrap());
    let listener = Listener::unix(&path).unwrap();
    let mut server =
        NinepServer::over(listener, Vec::new(), Arc::clone(&tree) as _, options(), Arc::clone(&pause))
            .unwrap();
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut client = RawClient::connect(&path);
            client.version(65_536);
            client.attach(0);
            client.open(1, &["lab", "disk"], 2);
            let mut model = pattern(0, 1 << 20);
            let mut at = 0;
            while !stop.load(Ordering::Relaxed) {
                at = (at + 7773) % 900_000;
                let bytes: Vec<u8> = (0..5000).map(|n| (n ^ at) as u8).collect();
                assert_eq!(client.write(1, at as u64, &bytes).error(), None);
                model[at..at + 5000].copy_from_slice(&bytes);
                assert_eq!(client.read(1, at as u64, 9000), model[at..at + 9000]);
                client.walk(0, 2, &["fixed"]);
                client.clunk(2);
            }
            model
        });
        for round in 0..ROUNDS {
            let seen = tree.logged().len();
            let (end, ()) = run_while(
                |stop| server.run(stop).unwrap(),
                &pause,
                || {
                    while tree.logged().len() < seen + 20 && !worker.is_finished() {
                        thread::yield_now();
                    }
                },
            );
            assert_eq!(end, RunEnd::Paused, "round {round}");
            pause = Arc::new(Pause::new().unwrap());
            server = next(server, &tree, &pause);
        }
        let (_, model) = run_while(
            |stop| server.run(stop).unwrap(),
            &pause,
            || {
                stop.store(true, Ordering::Relaxed);
                worker.join().unwrap()
            },
        );
        let lab = platter_export::tree::Tree::lookup(&*tree, ROOT, "lab").unwrap().id;
        assert!(tree.contents(lab, "disk")[..1 << 20] == model[..]);
    });
}
