//! Tests: every request parses to itself; a truncated request is an error or another request, never a panic.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// An owned request.
#[derive(Clone, Debug)]
enum Said {
    Version(u32, Vec<u8>),
    Attach(u32, u32, Vec<u8>),
    Walk(u32, u32, Vec<Vec<u8>>),
    Create(u32, Vec<u8>, u32),
    Read(u32, u64, u32),
    Write(u32, u64, Vec<u8>),
    Set(u32, [u32; 4], u64),
    GetLock(u32, u64, u64, u32, Vec<u8>),
    RenameAt(u32, Vec<u8>, u32, Vec<u8>),
    UnlinkAt(u32, Vec<u8>, u32),
}

fn said() -> impl Strategy<Value = Said> {
    let name = || vec(any::<u8>(), 0..300);
    prop_oneof![
        (any::<u32>(), name()).prop_map(|(a, b)| Said::Version(a, b)),
        (any::<u32>(), any::<u32>(), name()).prop_map(|(a, b, c)| Said::Attach(a, b, c)),
        (any::<u32>(), any::<u32>(), vec(name(), 0..=16)).prop_map(|(a, b, c)| Said::Walk(a, b, c)),
        (any::<u32>(), name(), any::<u32>()).prop_map(|(a, b, c)| Said::Create(a, b, c)),
        any::<(u32, u64, u32)>().prop_map(|(a, b, c)| Said::Read(a, b, c)),
        (any::<u32>(), any::<u64>(), vec(any::<u8>(), 0..5000)).prop_map(|(a, b, c)| Said::Write(a, b, c)),
        any::<(u32, [u32; 4], u64)>().prop_map(|(a, b, c)| Said::Set(a, b, c)),
        (any::<(u32, u64, u64, u32)>(), name()).prop_map(|((a, b, c, d), e)| Said::GetLock(a, b, c, d, e)),
        (any::<u32>(), name(), any::<u32>(), name()).prop_map(|(a, b, c, d)| Said::RenameAt(a, b, c, d)),
        (any::<u32>(), name(), any::<u32>()).prop_map(|(a, b, c)| Said::UnlinkAt(a, b, c)),
    ]
}

/// A body builder.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn int(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn long(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn short(mut self, number: usize) -> Self {
        self.0.extend_from_slice(&(number as u16).to_le_bytes());
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, bytes: &[u8]) -> Self {
        self.short(bytes.len()).raw(bytes)
    }
}

fn written(said: &Said) -> (Kind, Vec<u8>) {
    let body = Body::default();
    let (kind, body) = match said {
        Said::Version(msize, version) => (Kind::VERSION, body.int(*msize).text(version)),
        Said::Attach(fid, auth, path) => {
            (Kind::ATTACH, body.int(*fid).int(*auth).text(b"user").text(path).int(7))
        }
        Said::Walk(fid, new, names) => {
            let body = body.int(*fid).int(*new).short(names.len());
            (Kind::WALK, names.iter().fold(body, |body, name| body.text(name)))
        }
        Said::Create(fid, name, flags) => (Kind::CREATE, body.int(*fid).text(name).int(*flags).int(0).int(0)),
        Said::Read(fid, offset, count) => (Kind::READ, body.int(*fid).long(*offset).int(*count)),
        Said::Write(fid, offset, bytes) => {
            (Kind::WRITE, body.int(*fid).long(*offset).int(bytes.len() as u32).raw(bytes))
        }
        Said::Set(fid, numbers, length) => {
            let body = numbers.iter().fold(body.int(*fid), |body, number| body.int(*number));
            (Kind::SETATTR, body.long(*length).raw(&[0; 32]))
        }
        Said::GetLock(fid, start, length, process, client) => {
            let body = body.int(*fid).raw(&[1]).long(*start).long(*length).int(*process);
            (Kind::GETLOCK, body.text(client))
        }
        Said::RenameAt(from, from_name, to, to_name) => {
            (Kind::RENAMEAT, body.int(*from).text(from_name).int(*to).text(to_name))
        }
        Said::UnlinkAt(fid, name, flags) => (Kind::UNLINKAT, body.int(*fid).text(name).int(*flags)),
    };
    (kind, body.0)
}

fn expected(said: &Said) -> Request<'_> {
    match *said {
        Said::Version(msize, ref version) => Request::Version { msize, version },
        Said::Attach(fid, auth_fid, ref path) => Request::Attach { fid, auth_fid, path },
        Said::Walk(fid, new_fid, ref names) => {
            Request::Walk { fid, new_fid, names: names.iter().map(Vec::as_slice).collect() }
        }
        Said::Create(fid, ref name, flags) => Request::Create { fid, name, flags },
        Said::Read(fid, offset, count) => Request::Read { fid, offset, count },
        Said::Write(fid, offset, ref bytes) => Request::Write { fid, offset, bytes },
        Said::Set(fid, [valid, mode, user, group], length) => {
            Request::SetAttributes { fid, valid, mode, user, group, length }
        }
        Said::GetLock(fid, start, length, process, ref client) => {
            Request::GetLock { fid, start, length, process, client }
        }
        Said::RenameAt(from, ref from_name, to, ref to_name) => {
            Request::RenameAt { from, from_name, to, to_name }
        }
        Said::UnlinkAt(fid, ref name, flags) => Request::UnlinkAt { fid, name, flags },
    }
}

proptest! {
    #[test]
    fn requests_are_read_as_they_were_written(said in said(), cut in any::<prop::sample::Index>()) {
        let (kind, body) = written(&said);
        prop_assert_eq!(Request::parse(kind, &body).unwrap(), expected(&said));
        let cut = cut.index(body.len());
        prop_assert!(Request::parse(kind, &body[..cut]).is_err());
        prop_assert!(Request::parse(kind, &[&body[..], b"x"].concat()).is_err());
    }

    #[test]
    fn any_bytes_are_a_request_or_an_error(kind in any::<u8>(), body in vec(any::<u8>(), 0..200)) {
        let _ = Request::parse(request::Kind(kind), &body);
    }
}
