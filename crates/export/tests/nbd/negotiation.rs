//! Options: the reply to each, and what ends the connection.

use std::sync::Arc;
use std::time::Duration;

use platter_export::nbd::NbdOptions;

use crate::memory::{Disks, Memory};
use crate::raw_client::{ACK, RawClient, context_query, info_request};
use crate::running_server::RunningServer;

const UNSUPPORTED: u32 = (1 << 31) + 1;
const POLICY: u32 = (1 << 31) + 2;
const INVALID: u32 = (1 << 31) + 3;
const UNKNOWN: u32 = (1 << 31) + 6;

fn disk() -> Arc<Memory> {
    Arc::new(Memory::new(1 << 20, &[]))
}

fn kind_of(client: &mut RawClient, code: u32, data: &[u8]) -> u32 {
    client.option(code, data).last().unwrap().0
}

#[test]
fn the_old_style_negotiation() {
    let server = RunningServer::of(&disk());
    let mut client = server.connect();
    client.send_option(1, b"disk");
    assert_eq!((client.u64(), client.u16()), (1 << 20, 0b1101_1110_1101));
    assert_eq!(client.write(0, 5, b"abc"), 0);
    // A client that does not set the no-zeroes flag gets 124 zeros.
    let mut client = server.connect();
    client.send_option(2, b"");
    let mut old = RawClient { stream: std::os::unix::net::UnixStream::connect(server.path()).unwrap() };
    old.bytes(18);
    old.send(&1u32.to_be_bytes());
    old.send_option(1, b"disk");
    assert_eq!(old.bytes(10).len(), 10);
    assert_eq!(old.bytes(124), [0; 124]);
    assert_eq!(old.write(0, 5, b"abc"), 0);
    let mut client = server.connect();
    client.send_option(1, b"other");
    assert!(client.is_closed());
}

#[test]
fn facts_of_an_export() {
    let read_only = Arc::new(Memory { is_read_only: true, ..Memory::new(4096, &[]) });
    let disks = Disks(vec![("disk", disk()), ("fixed", read_only)]);
    let server = RunningServer::start(disks, NbdOptions::default());
    let mut client = server.connect();
    let facts = client.option(6, &info_request("fixed", &[1, 2, 3, 99]));
    assert_eq!(
        facts,
        [
            (3, b"\0\0\0\0\0\0\0\0\x10\0\x05\x8f".to_vec()),
            (3, b"\0\x01fixed".to_vec()),
            (3, b"\0\x02the disk fixed".to_vec()),
            (3, b"\0\x03\0\0\0\x01\0\x01\0\0\x02\0\0\0".to_vec()),
            (ACK, Vec::new()),
        ]
    );
    let facts = client.option(6, &info_request("disk", &[3]));
    assert_eq!(facts[1], (3, b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0".to_vec()));
    assert_eq!(
        client.option(3, b""),
        [(2, b"\0\0\0\x04disk".to_vec()), (2, b"\0\0\0\x05fixed".to_vec()), (ACK, Vec::new())]
    );
    // With two exports, the empty name does not select one.
    assert_eq!(kind_of(&mut client, 6, &info_request("", &[])), UNKNOWN);
    assert_eq!(kind_of(&mut client, 7, &info_request("secret", &[])), POLICY);
    assert_eq!(kind_of(&mut client, 7, &info_request("fixed", &[])), ACK);
}

#[test]
fn the_empty_name_is_the_only_export() {
    let server = RunningServer::of(&disk());
    let facts = server.connect().option(6, &info_request("", &[1]));
    assert_eq!(facts[1], (3, b"\0\x01disk".to_vec()));
}

#[test]
fn unknown_and_invalid_options_get_errors() {
    let server = RunningServer::of(&disk());
    let mut client = server.connect();
    assert_eq!(kind_of(&mut client, 4, b""), UNSUPPORTED);
    assert_eq!(kind_of(&mut client, 5, b""), UNSUPPORTED);
    assert_eq!(kind_of(&mut client, 11, b""), UNSUPPORTED);
    assert_eq!(kind_of(&mut client, 4711, &[1; 1000]), UNSUPPORTED);
    assert_eq!(kind_of(&mut client, 3, b"x"), INVALID);
    assert_eq!(kind_of(&mut client, 7, b"\0\0\0\xffdisk\0\0"), INVALID);
    assert_eq!(kind_of(&mut client, 9, b"\0\0\0\x04disk\xff\xff\xff\xff"), INVALID);
    assert_eq!(
        kind_of(&mut client, 10, &context_query("disk", &[])),
        INVALID,
        "contexts require structured replies"
    );
    client.structured_reply();
    assert_eq!(kind_of(&mut client, 8, b""), INVALID, "twice");
    assert_eq!(client.option(2, b""), [(ACK, Vec::new())]);
    assert!(client.is_closed());
}

#[test]
fn contexts() {
    let server = RunningServer::of(&disk());
    let mut client = server.connect();
    client.structured_reply();
    let all = [(4, b"\0\0\0\0base:allocation".to_vec()), (ACK, Vec::new())];
    let chosen = [(4, b"\0\0\0\x01base:allocation".to_vec()), (ACK, Vec::new())];
    let none = [(ACK, Vec::new())];
    assert_eq!(client.option(9, &context_query("disk", &[])), all);
    assert_eq!(client.option(9, &context_query("disk", &["base:"])), all);
    assert_eq!(client.option(9, &context_query("disk", &["qemu:", "x"])), none);
    assert_eq!(client.option(10, &context_query("disk", &["base:"])), none);
    assert_eq!(client.option(10, &context_query("disk", &["qemu:x", "base:allocation"])), chosen);
    assert_eq!(kind_of(&mut client, 10, &context_query("other", &["base:allocation"])), UNKNOWN);
    client.go("disk");
    // The last request failed, so no context is negotiated.
    assert_eq!(client.error_of(7, 0, 0, 512), 22);
    client.request(2, 0, 0, 0, 0);
    assert!(client.is_closed());
}

#[test]
fn protocol_violations_end_the_connection() {
    let server = RunningServer::of(&disk());
    let mut client = server.connect();
    client.send(b"IHAVEOPS\0\0\0\x03\0\0\0\0");
    assert!(client.is_closed());
    server.wait_for("an option begins with");
    let mut client = server.connect();
    client.send(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff");
    assert!(client.is_closed());
    server.wait_for("option 7 has 4294967295 bytes");
    let mut client = RawClient { stream: std::os::unix::net::UnixStream::connect(server.path()).unwrap() };
    client.bytes(18);
    client.send(&0xffu32.to_be_bytes());
    assert!(client.is_closed());
    server.wait_for("flags 0xff");
}

#[test]
fn a_flood_of_options_ends() {
    let server = RunningServer::of(&disk());
    let mut client = server.connect();
    for _ in 0..256 {
        assert_eq!(kind_of(&mut client, 3, b""), ACK);
    }
    client.send_option(3, b"");
    assert!(client.is_closed());
    server.wait_for("more than 256 options");
}

#[test]
fn a_client_that_negotiates_too_long_is_disconnected() {
    let options = NbdOptions { handshake_time: Duration::from_millis(200), ..NbdOptions::default() };
    let server = RunningServer::start(Disks(vec![("disk", disk())]), options);
    let mut client = server.connect();
    // Occasional bytes do not extend the time.
    for _ in 0..2 {
        client.send(b"I");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(client.is_closed());
    server.wait_for("too long to negotiate");
}
