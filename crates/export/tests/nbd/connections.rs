//! Many concurrent requests and clients: order of replies, budgets, misbehaving clients, and the server's end.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use platter_export::nbd::{NbdOptions, NbdServer};
use platter_image::{ErrorKind, Extent, Extents};
use platter_transport::Listener;

use crate::memory::{Disks, Memory, pattern};
use crate::raw_client::{FLUSH, READ, RawClient, WRITE, pieces, request_bytes};
use crate::running_server::RunningServer;

const MIB: u32 = 1 << 20;
/// Reads here are slow, which makes the server use its workers.
const SLOW: Extent = Extent::new(0, 4096);
/// Reads here wait for the test.
const GATED: Extent = Extent::new(8192, 4096);

fn one(extent: Extent) -> Extents {
    std::iter::once(extent).collect()
}

fn disk() -> Arc<Memory> {
    Arc::new(Memory { slow: one(SLOW), gated: one(GATED), ..Memory::new(4 << 20, &[]) })
}

fn options() -> NbdOptions {
    NbdOptions { farewell_time: Duration::from_millis(100), ..NbdOptions::default() }
}

/// Makes the server notice that reads of the disk may wait.
fn slow_down(client: &mut RawClient) {
    for _ in 0..4 {
        assert_eq!(pieces(&client.ask(READ, 0, 0, 512)), [(0, Some(pattern(0, 512)), 512)]);
    }
}

#[test]
fn pipelined_requests_all_have_their_own_reply() {
    let server = RunningServer::of(&disk());
    for slow in [false, true] {
        let mut client = server.open(true);
        if slow {
            slow_down(&mut client);
        }
        let mut requests = Vec::new();
        for n in 0..300u64 {
            requests.extend_from_slice(&request_bytes(READ, 0, !n, 20_000 + n * 7, 100 + n as u32));
        }
        client.send(&requests);
        let mut cookies = Vec::new();
        for _ in 0..300 {
            let reply = client.reply();
            let n = !reply.cookie;
            let offset = 20_000 + n * 7;
            let length = 100 + n as usize;
            assert_eq!(pieces(&[reply]), [(offset, Some(pattern(offset, length)), length)]);
            cookies.push(n);
        }
        cookies.sort_unstable();
        assert_eq!(cookies, (0..300).collect::<Vec<u64>>());
    }
}

#[test]
fn a_waiting_request_delays_no_other() {
    let disk = disk();
    let server = RunningServer::of(&disk);
    let mut client = server.open(true);
    slow_down(&mut client);
    client.request(READ, 0, 1, GATED.offset, 512);
    client.request(READ, 0, 2, 50_000, 512);
    assert_eq!(client.reply().cookie, 2, "the second request does not wait for the first");
    assert_eq!(client.write(0, 60_000, b"while it waits"), 0);
    assert_eq!(client.error_of(FLUSH, 0, 0, 0), 0);
    disk.open_gate();
    assert_eq!(client.reply().cookie, 1);
}

/// Even if all reads so far were quick: the disk announces that this read will wait, so the server hands it to a
/// worker.
#[test]
fn a_read_that_is_announced_to_wait_delays_no_other() {
    let disk = Arc::new(Memory { gated: one(GATED), tells: true, ..Memory::new(4 << 20, &[]) });
    let server = RunningServer::of(&disk);
    let mut client = server.open(true);
    let reads = [(1, GATED.offset), (2, 50_000), (3, 60_000)];
    client.send(&reads.map(|(cookie, offset)| request_bytes(READ, 0, cookie, offset, 512)).concat());
    assert_eq!([client.reply().cookie, client.reply().cookie], [2, 3]);
    disk.open_gate();
    assert_eq!(client.reply().cookie, 1);
}

#[test]
fn a_disconnect_request_waits_for_replies() {
    let disk = disk();
    let server = RunningServer::of(&disk);
    let mut client = server.open(true);
    slow_down(&mut client);
    client.request(READ, 0, 1, GATED.offset, 512);
    client.request(2, 0, 2, 0, 0);
    disk.open_gate();
    assert_eq!(client.reply().cookie, 1);
    assert!(client.is_closed());
}

#[test]
fn requests_before_a_malformed_one_are_answered() {
    let server = RunningServer::of(&disk());
    let mut client = server.open(false);
    let mut broken = request_bytes(READ, 0, 8, 0, 512);
    broken[0] ^= 1;
    client.send(&[request_bytes(FLUSH, 0, 7, 0, 0), broken].concat());
    assert_eq!(client.reply().cookie, 7);
    assert!(client.is_closed());
    server.wait_for("a request begins with 0x24609513");
}

#[test]
fn a_write_that_arrives_only_in_part_changes_nothing() {
    let disk = disk();
    let server = RunningServer::of(&disk);
    let mut client = server.open(false);
    client.request(WRITE, 0, 1, 20_000, 100_000);
    client.send(&[0xee; 50_000]);
    drop(client);
    server.wait_for("disconnected within a request");
    assert_eq!(disk.contents(), pattern(0, 4 << 20));
    let mut client = server.open(false);
    client.send(&[0x25, 0x60]);
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(client.is_closed());
}

/// With a single worker: if it waited for a client's socket, nobody else would be served.
#[test]
fn a_client_that_does_not_read_delays_nobody_and_is_disconnected() {
    for slow in [false, true] {
        let options = NbdOptions { workers: 1, stall_time: Duration::from_millis(700), ..options() };
        let disk = disk();
        let server = RunningServer::start(Disks(vec![("disk", Arc::clone(&disk))]), options);
        let mut stuck = server.open(true);
        let mut other = server.open(true);
        if slow {
            slow_down(&mut stuck);
            slow_down(&mut other);
        }
        let mut requests = Vec::new();
        for n in 0..500 {
            requests.extend_from_slice(&request_bytes(READ, 0, n, 1 << 20, 2 * MIB));
        }
        stuck.send(&requests);
        for _ in 0..20 {
            assert_eq!(other.ask(READ, 0, 0, 4096).len(), 1);
        }
        server.wait_for("Disconnected { connection: 1, error: Some(Error { kind: Transient, context: \"the client does not read");
        assert_eq!(other.ask(READ, 0, 0, 4096).len(), 1);
        // The client requested 1,000 MiB. The server read only what may be in flight, and what the socket took.
        assert!(disk.bytes_read.load(Ordering::Relaxed) < 24 << 20);
    }
}

#[test]
fn a_client_that_stalls_within_a_request_is_disconnected_and_an_idle_one_is_not() {
    let options = NbdOptions { stall_time: Duration::from_millis(100), ..options() };
    let server = RunningServer::start(Disks(vec![("disk", disk())]), options);
    let mut idle = server.open(false);
    let mut client = server.open(false);
    client.request(WRITE, 0, 1, 0, 1000);
    client.send(&[1; 10]);
    assert!(client.is_closed());
    server.wait_for("stalled within a request");
    assert_eq!(idle.error_of(FLUSH, 0, 0, 0), 0);
}

#[test]
fn the_number_of_clients_is_limited() {
    let options = NbdOptions { connections_max: 2, ..options() };
    let server = RunningServer::start(Disks(vec![("disk", disk())]), options);
    let first = server.open(false);
    let mut second = server.open(false);
    let mut third = RawClient { stream: std::os::unix::net::UnixStream::connect(server.path()).unwrap() };
    assert!(third.is_closed());
    server.wait_for("the limit of 2 clients is reached");
    assert_eq!(second.error_of(FLUSH, 0, 0, 0), 0);
    drop(first);
    server.wait_for("Disconnected { connection: 1");
    assert_eq!(server.open(false).error_of(FLUSH, 0, 0, 0), 0);
}

#[test]
fn at_the_end_new_requests_are_refused_and_started_ones_finish() {
    let disk = disk();
    let options = NbdOptions { farewell_time: Duration::from_secs(20), ..NbdOptions::default() };
    let server = RunningServer::start(Disks(vec![("disk", Arc::clone(&disk))]), options);
    let mut client = server.open(true);
    slow_down(&mut client);
    client.request(READ, 0, 1, GATED.offset, 512);
    server.ask_to_stop();
    // The socket's file is removed when the server starts to refuse requests.
    while server.path().exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(client.write(0, 50_000, b"too late"), 108);
    disk.open_gate();
    assert_eq!(client.reply().cookie, 1);
    client.request(2, 0, 0, 0, 0);
    assert!(client.is_closed());
    server.finish();
    assert_eq!(disk.contents(), pattern(0, 4 << 20));
}

#[test]
fn at_the_end_remaining_clients_are_disconnected() {
    let server = RunningServer::start(Disks(vec![("disk", disk())]), options());
    let mut idle = server.open(false);
    let mut talking = server.connect();
    server.ask_to_stop();
    assert!(idle.is_closed() && talking.is_closed());
    server.finish();
}

/// A disk that hangs, with more requests than workers: other disks are served, and the server ends.
#[test]
fn a_hanging_disk_delays_neither_others_nor_the_end() {
    let (hangs, slow) = (disk(), disk());
    let options = NbdOptions { workers: 2, hang_time: Duration::from_millis(200), ..options() };
    let disks = Disks(vec![("disk", Arc::clone(&hangs)), ("other", slow)]);
    let server = RunningServer::start(disks, options);
    let mut stuck = server.open(true);
    let mut other = server.connect();
    other.structured_reply();
    other.go("other");
    slow_down(&mut stuck);
    slow_down(&mut other);
    for cookie in 0..60 {
        stuck.request(READ, 0, cookie, GATED.offset, 512);
    }
    for _ in 0..8 {
        assert_eq!(pieces(&other.ask(READ, 0, 0, 512)), [(0, Some(pattern(0, 512)), 512)]);
    }
    other.request(2, 0, 0, 0, 0);
    assert!(other.is_closed());
    let error = server.finish_with_error();
    assert_eq!(error.kind(), ErrorKind::Transient);
    hangs.open_gate();
}

/// Clients that read no replies request 16 MiB each, until the server's buffers are used up. One more client is still
/// served.
#[test]
fn greedy_clients_leave_room_for_others() {
    let disk = Arc::new(Memory { slow: one(SLOW), ..Memory::new(16 << 20, &[]) });
    let options = NbdOptions { bytes_in_flight_max: 64 << 20, ..options() };
    let server = RunningServer::start(Disks(vec![("disk", Arc::clone(&disk))]), options);
    let greedy: Vec<RawClient> = (0..8)
        .map(|_| {
            let mut client = server.open(true);
            for cookie in 0..4 {
                client.request(READ, 0, cookie, 0, 16 * MIB);
            }
            client
        })
        .collect();
    let mut other = server.open(true);
    for n in 0..20 {
        let offset = n * 70_000;
        let read = other.ask(READ, 0, offset, 70_000);
        assert_eq!(pieces(&read), [(offset, Some(pattern(offset, 70_000)), 70_000)]);
    }
    // The greedy clients requested 512 MiB; the sockets take less than one MiB.
    assert!(disk.bytes_read.load(Ordering::Relaxed) < 68 << 20);
    drop(greedy);
}

/// Every read of a damaged place fails, but only one event is reported.
#[test]
fn a_damaged_place_is_reported_once() {
    let disk = Arc::new(Memory { bad: one(Extent::new(65536, 4096)), ..Memory::new(4 << 20, &[]) });
    let server = RunningServer::start(Disks(vec![("disk", disk)]), options());
    let mut client = server.open(true);
    for _ in 0..10 {
        assert_eq!(client.error_of(READ, 0, 65536, 4096), 5);
        assert_eq!(client.error_of(READ, 0, 65536 + 4096, 4096), 0);
        assert_eq!(client.error_of(READ, 0, 65536 - 4096, 4096), 0);
    }
    assert_eq!(server.count_of("RequestFailed"), 1);
}

#[test]
fn tcp_without_tls_is_only_for_this_machine() {
    let stop = AtomicBool::new(true);
    let disks = || Arc::new(Disks(vec![("disk", disk())]));
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let refused = NbdServer::serve(Listener::tcp(any).unwrap(), disks(), options(), &stop);
    assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::Refused));
    let listener = Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.tcp_address().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| NbdServer::serve(listener, disks(), options(), &stop));
        let mut client = TcpStream::connect(address).unwrap();
        let mut greeting = [0; 18];
        std::io::Read::read_exact(&mut client, &mut greeting).unwrap();
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
        client.write_all(&[0; 4]).unwrap();
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap().unwrap();
    });
}
