//! Requests one after the other: the effect of each, and the reply to each kind of error.

use std::sync::Arc;

use platter_image::Extent;
use platter_vdisk::BlockDevice;

use crate::memory::{Done, Memory, pattern};
use crate::raw_client::{
    BLOCK_STATUS, CACHE, DF, DISCONNECT, FAST_ZERO, FLUSH, FUA, NO_HOLE, READ, REQ_ONE, TRIM, WRITE,
    WRITE_ZEROES, pieces, states,
};
use crate::running_server::RunningServer;

const MIB: usize = 1 << 20;
const HOLE: Extent = Extent::new(100_000, 200_000);

/// A disk of 1 MiB with a hole in it and a bad place at its end.
fn disk() -> Arc<Memory> {
    let bad = std::iter::once(Extent::new(MIB as u64 - 512, 512)).collect();
    Arc::new(Memory { bad, ..Memory::new(MIB, &[HOLE]) })
}

fn simple_read(server: &RunningServer, offset: u64, length: u32) -> Vec<u8> {
    let mut client = server.open(false);
    client.request(READ, 0, 9, offset, length);
    let reply = client.reply();
    assert_eq!((reply.is_structured, reply.error, reply.cookie), (false, 0, 9));
    client.bytes(length as usize)
}

#[test]
fn a_simple_read() {
    let disk = disk();
    let server = RunningServer::of(&disk);
    assert_eq!(simple_read(&server, 3, 1001), pattern(3, 1001));
    assert_eq!(simple_read(&server, 90_000, 300_000), disk.contents()[90_000..390_000]);
}

#[test]
fn a_structured_read_reports_holes() {
    let server = RunningServer::of(&disk());
    let mut client = server.open(true);
    assert_eq!(pieces(&client.ask(READ, 0, 7, 100)), [(7, Some(pattern(7, 100)), 100)]);
    assert_eq!(
        pieces(&client.ask(READ, 0, 50_000, 350_000)),
        [
            (50_000, Some(pattern(50_000, 50_000)), 50_000),
            (100_000, None, 200_000),
            (300_000, Some(pattern(300_000, 100_000)), 100_000)
        ]
    );
    assert_eq!(pieces(&client.ask(READ, 0, 150_000, 100_000)), [(150_000, None, 100_000)]);
    // A hole that is too short for a chunk of its own.
    assert_eq!(pieces(&client.ask(READ, 0, 290_000, 10_001)).len(), 1);
    let nothing = client.ask(READ, 0, 0, 0);
    assert_eq!((nothing.len(), nothing[0].kind, nothing[0].payload.len()), (1, 0, 0));
}

#[test]
fn a_read_that_must_not_be_fragmented_is_one_piece() {
    let disk = disk();
    let server = RunningServer::of(&disk);
    let read = pieces(&server.open(true).ask(READ, DF, 50_000, 350_000));
    assert_eq!(read, [(50_000, Some(disk.contents()[50_000..400_000].to_vec()), 350_000)]);
}

#[test]
fn a_disk_with_many_holes_is_read_completely() {
    let holes: Vec<Extent> = (0..100).map(|n| Extent::new(n * 65_536 + 16_384, 32_768)).collect();
    let disk = Arc::new(Memory::new(100 * 65_536, &holes));
    let server = RunningServer::of(&disk);
    let read = pieces(&server.open(true).ask(READ, 0, 0, 100 * 65_536));
    let mut at = 0;
    for (offset, bytes, length) in read {
        assert_eq!(offset, at);
        let expected = &disk.contents()[at as usize..at as usize + length];
        assert_eq!(bytes.unwrap_or_else(|| vec![0; length]), expected);
        at += length as u64;
    }
    assert_eq!(at, 100 * 65_536);
}

#[test]
fn writes_and_zeros() {
    let disk = disk();
    let server = RunningServer::of(&disk);
    for is_structured in [false, true] {
        let mut client = server.open(is_structured);
        assert_eq!(client.write(0, 1000, b"hello"), 0);
        assert_eq!(disk.contents()[1000..1005], *b"hello");
        assert_eq!(client.error_of(WRITE_ZEROES, NO_HOLE, 1001, 3), 0);
        assert_eq!(disk.contents()[1000..1005], *b"h\0\0\0o");
        assert_eq!(client.error_of(TRIM, 0, 1000, 5), 0);
        assert_eq!(disk.contents()[1000..1005], [0; 5]);
        assert_eq!(client.error_of(WRITE_ZEROES, FAST_ZERO, 2000, 5), 0);
        assert_eq!(client.error_of(CACHE, 0, 0, 500_000), 0);
        assert_eq!(client.write(0, 5, b""), 0);
    }
    let all = pattern(0, 700_000);
    assert_eq!(server.open(true).write(0, 300_000, &all), 0);
    assert_eq!(disk.contents()[300_000..1_000_000], all);
}

#[test]
fn durable_means_flushed() {
    let disk = disk();
    let server = RunningServer::of(&disk);
    let mut client = server.open(false);
    assert_eq!(client.write(0, 0, b"a"), 0);
    assert_eq!(disk.log(), [Done::Write(0, 1)]);
    assert_eq!(client.write(FUA, 1, b"b"), 0);
    assert_eq!(disk.log()[1..], [Done::Write(1, 1), Done::Flush]);
    assert_eq!(client.error_of(WRITE_ZEROES, FUA, 2, 1), 0);
    assert_eq!(client.error_of(TRIM, FUA, 3, 1), 0);
    assert_eq!(disk.log()[3..], [Done::Zero(2, 1), Done::Flush, Done::Zero(3, 1), Done::Flush]);
    assert_eq!(client.error_of(FLUSH, 0, 0, 0), 0);
    assert_eq!(disk.log()[7..], [Done::Flush]);
    client.ask(FLUSH, FUA, 0, 0);
    assert_eq!(disk.log()[8..], [Done::Flush]);
}

#[test]
fn states_of_blocks() {
    let disk = disk();
    let server = RunningServer::of(&disk);
    let mut client = server.open(true);
    let all = client.ask(BLOCK_STATUS, 0, 0, MIB as u32);
    assert_eq!(states(&all), [(100_000, 0), (200_000, 3), (MIB as u32 - 300_000, 0)]);
    assert_eq!(states(&client.ask(BLOCK_STATUS, REQ_ONE, 0, MIB as u32)), [(100_000, 0)]);
    assert_eq!(states(&client.ask(BLOCK_STATUS, REQ_ONE, 150_000, MIB as u32 - 150_000)), [(150_000, 3)]);
    assert_eq!(states(&client.ask(BLOCK_STATUS, REQ_ONE, 150_000, 10)), [(10, 3)]);
    assert_eq!(client.error_of(TRIM, 0, 0, 50_000), 0);
    assert_eq!(states(&client.ask(BLOCK_STATUS, 0, 0, 60_000)), [(50_000, 3), (10_000, 0)]);
}

#[test]
fn a_block_status_reply_is_bounded() {
    let holes: Vec<Extent> = (0..5000).map(|n| Extent::new(n * 1024, 512)).collect();
    let server = RunningServer::of(&Arc::new(Memory::new(5000 * 1024, &holes)));
    let told = states(&server.open(true).ask(BLOCK_STATUS, 0, 0, 5000 * 1024));
    assert_eq!(told.len(), 4096);
    assert!(told.iter().enumerate().all(|(n, extent)| *extent == (512, if n % 2 == 0 { 3 } else { 0 })));
}

#[test]
fn invalid_requests_get_errors() {
    let disk = disk();
    let end = disk.length();
    let server = RunningServer::of(&disk);
    for is_structured in [false, true] {
        let mut client = server.open(is_structured);
        let cases = [
            (READ, 0, end - 10, 11, 22),
            (READ, 0, u64::MAX, 2, 22),
            (READ, 0, 0, u32::MAX, 22),
            (TRIM, 0, end, 1, 22),
            (CACHE, 0, end, 1, 22),
            (WRITE_ZEROES, 0, end, 1, 28),
            (BLOCK_STATUS, 0, end, 1, 22),
            (BLOCK_STATUS, 0, 0, 0, 22),
            (READ, REQ_ONE, 0, 1, 22),
            (READ, 1 << 5, 0, 1, 22),
            (FLUSH, DF, 0, 0, 22),
            (WRITE_ZEROES, DF, 0, 1, 22),
            (8, 0, 0, 0, 22),
            (999, 0, 0, 0, 22),
            (READ, 0, end - 600, 600, 5),
        ];
        for (command, flags, offset, length, error) in cases {
            let replies = client.ask(command, flags, offset, length);
            assert_eq!(replies.len(), 1, "{command} at {offset}");
            assert_eq!(replies[0].error, error, "{command} at {offset}");
            assert_eq!(replies[0].is_structured, is_structured);
        }
        assert_eq!(client.write(0, end - 1, b"ab"), 28);
        assert_eq!(client.write(0, end - 5, b"full"), 28);
        assert_eq!(client.write(DF, 0, b"flags"), 22);
        // The connection is still in sync.
        assert_eq!(client.write(0, 0, b"fine"), 0);
    }
    assert_eq!(disk.contents()[end as usize - 10..], pattern(end - 10, 10));
    server.wait_for("RequestFailed { connection: 1, export: \"disk\", command: Read, offset: 1047976");
}

#[test]
fn requests_to_a_large_disk_are_limited() {
    let server = RunningServer::of(&Arc::new(Memory::new(40 * MIB, &[Extent::new(0, 40 * MIB as u64)])));
    let mut client = server.open(true);
    let too_much = 32 * MIB as u32 + 1;
    assert_eq!(client.error_of(READ, 0, 0, too_much), 22);
    assert_eq!(pieces(&client.ask(READ, 0, 0, too_much - 1)), [(0, None, 32 * MIB)]);
    assert_eq!(client.error_of(WRITE_ZEROES, 0, 0, too_much), 0);
    client.request(WRITE, 0, 1, 0, too_much);
    assert!(client.is_closed());
    server.wait_for("a write of 33554433 bytes");
}

#[test]
fn a_read_only_disk_is_not_changed() {
    let disk = Arc::new(Memory { is_read_only: true, ..Memory::new(4096, &[]) });
    let server = RunningServer::of(&disk);
    let mut client = server.open(true);
    assert_eq!(client.write(0, 0, b"no"), 1);
    assert_eq!(client.error_of(WRITE_ZEROES, 0, 0, 1), 1);
    assert_eq!(client.error_of(TRIM, 0, 0, 1), 1);
    assert_eq!(client.error_of(FLUSH, 0, 0, 0), 0);
    assert_eq!(pieces(&client.ask(READ, 0, 0, 4096)), [(0, Some(pattern(0, 4096)), 4096)]);
    assert_eq!(disk.log(), [Done::Flush]);
}

#[test]
fn a_disconnect_request_ends_the_connection() {
    let server = RunningServer::of(&disk());
    let mut client = server.open(false);
    client.request(DISCONNECT, 0, 0, 0, 0);
    assert!(client.is_closed());
    server.wait_for("Disconnected { connection: 1, error: None }");
    server.finish();
}
