//! Golden bytes, written by hand from the protocol document: each header and each reply.

use super::*;

#[test]
fn greeting() {
    assert_eq!(
        GREETING,
        [
            0x4e, 0x42, 0x44, 0x4d, 0x41, 0x47, 0x49, 0x43, 0x49, 0x48, 0x41, 0x56, 0x45, 0x4f, 0x50, 0x54,
            0, 3
        ]
    );
}

#[test]
fn option_replies() {
    let kinds = [
        (ReplyKind::Acknowledged, [0, 0, 0, 1]),
        (ReplyKind::Server, [0, 0, 0, 2]),
        (ReplyKind::Info, [0, 0, 0, 3]),
        (ReplyKind::MetaContext, [0, 0, 0, 4]),
        (ReplyKind::Unsupported, [0x80, 0, 0, 1]),
        (ReplyKind::Policy, [0x80, 0, 0, 2]),
        (ReplyKind::Invalid, [0x80, 0, 0, 3]),
        (ReplyKind::Platform, [0x80, 0, 0, 4]),
        (ReplyKind::UnknownExport, [0x80, 0, 0, 6]),
    ];
    for (kind, number) in kinds {
        let mut bytes = Vec::new();
        option_reply(&mut bytes, 7, kind, b"ab");
        let head = [0x00, 0x03, 0xe8, 0x89, 0x04, 0x55, 0x65, 0xa9, 0, 0, 0, 7];
        assert_eq!(bytes, [&head[..], &number, &[0, 0, 0, 2], b"ab"].concat(), "{kind:?}");
    }
}

#[test]
fn options() {
    let header = *b"IHAVEOPT\0\0\0\x06\0\0\0\x09";
    assert_eq!(OptionHeader::parse(&header).unwrap(), OptionHeader { code: 6, length: 9 });
    assert_eq!(OptionRequest::parse(1, b"disk").unwrap(), OptionRequest::ExportName("disk"));
    assert_eq!(OptionRequest::parse(2, b"").unwrap(), OptionRequest::Abort);
    assert_eq!(OptionRequest::parse(3, b"").unwrap(), OptionRequest::List);
    assert_eq!(OptionRequest::parse(5, b"").unwrap(), OptionRequest::StartTls);
    assert_eq!(OptionRequest::parse(8, b"").unwrap(), OptionRequest::StructuredReply);
    assert_eq!(OptionRequest::parse(4, b"x").unwrap(), OptionRequest::Unknown);
    assert_eq!(OptionRequest::parse(11, b"").unwrap(), OptionRequest::Unknown);
    assert_eq!(
        OptionRequest::parse(6, b"\0\0\0\x01d\0\x01\0\x03").unwrap(),
        OptionRequest::Info { go: false, name: "d", wishes: vec![INFO_BLOCK_SIZE] }
    );
    assert_eq!(
        OptionRequest::parse(10, b"\0\0\0\x01d\0\0\0\x01\0\0\0\x0fbase:allocation").unwrap(),
        OptionRequest::MetaContext { set: true, name: "d", queries: vec![BASE_ALLOCATION] }
    );
}

#[test]
fn requests() {
    let mut bytes = *b"\x25\x60\x95\x13\0\x01\0\0CookieXX\0\0\0\0\0\0\x12\x34\0\0\x02\0";
    let commands = [
        Command::Read,
        Command::Write,
        Command::Disconnect,
        Command::Flush,
        Command::Trim,
        Command::Cache,
        Command::WriteZeroes,
        Command::BlockStatus,
        Command::Unknown(8),
    ];
    for (number, command) in commands.into_iter().enumerate() {
        bytes[7] = number as u8;
        let request = Request::parse(&bytes).unwrap();
        let cookie = u64::from_be_bytes(*b"CookieXX");
        let flags = CommandFlags::FUA;
        assert_eq!(request, Request { command, flags, cookie, offset: 0x1234, length: 512 });
        assert_eq!(request.payload_length(), if number == 1 { 512 } else { 0 });
    }
    bytes[0] ^= 1;
    assert!(Request::parse(&bytes).is_err());
}

#[test]
fn flags() {
    assert_eq!(transmission_flags(false), 0b0101_1000_1111);
    assert_eq!(transmission_flags(true), 0b1101_1110_1101);
}

#[test]
fn simple_replies() {
    let cookie = u64::from_be_bytes(*b"CookieXX");
    assert_eq!(simple_reply(None, cookie), *b"\x67\x44\x66\x98\0\0\0\0CookieXX");
    let numbers = [
        (ErrorNumber::NotPermitted, 1),
        (ErrorNumber::Io, 5),
        (ErrorNumber::Invalid, 22),
        (ErrorNumber::NoSpace, 28),
        (ErrorNumber::Shutdown, 108),
    ];
    for (number, byte) in numbers {
        assert_eq!(simple_reply(Some(number), 0)[4..8], [0, 0, 0, byte]);
    }
}

#[test]
fn chunks() {
    let cookie = u64::from_be_bytes(*b"CookieXX");
    let kinds = [
        (ChunkKind::None, [0, 0]),
        (ChunkKind::OffsetData, [0, 1]),
        (ChunkKind::OffsetHole, [0, 2]),
        (ChunkKind::BlockStatus, [0, 5]),
        (ChunkKind::Error, [0x80, 1]),
    ];
    for (kind, number) in kinds {
        let expected = [&b"\x66\x8e\x33\xef\0\0"[..], &number, b"CookieXX\0\0\x01\0"].concat();
        assert_eq!(chunk_header(kind, false, cookie, 256), *expected, "{kind:?}");
    }
    assert_eq!(
        chunk_header(ChunkKind::None, true, cookie, 0),
        *b"\x66\x8e\x33\xef\0\x01\0\0CookieXX\0\0\0\0"
    );
    assert_eq!(
        error_chunk(ErrorNumber::Io, cookie, "no"),
        b"\x66\x8e\x33\xef\0\x01\x80\x01CookieXX\0\0\0\x08\0\0\0\x05\0\x02no"
    );
    assert_eq!(error_chunk(ErrorNumber::Io, 0, &"é".repeat(3000)).len(), CHUNK_HEADER_BYTES + 6 + 4096);
}
