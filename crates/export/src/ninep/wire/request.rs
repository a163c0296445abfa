//! Requests of clients.

use platter_image::{Error, Result};

use super::{HEADER_BYTES, WALK_NAMES_MAX};

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the whole message.
    pub size: u32,
    /// Its kind.
    pub kind: Kind,
    /// The client's tag, repeated in the reply.
    pub tag: u16,
}

impl Header {
    /// Parses a header without checking it.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [a, b, c, d, kind, e, f] = *bytes;
        Self { size: u32::from_le_bytes([a, b, c, d]), kind: Kind(kind), tag: u16::from_le_bytes([e, f]) }
    }
}

/// The number of a kind of message. A reply has the next number after its request's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u8);

impl Kind {
    /// Error reply. The only reply kind shared by all requests.
    pub const ERROR: Self = Self(7);
    /// Total and free space.
    pub const STATFS: Self = Self(8);
    /// Opens a fid.
    pub const OPEN: Self = Self(12);
    /// Creates a file and turns the directory's fid into the open file's.
    pub const CREATE: Self = Self(14);
    /// Renames the file of a fid.
    pub const RENAME: Self = Self(20);
    /// Attributes of a fid.
    pub const GETATTR: Self = Self(24);
    /// Sets attributes of a fid.
    pub const SETATTR: Self = Self(26);
    /// Names in a directory.
    pub const READDIR: Self = Self(40);
    /// Makes all earlier writes durable.
    pub const FSYNC: Self = Self(50);
    /// Locks a range.
    pub const LOCK: Self = Self(52);
    /// Queries a lock.
    pub const GETLOCK: Self = Self(54);
    /// Creates a directory.
    pub const MKDIR: Self = Self(72);
    /// Renames a name.
    pub const RENAMEAT: Self = Self(74);
    /// Removes a name.
    pub const UNLINKAT: Self = Self(76);
    /// Begins a session and ends the previous one.
    pub const VERSION: Self = Self(100);
    /// Authentication.
    pub const AUTH: Self = Self(102);
    /// Attaches a fid to the root.
    pub const ATTACH: Self = Self(104);
    /// Flushes a request: its reply is no longer wanted.
    pub const FLUSH: Self = Self(108);
    /// Walks names from a fid to a new fid.
    pub const WALK: Self = Self(110);
    /// Reads an open file.
    pub const READ: Self = Self(116);
    /// Writes an open file.
    pub const WRITE: Self = Self(118);
    /// Releases a fid.
    pub const CLUNK: Self = Self(120);
    /// Removes the file of a fid, and releases the fid.
    pub const REMOVE: Self = Self(122);

    /// The kind of its reply.
    #[must_use]
    pub fn reply(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// The body of a request. Unused fields (users, groups, masks) are parsed and dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the protocol's own fields, described there")]
pub enum Request<'a> {
    Version {
        msize: u32,
        version: &'a [u8],
    },
    Auth,
    Attach {
        fid: u32,
        auth_fid: u32,
        path: &'a [u8],
    },
    Flush {
        old_tag: u16,
    },
    Walk {
        fid: u32,
        new_fid: u32,
        names: Vec<&'a [u8]>,
    },
    Open {
        fid: u32,
        flags: u32,
    },
    Create {
        fid: u32,
        name: &'a [u8],
        flags: u32,
    },
    Read {
        fid: u32,
        offset: u64,
        count: u32,
    },
    Write {
        fid: u32,
        offset: u64,
        bytes: &'a [u8],
    },
    Clunk {
        fid: u32,
    },
    Remove {
        fid: u32,
    },
    StatFs {
        fid: u32,
    },
    Rename {
        fid: u32,
        directory: u32,
        name: &'a [u8],
    },
    GetAttributes {
        fid: u32,
    },
    SetAttributes {
        fid: u32,
        valid: u32,
        mode: u32,
        user: u32,
        group: u32,
        length: u64,
    },
    ReadDirectory {
        fid: u32,
        offset: u64,
        count: u32,
    },
    Sync {
        fid: u32,
    },
    Lock {
        fid: u32,
    },
    GetLock {
        fid: u32,
        start: u64,
        length: u64,
        process: u32,
        client: &'a [u8],
    },
    MakeDirectory {
        fid: u32,
        name: &'a [u8],
    },
    RenameAt {
        from: u32,
        from_name: &'a [u8],
        to: u32,
        to_name: &'a [u8],
    },
    UnlinkAt {
        fid: u32,
        name: &'a [u8],
        flags: u32,
    },
    /// An unsupported request: links, devices, extended attributes.
    Unsupported,
}

impl<'a> Request<'a> {
    /// Reads the body of a message of that kind.
    ///
    /// # Errors
    /// `Corrupt` when the body is too short or too long, or a walk has too many names.
    pub fn parse(kind: Kind, body: &'a [u8]) -> Result<Self> {
        let mut fields = Fields(body);
        let request = fields.request(kind)?;
        if fields.0.is_empty() || request == Self::Unsupported {
            Ok(request)
        } else {
            Err(Error::corrupt(format!("a message of kind {} has {} bytes too many", kind.0, fields.0.len())))
        }
    }
}

/// The remaining bytes of a body.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn request(&mut self, kind: Kind) -> Result<Request<'a>> {
        Ok(match kind {
            Kind::VERSION => Request::Version { msize: self.u32()?, version: self.string()? },
            Kind::AUTH => self.auth()?,
            Kind::ATTACH => self.attach()?,
            Kind::FLUSH => Request::Flush { old_tag: self.u16()? },
            Kind::WALK => self.walk()?,
            Kind::OPEN => Request::Open { fid: self.u32()?, flags: self.u32()? },
            Kind::CREATE => self.create()?,
            Kind::READ => Request::Read { fid: self.u32()?, offset: self.u64()?, count: self.u32()? },
            Kind::WRITE => self.write()?,
            Kind::CLUNK => Request::Clunk { fid: self.u32()? },
            Kind::REMOVE => Request::Remove { fid: self.u32()? },
            Kind::STATFS => Request::StatFs { fid: self.u32()? },
            Kind::RENAME => {
                Request::Rename { fid: self.u32()?, directory: self.u32()?, name: self.string()? }
            }
            Kind::GETATTR => self.get_attributes()?,
            Kind::SETATTR => self.set_attributes()?,
            Kind::READDIR => {
                Request::ReadDirectory { fid: self.u32()?, offset: self.u64()?, count: self.u32()? }
            }
            Kind::FSYNC => self.sync()?,
            Kind::LOCK => self.lock()?,
            Kind::GETLOCK => self.get_lock()?,
            Kind::MKDIR => self.make_directory()?,
            Kind::RENAMEAT => Request::RenameAt {
                from: self.u32()?,
                from_name: self.string()?,
                to: self.u32()?,
                to_name: self.string()?,
            },
            Kind::UNLINKAT => {
                Request::UnlinkAt { fid: self.u32()?, name: self.string()?, flags: self.u32()? }
            }
            _ => Request::Unsupported,
        })
    }

    fn auth(&mut self) -> Result<Request<'a>> {
        let (_fid, _user_name, _path, _user) = (self.u32()?, self.string()?, self.string()?, self.u32()?);
        Ok(Request::Auth)
    }

    fn attach(&mut self) -> Result<Request<'a>> {
        let (fid, auth_fid) = (self.u32()?, self.u32()?);
        let (_user_name, path, _user) = (self.string()?, self.string()?, self.u32()?);
        Ok(Request::Attach { fid, auth_fid, path })
    }

    fn walk(&mut self) -> Result<Request<'a>> {
        let (fid, new_fid, count) = (self.u32()?, self.u32()?, usize::from(self.u16()?));
        if count > WALK_NAMES_MAX {
            return Err(Error::corrupt(format!("a walk of {count} names, over {WALK_NAMES_MAX}")));
        }
        let names = (0..count).map(|_| self.string()).collect::<Result<_>>()?;
        Ok(Request::Walk { fid, new_fid, names })
    }

    fn create(&mut self) -> Result<Request<'a>> {
        let (fid, name, flags) = (self.u32()?, self.string()?, self.u32()?);
        let (_mode, _group) = (self.u32()?, self.u32()?);
        Ok(Request::Create { fid, name, flags })
    }

    fn write(&mut self) -> Result<Request<'a>> {
        let (fid, offset, count) = (self.u32()?, self.u64()?, self.u32()?);
        Ok(Request::Write { fid, offset, bytes: self.bytes(count as usize)? })
    }

    fn get_attributes(&mut self) -> Result<Request<'a>> {
        let (fid, _mask) = (self.u32()?, self.u64()?);
        Ok(Request::GetAttributes { fid })
    }

    fn set_attributes(&mut self) -> Result<Request<'a>> {
        let (fid, valid, mode) = (self.u32()?, self.u32()?, self.u32()?);
        let (user, group, length) = (self.u32()?, self.u32()?, self.u64()?);
        let _times = self.bytes(32)?;
        Ok(Request::SetAttributes { fid, valid, mode, user, group, length })
    }

    fn sync(&mut self) -> Result<Request<'a>> {
        let fid = self.u32()?;
        // Early clients omit it.
        let _data_only = if self.0.is_empty() { 0 } else { self.u32()? };
        Ok(Request::Sync { fid })
    }

    fn lock(&mut self) -> Result<Request<'a>> {
        let fid = self.u32()?;
        let (_kind, _flags, _start, _length) = (self.bytes(1)?, self.u32()?, self.u64()?, self.u64()?);
        let (_process, _client) = (self.u32()?, self.string()?);
        Ok(Request::Lock { fid })
    }

    fn get_lock(&mut self) -> Result<Request<'a>> {
        let (fid, _kind) = (self.u32()?, self.bytes(1)?);
        let (start, length) = (self.u64()?, self.u64()?);
        Ok(Request::GetLock { fid, start, length, process: self.u32()?, client: self.string()? })
    }

    fn make_directory(&mut self) -> Result<Request<'a>> {
        let (fid, name, _mode, _group) = (self.u32()?, self.string()?, self.u32()?, self.u32()?);
        Ok(Request::MakeDirectory { fid, name })
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(length).ok_or_else(too_short)?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH]> {
        let (front, rest) = self.0.split_first_chunk().ok_or_else(too_short)?;
        self.0 = rest;
        Ok(*front)
    }

    fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn string(&mut self) -> Result<&'a [u8]> {
        let length = self.u16()?;
        self.bytes(usize::from(length))
    }
}

fn too_short() -> Error {
    Error::corrupt("a message ends before its last field")
}
