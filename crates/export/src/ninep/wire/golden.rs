//! Golden bytes, written by hand from the protocol document: each request and each reply.

use rustix::io::Errno;

use super::*;
use crate::tree::Room;

fn parse(kind: u8, body: &[u8]) -> Request<'_> {
    Request::parse(request::Kind(kind), body).unwrap()
}

#[test]
fn headers() {
    let header = Header::parse(&[0x13, 0x02, 0x01, 0x00, 100, 0xff, 0xfe]);
    assert_eq!(header, Header { size: 0x0001_0213, kind: Kind::VERSION, tag: 0xfeff });
    assert_eq!(Kind::VERSION.reply(), Kind(101));
}

#[test]
fn requests_of_a_session() {
    assert_eq!(
        parse(100, b"\x00\x20\0\0\x08\x009P2000.L"),
        Request::Version { msize: 8192, version: VERSION }
    );
    assert_eq!(parse(102, b"\x01\0\0\0\0\0\0\0\xff\xff\xff\xff"), Request::Auth);
    assert_eq!(
        parse(104, b"\x01\0\0\0\xff\xff\xff\xff\x04\0root\x04\0/lab\xe8\x03\0\0"),
        Request::Attach { fid: 1, auth_fid: NO_FID, path: b"/lab" }
    );
    assert_eq!(parse(108, b"\x05\x01"), Request::Flush { old_tag: 0x105 });
    assert_eq!(
        parse(110, b"\x01\0\0\0\x02\0\0\0\x02\0\x03\0lab\x04\0disk"),
        Request::Walk { fid: 1, new_fid: 2, names: vec![b"lab", b"disk"] }
    );
    assert_eq!(parse(120, b"\x01\0\0\0"), Request::Clunk { fid: 1 });
    assert_eq!(parse(122, b"\x01\0\0\0"), Request::Remove { fid: 1 });
    assert_eq!(parse(8, b"\x01\0\0\0"), Request::StatFs { fid: 1 });
}

#[test]
fn requests_of_contents() {
    assert_eq!(parse(12, b"\x01\0\0\0\x02\x80\0\0"), Request::Open { fid: 1, flags: 0x8002 });
    assert_eq!(
        parse(14, b"\x01\0\0\0\x03\0foo\x41\x82\0\0\xa4\x81\0\0\xf4\x01\0\0"),
        Request::Create { fid: 1, name: b"foo", flags: 0x8241 }
    );
    assert_eq!(
        parse(116, b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\x80\0\0"),
        Request::Read { fid: 1, offset: 1 << 32, count: 32768 }
    );
    assert_eq!(
        parse(118, b"\x01\0\0\0\x07\0\0\0\0\0\0\0\x06\0\0\0hello\n"),
        Request::Write { fid: 1, offset: 7, bytes: b"hello\n" }
    );
    assert_eq!(parse(24, b"\x01\0\0\0\xff\x07\0\0\0\0\0\0"), Request::GetAttributes { fid: 1 });
    let set =
        [&b"\x01\0\0\0\x08\0\0\0\xa4\x01\0\0\x02\0\0\0\x03\0\0\0\0\x10\0\0\0\0\0\0"[..], &[9; 32]].concat();
    assert_eq!(
        parse(26, &set),
        Request::SetAttributes { fid: 1, valid: 8, mode: 0o644, user: 2, group: 3, length: 4096 }
    );
    assert_eq!(parse(50, b"\x01\0\0\0\x01\0\0\0"), Request::Sync { fid: 1 });
    assert_eq!(parse(50, b"\x01\0\0\0"), Request::Sync { fid: 1 });
    let lock = [&b"\x01\0\0\0\x01\x01\0\0\0"[..], &[0; 16], b"\x07\0\0\0\x04\0host"].concat();
    assert_eq!(parse(52, &lock), Request::Lock { fid: 1 });
    let get = [&b"\x01\0\0\0\x01\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0"[..], b"\x07\0\0\0\x04\0host"].concat();
    assert_eq!(
        parse(54, &get),
        Request::GetLock { fid: 1, start: 5, length: 6, process: 7, client: b"host" }
    );
}

#[test]
fn requests_of_names() {
    assert_eq!(
        parse(20, b"\x01\0\0\0\x02\0\0\0\x01\0n"),
        Request::Rename { fid: 1, directory: 2, name: b"n" }
    );
    assert_eq!(
        parse(40, b"\x01\0\0\0\x02\0\0\0\0\0\0\0\xe8\xff\0\0"),
        Request::ReadDirectory { fid: 1, offset: 2, count: 65512 }
    );
    assert_eq!(
        parse(72, b"\x01\0\0\0\x01\0n\xed\x41\0\0\0\0\0\0"),
        Request::MakeDirectory { fid: 1, name: b"n" }
    );
    assert_eq!(
        parse(74, b"\x01\0\0\0\x01\0a\x02\0\0\0\x01\0b"),
        Request::RenameAt { from: 1, from_name: b"a", to: 2, to_name: b"b" }
    );
    assert_eq!(
        parse(76, b"\x01\0\0\0\x01\0n\0\x02\0\0"),
        Request::UnlinkAt { fid: 1, name: b"n", flags: UNLINK_DIRECTORY }
    );
    for kind in [16, 18, 22, 30, 32, 70, 106, 0, 255] {
        assert_eq!(parse(kind, b"anything"), Request::Unsupported);
    }
}

const QID: Qid = Qid { is_directory: true, version: 0x0102_0304, path: 0x1122_3344_5566_7788 };
const QID_BYTES: &[u8] = b"\x80\x04\x03\x02\x01\x88\x77\x66\x55\x44\x33\x22\x11";

#[track_caller]
fn check(reply: &Reply<'_>, kind: Kind, body: &[u8]) {
    let head = [7 + body.len() as u8, 0, 0, 0, kind.0 + 1, 0x34, 0x12];
    assert_eq!(reply.to_bytes(kind, 0x1234), [&head[..], body].concat());
}

#[test]
fn replies() {
    check(&Reply::Done, Kind::CLUNK, b"");
    let version = Reply::Version { msize: 8192, is_known: true };
    check(&version, Kind::VERSION, b"\x00\x20\0\0\x08\x009P2000.L");
    let version = Reply::Version { msize: 8192, is_known: false };
    check(&version, Kind::VERSION, b"\x00\x20\0\0\x07\0unknown");
    check(&Reply::Qid(QID), Kind::ATTACH, QID_BYTES);
    check(&Reply::Opened(QID, 65512), Kind::OPEN, &[QID_BYTES, b"\xe8\xff\0\0"].concat());
    check(&Reply::Qids(vec![]), Kind::WALK, b"\0\0");
    check(&Reply::Qids(vec![QID; 2]), Kind::WALK, &[b"\x02\0", QID_BYTES, QID_BYTES].concat());
    check(&Reply::Count(6), Kind::WRITE, b"\x06\0\0\0");
    check(&Reply::Locked, Kind::LOCK, b"\0");
    let nobody = Reply::NoLock { start: 5, length: 6, process: 7, client: b"host" };
    let body = b"\x02\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07\0\0\0\x04\0host";
    check(&nobody, Kind::GETLOCK, body);
    assert_eq!(error_reply(Errno::NOTEMPTY, 1), b"\x0b\0\0\0\x07\x01\0\x27\0\0\0");
    assert_eq!(data_header(Kind::READ, 1, 0x102), *b"\x0d\x01\0\0\x75\x01\0\x02\x01\0\0");
    assert_eq!(data_header(Kind::READDIR, 1, 0), *b"\x0b\0\0\0\x29\x01\0\0\0\0\0");
}

#[test]
fn room() {
    let room = Reply::Room(Room { total: 3 << 30, free: 5000 });
    let numbers: [&[u8]; 9] = [
        &0x0102_1997u32.to_le_bytes(),
        &4096u32.to_le_bytes(),
        &(3u64 << 18).to_le_bytes(),
        &1u64.to_le_bytes(),
        &1u64.to_le_bytes(),
        &[0; 8],
        &[0; 8],
        &[0; 8],
        &255u32.to_le_bytes(),
    ];
    check(&room, Kind::STATFS, &numbers.concat());
}

#[test]
fn attributes() {
    let attributes = Attributes {
        qid: QID,
        mode: 0o100_644,
        user: 1000,
        group: 100,
        length: 1 << 33,
        allocated: 513,
        modified_unix_ms: -1,
    };
    let times = [u64::MAX, 999_000_000].map(u64::to_le_bytes).concat();
    let body = [
        b"\xff\x07\0\0\0\0\0\0",
        QID_BYTES,
        b"\xa4\x81\0\0\xe8\x03\0\0\x64\0\0\0",
        b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\x01\0\0\0\0\0\x02\0\0\0\0\0\0\0",
        &times,
        &times,
        &times,
        &[0; 32],
    ]
    .concat();
    check(&Reply::Attributes(attributes), Kind::GETATTR, &body);
}

#[test]
fn entries() {
    let directory = directory_entry(QID, 3, "lab");
    assert_eq!(directory, [QID_BYTES, b"\x03\0\0\0\0\0\0\0\x04\x03\0lab"].concat());
    let file = directory_entry(Qid { is_directory: false, version: 0, path: 1 }, 1 << 40, "f");
    assert_eq!(file, b"\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\x08\x01\0f");
}
