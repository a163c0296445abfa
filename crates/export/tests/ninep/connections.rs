//! Many concurrent requests and clients: order of replies, flushes, restarted sessions, and the server's end.

use platter_export::ninep::{NinepOptions, NinepServer};
use platter_export::tree::ROOT;
use platter_image::ErrorKind;
use platter_transport::Listener;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::memory_tree::{MemoryTree, pattern};
use crate::raw_client::*;
use crate::running_server::{RunningServer, options};

/// A fid that no test uses for anything else.
const SLOW: u32 = 900;

impl RawClient {
    /// Makes the server notice that requests may wait.
    pub(crate) fn slow_down(&mut self) {
        self.open(SLOW, &["slow"], RDONLY);
        for _ in 0..4 {
            assert_eq!(self.read(SLOW, 0, 512), pattern(0, 512));
        }
    }

    fn send_read(&mut self, tag: u16, fid: u32) {
        self.send(&message(READ, tag, &[Int(fid), Long(0), Int(10)]));
    }

    fn send_flush(&mut self, tag: u16, old_tag: u16) {
        self.send(&message(FLUSH, tag, &[Short(old_tag)]));
    }

    fn next(&mut self) -> (u16, u8) {
        let reply = self.reply();
        (reply.tag, reply.kind)
    }
}

#[test]
fn pipelined_requests_all_have_their_own_reply() {
    let server = RunningServer::new();
    for slow in [false, true] {
        let mut client = server.attach();
        if slow {
            client.slow_down();
        }
        client.open(1, &["lab", "disk"], RDONLY);
        let mut requests = Vec::new();
        for n in 0..300u16 {
            let fields = [Int(1), Long(20_000 + u64::from(n) * 7), Int(100 + u32::from(n))];
            requests.extend_from_slice(&message(READ, n * 3, &fields));
        }
        client.send(&requests);
        let mut tags = Vec::new();
        for _ in 0..300 {
            let reply = client.reply();
            let n = reply.tag / 3;
            assert_eq!(reply.data(), pattern(20_000 + u64::from(n) * 7, 100 + usize::from(n)));
            tags.push(reply.tag);
        }
        tags.sort_unstable();
        assert_eq!(tags, (0..300).map(|n| n * 3).collect::<Vec<u16>>());
    }
}

#[test]
fn a_waiting_request_delays_no_other() {
    let server = RunningServer::new();
    let mut client = server.attach();
    client.open(1, &["gated"], RDONLY);
    client.open(2, &["lab", "disk"], RDWR);
    client.slow_down();
    client.send_read(500, 1);
    server.tree.gate.wait_for(1);
    assert_eq!(client.read(2, 50_000, 512), pattern(50_000, 512));
    assert_eq!(client.write(2, 60_000, b"while it waits").error(), None);
    client.done(FSYNC, &[Int(2), Int(0)]);
    client.clunk(2);
    assert_eq!(client.walk(0, 2, &["lab"]).error(), None);
    // Another client is not delayed either.
    assert_eq!(server.attach().walk(0, 1, &["lab"]).error(), None);
    server.tree.gate.open();
    let reply = client.reply();
    assert_eq!((reply.tag, reply.data()), (500, &pattern(0, 10)[..]));
}

#[test]
fn a_flushed_read_is_abandoned_and_its_tag_is_free() {
    let server = RunningServer::new();
    let mut client = server.attach();
    client.open(1, &["gated"], RDONLY);
    client.slow_down();
    client.send_read(500, 1);
    server.tree.gate.wait_for(1);
    client.send_flush(501, 500);
    assert_eq!(client.next(), (501, FLUSH + 1));
    // The tag's next request gets exactly its own reply.
    client.send(&message(WALK, 500, &[Int(0), Int(2), Short(0)]));
    assert_eq!(client.next(), (500, WALK + 1));
    server.tree.gate.open();
    client.clunk(2);
    client.clunk(1);
}

#[test]
fn a_flush_of_a_change_waits_for_the_change() {
    let server = RunningServer::new();
    let mut client = server.attach();
    client.open(1, &["gated"], RDWR);
    client.slow_down();
    client.send(&message(WRITE, 500, &[Int(1), Long(0), Int(3), Raw(b"new")]));
    server.tree.gate.wait_for(1);
    client.send_flush(501, 500);
    client.send_flush(502, 500);
    // Later requests are not delayed.
    client.send_flush(503, 77);
    assert_eq!(client.next(), (503, FLUSH + 1), "no request has this tag");
    server.tree.gate.open();
    assert_eq!(client.next(), (500, WRITE + 1));
    assert_eq!(client.next(), (501, FLUSH + 1));
    assert_eq!(client.next(), (502, FLUSH + 1));
    assert_eq!(server.tree.contents(ROOT, "gated")[..3], *b"new");
}

#[test]
fn a_request_that_is_flushed_before_it_starts_is_not_executed() {
    let server = RunningServer::with(NinepOptions { workers: 1, ..options() });
    let mut client = server.attach();
    client.open(1, &["gated"], RDWR);
    client.open(2, &["lab", "disk"], RDWR);
    client.slow_down();
    client.send_read(500, 1);
    server.tree.gate.wait_for(1);
    client.send(&message(WRITE, 501, &[Int(2), Long(0), Int(5), Raw(b"never")]));
    client.send_flush(502, 501);
    assert_eq!(client.next(), (502, FLUSH + 1));
    server.tree.gate.open();
    assert_eq!(client.next(), (500, READ + 1));
    client.clunk(2);
    assert!(!server.tree.logged().contains(&"write disk".to_owned()));
}

#[test]
fn flushes_race_with_replies_and_every_tag_is_answered_in_order() {
    let server = RunningServer::new();
    let mut client = server.attach();
    client.open(1, &["slow"], RDONLY);
    client.slow_down();
    for _ in 0..100 {
        client.send_read(500, 1);
        client.send_flush(501, 500);
        let first = client.next();
        if first != (501, FLUSH + 1) {
            assert_eq!(first, (500, READ + 1));
            assert_eq!(client.next(), (501, FLUSH + 1));
        }
        // The next message after the flush's reply is the reply to the next request.
        client.send(&message(GETATTR, 500, &[Int(0), Long(0x7ff)]));
        assert_eq!(client.next(), (500, GETATTR + 1));
    }
}

#[test]
fn a_version_request_waits_for_pending_requests_and_starts_a_new_session() {
    let server = RunningServer::new();
    let mut client = server.attach();
    client.open(1, &["gated"], RDWR);
    client.slow_down();
    client.send(&message(WRITE, 500, &[Int(1), Long(0), Int(3), Raw(b"old")]));
    server.tree.gate.wait_for(1);
    client.send(&message(VERSION, NO_TAG, &[Int(8192), Text("9P2000.L")]));
    server.tree.gate.open();
    assert_eq!(client.next(), (500, WRITE + 1));
    assert_eq!(client.next(), (NO_TAG, VERSION + 1));
    assert_eq!(client.error(CLUNK, &[Int(1)]), EBADF);
    assert_eq!(client.error(CLUNK, &[Int(0)]), EBADF);
    client.attach(0);
    assert!(!server.tree.logged().contains(&"close gated".to_owned()), "the file was not closed by a clunk");
}

#[test]
fn a_stalled_client_leaves_room_for_others_and_excess_clients_are_rejected() {
    let server = RunningServer::with(NinepOptions { connections_max: 2, ..options() });
    let (mut first, mut second) = (server.attach(), server.attach());
    assert!(server.connect().is_closed());
    server.wait_for("TurnedAway");
    drop(first.stream);
    server.wait_for("Disconnected { connection: 1, error: None }");
    first = server.attach();
    assert_eq!(first.walk(0, 1, &["lab"]).error(), None);
    assert_eq!(second.walk(0, 1, &["lab"]).error(), None);
}

#[test]
fn at_the_end_new_requests_are_refused_and_started_ones_finish() {
    let server = RunningServer::with(NinepOptions {
        farewell_time: std::time::Duration::from_secs(20),
        ..NinepOptions::default()
    });
    let mut client = server.attach();
    client.open(1, &["gated"], RDONLY);
    client.slow_down();
    client.send_read(500, 1);
    server.tree.gate.wait_for(1);
    server.ask_to_stop();
    while server.path().exists() {
        std::thread::yield_now();
    }
    assert_eq!(client.error(GETATTR, &[Int(0), Long(0x7ff)]), ESHUTDOWN);
    server.tree.gate.open();
    assert_eq!(client.next(), (500, READ + 1));
    drop(client);
    server.finish();
}

#[test]
fn only_the_owner_may_connect_and_only_from_this_machine() {
    let server = RunningServer::new();
    assert_eq!(std::fs::metadata(server.path()).unwrap().permissions().mode() & 0o777, 0o600);
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let listener = Listener::tcp(any).unwrap();
    let stop = AtomicBool::new(true);
    let refused = NinepServer::serve(listener, Arc::new(MemoryTree::new()), options(), &stop);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Refused);
}
