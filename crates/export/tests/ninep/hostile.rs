//! Clients that violate the protocol, or almost do.

use std::time::Duration;

use platter_export::ninep::NinepOptions;

use crate::raw_client::*;
use crate::running_server::{RunningServer, options};

#[test]
fn other_versions_are_unknown() {
    let server = RunningServer::new();
    let mut client = server.connect();
    for other in ["9P2000", "9P2000.u", "", "9P2000.L2"] {
        let body = client.done(VERSION, &[Int(8192), Text(other)]);
        assert_eq!(body, message(0, 0, &[Int(8192), Text("unknown")])[7..]);
    }
    assert_eq!(client.error(VERSION, &[Int(4095), Text("9P2000.L")]), EINVAL);
    assert_eq!(client.version(8192), 8192, "the client may try again");
    client.attach(0);
    // An unknown version ends the session as well.
    client.done(VERSION, &[Int(8192), Text("9P3000")]);
    client.send(&message(ATTACH, 1, &[Int(0), Int(NO_FID), Text(""), Text(""), Int(0)]));
    assert!(client.is_closed());
}

#[test]
fn requests_before_the_version_end_the_connection() {
    let server = RunningServer::new();
    let mut client = server.connect();
    client.send(&message(ATTACH, 1, &[Int(0), Int(NO_FID), Text(""), Text(""), Int(0)]));
    assert!(client.is_closed());
    assert!(server.wait_for("Disconnected").contains("before the version"));
}

#[test]
fn a_wrong_message_size_ends_the_connection() {
    let server = RunningServer::new();
    for size in [0u32, 6, 65_537, 1 << 20, u32::MAX] {
        let mut client = server.attach();
        let mut bytes = message(CLUNK, 1, &[Int(0)]);
        bytes[..4].copy_from_slice(&size.to_le_bytes());
        client.send(&bytes);
        assert!(client.is_closed(), "{size}");
    }
    // Before the session starts, the limit is low.
    let mut client = server.connect();
    client.send(&4097u32.to_le_bytes());
    client.send(&[VERSION, 0xff, 0xff]);
    assert!(client.is_closed());
}

#[test]
fn a_malformed_body_is_an_error_and_the_next_message_is_read() {
    let server = RunningServer::new();
    let mut client = server.attach();
    let lies: [(u8, &[Field<'_>]); 10] = [
        (CLUNK, &[]),
        (CLUNK, &[Short(0)]),
        (CLUNK, &[Int(0), Byte(0)]),
        (WALK, &[Int(0), Int(1), Short(1)]),
        (WALK, &[Int(0), Int(1), Short(1), Short(9), Raw(b"lab")]),
        (WALK, &[Int(0), Int(1), Short(0xffff)]),
        (WRITE, &[Int(0), Long(0), Int(u32::MAX), Raw(b"few")]),
        (WRITE, &[Int(0), Long(0), Int(1), Raw(b"many")]),
        (ATTACH, &[Int(1), Int(NO_FID), Short(0xffff)]),
        (FLUSH, &[Byte(1)]),
    ];
    for (kind, fields) in lies {
        assert_eq!(client.error(kind, fields), EPROTO);
    }
    let mut names = vec![Int(0), Int(1), Short(17)];
    names.extend((0..17).map(|_| Text("..")));
    assert_eq!(client.error(WALK, &names), EPROTO, "at most sixteen names are allowed");
    assert_eq!(client.walk(0, 1, &["lab"]).error(), None);
}

#[test]
fn a_message_may_arrive_byte_by_byte() {
    let server = RunningServer::new();
    let mut client = server.attach();
    for byte in message(WALK, 77, &[Int(0), Int(1), Short(1), Text("lab")]) {
        client.send(&[byte]);
    }
    assert_eq!((client.reply().tag, client.walk(1, 2, &["disk"]).error()), (77, None));
    // Half a message, then the end of the stream.
    client.send(&message(CLUNK, 1, &[Int(0)])[..9]);
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(client.is_closed());
    assert!(server.wait_for("Disconnected").contains("within a request"));
}

#[test]
fn clients_that_stall_are_disconnected() {
    let times = Duration::from_millis(50);
    let server = RunningServer::with(NinepOptions { handshake_time: times, stall_time: times, ..options() });
    assert!(server.connect().is_closed(), "says nothing");
    server.wait_for("too long to say anything");
    let mut client = server.attach();
    client.send(&[9, 0]);
    assert!(client.is_closed(), "after half a message");
    server.wait_for("within a request");
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let server = RunningServer::with(NinepOptions { stall_time: Duration::from_millis(100), ..options() });
    let mut client = server.attach();
    client.open(1, &["lab", "disk"], RDONLY);
    let mut requests = Vec::new();
    for tag in 0..400 {
        requests.extend_from_slice(&message(READ, tag, &[Int(1), Long(0), Int(60_000)]));
    }
    client.send(&requests);
    server.wait_for("does not read its replies");
}

#[test]
fn two_requests_with_one_tag_end_the_connection() {
    let server = RunningServer::new();
    let mut client = server.attach();
    client.open(1, &["slow"], RDONLY);
    client.slow_down();
    // The first may be answered before the second is read, but that cannot hold for all of them.
    client.send(&message(READ, 5, &[Int(1), Long(0), Int(10)]).repeat(50));
    assert!(server.wait_for("Disconnected").contains("the tag 5"));
}
