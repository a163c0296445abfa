//! Looks up the device mounted at a path in the kernel's mount table.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use platter_image::{IoContext, Result};

const TABLE: &str = "/proc/self/mountinfo";

/// The device (`major:minor`) visible at `mount_point`; `None` if nothing is mounted there.
///
/// # Errors
/// `Io` when the table cannot be read.
pub(super) fn device_at(mount_point: &Path) -> Result<Option<String>> {
    let table = fs::read(TABLE).context(|| format!("{TABLE}: reading it"))?;
    Ok(find(&table, mount_point))
}

/// The last mount at a path is the visible one, and the last in the table.
fn find(table: &[u8], mount_point: &Path) -> Option<String> {
    let mut device = None;
    for line in table.split(|byte| *byte == b'\n') {
        // Identity, parent, device, root, mount point, and more.
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').take(5).collect();
        if let [_, _, found, _, place] = fields[..]
            && unescape(place).as_bytes() == mount_point.as_os_str().as_bytes()
        {
            device = Some(String::from_utf8_lossy(found).into_owned());
        }
    }
    device
}

/// Spaces, tabs, newlines and backslashes are escaped as three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let digits = after.first_chunk::<3>().filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_is_seen() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/sda rw\n\
            2 1 0:40 / /mnt/a\\040b rw - fuse x rw\n\
            3 2 0:41 / /mnt/a\\040b rw,x shared:1 - fuse y rw\n\
            4 1 0:42 / /mnt/\\ rw - tmpfs\n";
        assert_eq!(find(table, Path::new("/mnt/a b")).as_deref(), Some("0:41"));
        assert_eq!(find(table, Path::new("/mnt/\\")).as_deref(), Some("0:42"));
        assert_eq!(find(table, Path::new("/")).as_deref(), Some("8:1"));
        assert_eq!(find(table, Path::new("/mnt")), None);
        assert_eq!(find(b"\n1 2\n", Path::new("")), None);
    }

    #[test]
    fn this_machines_root_is_mounted() {
        assert!(device_at(Path::new("/")).is_ok_and(|device| device.is_some()));
    }
}
