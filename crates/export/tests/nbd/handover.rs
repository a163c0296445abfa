//! A server that pauses, and another that continues with its clients: under load, within a request, and when a request
//! takes too long.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use platter_export::nbd::{NbdOptions, NbdServer};
use platter_export::{MovedSession, Pause, RunEnd, SocketHandover, SocketServer};
use platter_image::{ErrorKind, Extent};
use platter_transport::{Listener, Parcel};

use crate::memory::{Disks, Memory, pattern};
use crate::moving::{run_while, through_a_socket};
use crate::raw_client::{FLUSH, READ, RawClient, WRITE, pieces, request_bytes};

const DISK_BYTES: usize = 8 << 20;
const ROUNDS: u64 = 60;
/// Requests to be answered between two pauses.
const BETWEEN: u64 = 50;

fn server(
    listener: Listener,
    sessions: Vec<MovedSession>,
    disk: &Arc<Memory>,
    pause: &Arc<Pause>,
) -> SocketServer {
    let exports = Arc::new(Disks(vec![("disk", Arc::clone(disk))]));
    NbdServer::over(listener, sessions, exports, NbdOptions::default(), Arc::clone(pause)).unwrap()
}

/// The listener and sessions as another process receives them through a socket.
fn sent(mut server: SocketServer) -> (Listener, Vec<MovedSession>) {
    let received = through_a_socket(&server.to_parcels().unwrap());
    server.leave();
    let SocketHandover { listener, sessions } = SocketHandover::from_parcels(received).unwrap();
    (listener, sessions)
}

/// Writes and reads its own part of the disk, with many requests of all sizes in flight, and checks each byte.
fn work(mut client: RawClient, part: u64, stop: &AtomicBool, answered: &AtomicU64) {
    const PART: u64 = 1 << 20;
    let mut model = pattern(part * PART, PART as usize);
    let mut seed = part + 1;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    while !stop.load(Ordering::Relaxed) {
        let length = if random(4) == 0 { 300_000 } else { 4096 };
        let (at, read_at) = (random(PART - length), random(PART - 4096));
        let bytes: Vec<u8> = (0..length).map(|n| (n + at) as u8).collect();
        model[at as usize..(at + length) as usize].copy_from_slice(&bytes);
        let mut sent = request_bytes(WRITE, 0, 1, part * PART + at, length as u32);
        sent.extend_from_slice(&bytes);
        client.send(&sent);
        assert_eq!(client.reply().error, 0);
        let reads: Vec<u8> =
            (0..8).flat_map(|n| request_bytes(READ, 0, n, part * PART + read_at, 4096)).collect();
        client.send(&reads);
        let expected = model[read_at as usize..read_at as usize + 4096].to_vec();
        for _ in 0..8 {
            let reply = client.reply();
            assert_eq!(pieces(&[reply]), [(part * PART + read_at, Some(expected.clone()), 4096)]);
        }
        assert_eq!(client.error_of(FLUSH, 0, 0, 0), 0);
        answered.fetch_add(10, Ordering::Relaxed);
    }
    let offset = part * PART;
    assert_eq!(pieces(&client.ask(READ, 4, offset, PART as u32)), [(offset, Some(model), PART as usize)]);
}

fn open(path: &std::path::Path) -> RawClient {
    let mut client = RawClient::connect(path);
    client.structured_reply();
    client.set_context("disk", "base:allocation");
    client.go("disk");
    client
}

#[test]
fn clients_under_load_lose_nothing_when_they_move_many_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let disk = Arc::new(Memory::new(DISK_BYTES, &[]));
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut pause = Arc::new(Pause::new().unwrap());
    let mut server_now = server(Listener::unix(&path).unwrap(), Vec::new(), &disk, &pause);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|part| {
                let (path, stop, answered) = (&path, &stop, &answered);
                scope.spawn(move || work(open(path), part, stop, answered))
            })
            .collect();
        for round in 0..ROUNDS {
            let (end, ()) = run_while(
                |stop| server_now.run(stop).unwrap(),
                &pause,
                || {
                    while answered.load(Ordering::Relaxed) < (round + 1) * BETWEEN
                        && !clients.iter().any(thread::ScopedJoinHandle::is_finished)
                    {
                        thread::yield_now();
                    }
                },
            );
            assert_eq!(end, RunEnd::Paused);
            let (listener, sessions) = sent(server_now);
            // The next process has a pause object of its own.
            pause = Arc::new(Pause::new().unwrap());
            server_now = server(listener, sessions, &disk, &pause);
        }
        let (_, ()) = run_while(
            |stop| server_now.run(stop).unwrap(),
            &pause,
            || {
                stop.store(true, Ordering::Relaxed);
                clients.into_iter().for_each(|client| client.join().unwrap());
            },
        );
    });
}

#[test]
fn a_request_that_arrived_in_part_is_executed_by_the_next_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let disk = Arc::new(Memory::new(DISK_BYTES, &[]));
    let pause = Arc::new(Pause::new().unwrap());
    let mut first = server(Listener::unix(&path).unwrap(), Vec::new(), &disk, &pause);
    let bytes = vec![7; 200_000];
    let mut request = request_bytes(WRITE, 0, 9, 4096, 200_000);
    request.extend_from_slice(&bytes);
    let (end, mut client) = run_while(
        |stop| first.run(stop).unwrap(),
        &pause,
        || {
            let mut client = open(&path);
            client.send(&request[..150_000]);
            client
        },
    );
    assert_eq!(end, RunEnd::Paused);
    let (listener, sessions) = sent(first);
    let mut second = server(listener, sessions, &disk, &pause);
    // No server runs now: a new client waits until the next one starts.
    let waiting = thread::spawn(move || open(&path).error_of(FLUSH, 0, 0, 0));
    run_while(
        |stop| second.run(stop).unwrap(),
        &pause,
        || {
            client.send(&request[150_000..]);
            let reply = client.reply();
            assert_eq!((reply.cookie, reply.error), (9, 0));
            assert_eq!(disk.contents()[4096..204_096], bytes);
            assert_eq!(waiting.join().unwrap(), 0);
        },
    );
}

#[test]
fn a_request_that_takes_too_long_keeps_its_server() {
    let gated = Extent::new(8192, 4096);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let disk = Arc::new(Memory { gated: std::iter::once(gated).collect(), ..Memory::new(DISK_BYTES, &[]) });
    let pause = Arc::new(Pause::new().unwrap());
    let mut server = server(Listener::unix(&path).unwrap(), Vec::new(), &disk, &pause);
    let (end, (mut stuck, mut other)) = run_while(
        |stop| server.run(stop).unwrap(),
        &pause,
        || {
            let (mut stuck, mut other) = (open(&path), open(&path));
            assert_eq!(stuck.error_of(FLUSH, 0, 0, 0), 0);
            stuck.request(READ, 0, 1, gated.offset, 512);
            assert_eq!(other.error_of(FLUSH, 0, 0, 0), 0);
            while disk.bytes_read.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            (stuck, other)
        },
    );
    assert_eq!(end, RunEnd::Busy);
    run_while(
        |stop| server.run(stop).unwrap(),
        &pause,
        || {
            assert_eq!(other.error_of(FLUSH, 0, 0, 0), 0);
            disk.open_gate();
            assert_eq!(stuck.reply().cookie, 1);
            assert_eq!(stuck.error_of(FLUSH, 0, 0, 0), 0);
        },
    );
}

#[test]
fn a_client_whose_disk_was_replaced_is_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let pause = Arc::new(Pause::new().unwrap());
    let disk = |length| Arc::new(Memory::new(length, &[]));
    let mut first = server(Listener::unix(&path).unwrap(), Vec::new(), &disk(DISK_BYTES), &pause);
    let (_, mut client) = run_while(|stop| first.run(stop).unwrap(), &pause, || open(&path));
    let (listener, sessions) = sent(first);
    let mut second = server(listener, sessions, &disk(DISK_BYTES / 2), &pause);
    run_while(|stop| second.run(stop).unwrap(), &pause, || assert!(client.is_closed()));
}

#[test]
fn parcels_are_bounded() {
    let (from, to) = UnixStream::pair().unwrap();
    Parcel { bytes: vec![1; 100], descriptors: Vec::new() }.send(&from).unwrap();
    assert_eq!(Parcel::receive(&to, 99).unwrap_err().kind(), ErrorKind::Corrupt);
    drop(from);
    let (from, to) = UnixStream::pair().unwrap();
    drop(from);
    assert_eq!(Parcel::receive(&to, 99).unwrap_err().kind(), ErrorKind::Transient);
}
