//! Byte-range locks of other programs: a running virtual machine, or a filesystem in user space.
//!
//! QEMU locks a file or device that it has open (`block/file-posix.c`): shared locks on byte 100 + p for each permission p
//! that it uses, and on byte 200 + p for each that it does not grant to others. The permissions are consistent read (0),
//! write (1), write unchanged (2) and resize (3). ntfs-3g locks the whole file for writing.
//!
//! Locks are only queried. A query finds locks of a process and locks of an open file, but not those of `flock`, which
//! other modules ask for. Filesystems without locks count as unlocked.

use std::fs::File;
use std::os::fd::AsRawFd;

/// The bytes that show that QEMU may write the file or change its length.
const QEMU_WRITES: [i64; 2] = [101, 103];

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder(String);

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Holder {
    /// Locks of an open file name no process, and neither do those of other machines or namespaces.
    fn of(lock: &libc::flock) -> Self {
        if lock.l_pid <= 0 {
            return Self("another program, such as a running virtual machine,".to_owned());
        }
        let name = std::fs::read_to_string(format!("/proc/{}/comm", lock.l_pid));
        Self(match name {
            Ok(name) => format!("{} (process {})", name.trim_end(), lock.l_pid),
            Err(_) => format!("process {}", lock.l_pid),
        })
    }
}

/// Who uses the file in any way.
pub(super) fn user(file: &File) -> Option<Holder> {
    obstacle(file, libc::F_WRLCK, 0, 0)
}

/// Who may write the file.
pub(super) fn writer(file: &File) -> Option<Holder> {
    let qemu = || QEMU_WRITES.iter().find_map(|byte| obstacle(file, libc::F_WRLCK, *byte, 1));
    obstacle(file, libc::F_RDLCK, 0, 0).or_else(qemu)
}

/// Who prevents a lock of this kind; a length of 0 means up to the end of all files.
#[expect(unsafe_code, reason = "no library at hand has this system call")]
fn obstacle(file: &File, kind: libc::c_int, start: i64, length: i64) -> Option<Holder> {
    let mut lock = libc::flock {
        l_type: libc::c_short::try_from(kind).ok()?,
        l_whence: libc::c_short::try_from(libc::SEEK_SET).ok()?,
        l_start: start,
        l_len: length,
        l_pid: 0,
    };
    // SAFETY: the file is open, and the kernel writes one `flock` to the address of one.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, std::ptr::from_mut(&mut lock)) };
    let is_prevented = asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK;
    is_prevented.then(|| Holder::of(&lock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(unsafe_code, reason = "no library at hand has this system call")]
    fn lock(file: &File, kind: libc::c_int, start: i64, length: i64) {
        let lock = libc::flock {
            l_type: kind.try_into().unwrap(),
            l_whence: libc::SEEK_SET.try_into().unwrap(),
            l_start: start,
            l_len: length,
            l_pid: 0,
        };
        // SAFETY: the file is open, and the kernel reads one `flock`.
        let locked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, std::ptr::from_ref(&lock)) };
        assert_eq!(locked, 0, "{}", std::io::Error::last_os_error());
    }

    #[test]
    fn locks_tell_readers_from_writers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        std::fs::write(&path, b"").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let asking = File::open(&path).unwrap();
        let seen = || (user(&asking).is_some(), writer(&asking).is_some());
        assert_eq!(seen(), (false, false), "nobody");
        let reader = open();
        // Consistent read is used; write and resize are not granted.
        for byte in [100, 201, 203] {
            lock(&reader, libc::F_RDLCK, byte, 1);
        }
        assert_eq!(seen(), (true, false), "a virtual machine that only reads");
        for byte in QEMU_WRITES {
            let machine = open();
            lock(&machine, libc::F_RDLCK, byte, 1);
            assert_eq!(seen(), (true, true), "{byte}");
        }
        assert_eq!(seen(), (true, false), "the lock ends with the machine");
        drop(reader);
        let whole = open();
        lock(&whole, libc::F_WRLCK, 0, 0);
        assert_eq!(seen(), (true, true), "a filesystem in user space");
        assert!(user(&asking).unwrap().to_string().contains("virtual machine"));
        assert_eq!(user(&whole), None, "its own lock is no obstacle");
    }

    #[test]
    fn a_process_is_named() {
        let lock = |pid| libc::flock { l_type: 0, l_whence: 0, l_start: 0, l_len: 0, l_pid: pid };
        let own = std::process::id();
        assert!(Holder::of(&lock(own.cast_signed())).to_string().contains(&format!("(process {own})")));
        assert!(Holder::of(&lock(-1)).to_string().starts_with("another program"));
    }
}
