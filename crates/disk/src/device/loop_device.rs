//! A loop device for a range of a disk, and programs that work on it. Neither outlives this process: the kernel removes the device with
//! its last user, and ends the program with its parent. So nothing writes to a target that somebody else has meanwhile.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use platter_image::Extent;

/// Requests of `linux/loop.h`.
const GET_FREE: libc::Ioctl = 0x4c82;
const CONFIGURE: libc::Ioctl = 0x4c0a;
/// The device is removed when nobody has it open.
const AUTOCLEAR: u32 = 4;
/// Another process may take the free device first.
const TRIES: u32 = 64;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Default)]
struct Info {
    devices: [u64; 3],
    offset: u64,
    length: u64,
    numbers: [u32; 3],
    flags: u32,
    names: [[u64; 10]; 2],
    initial: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
#[derive(Default)]
struct Config {
    file: u32,
    sector_size: u32,
    info: Info,
    reserved: [u64; 8],
}

/// A loop device; removed when it is dropped and no other process has it open.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _opened: File,
}

impl LoopDevice {
    /// Makes one for a range of a disk or file. Needs root.
    ///
    /// # Errors
    /// Those of the system.
    pub fn attach(disk: &Path, range: Extent, sector_size: u32) -> io::Result<Self> {
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
        let (backing, control) = (open(disk)?, open(Path::new("/dev/loop-control"))?);
        let info = Info { offset: range.offset, length: range.length, flags: AUTOCLEAR, ..Info::default() };
        let config =
            Config { file: backing.as_raw_fd().cast_unsigned(), sector_size, info, ..Config::default() };
        for _ in 0..TRIES {
            let path = PathBuf::from(format!("/dev/loop{}", free(&control)?));
            let opened = open(&path)?;
            match configure(&opened, &config) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                configured => return configured.map(|()| Self { path, _opened: opened }),
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// The device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[expect(unsafe_code, reason = "no library at hand has this system call")]
fn free(control: &File) -> io::Result<i32> {
    // SAFETY: this request has no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
    if number < 0 { Err(io::Error::last_os_error()) } else { Ok(number) }
}

#[expect(unsafe_code, reason = "no library at hand has this system call")]
fn configure(device: &File, config: &Config) -> io::Result<()> {
    // SAFETY: the kernel reads one `loop_config`, which has the layout of `Config`.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, std::ptr::from_ref(config)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets the system end the program when this process ends, even by SIGKILL.
#[expect(unsafe_code, reason = "the system call must be made by the new process")]
pub fn end_with_us(command: &mut Command) {
    let parent = std::process::id().cast_signed();
    let tie = move || {
        // SAFETY: both are system calls without pointers.
        let is_ours =
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 && libc::getppid() == parent };
        if is_ours { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure only makes system calls, which is allowed between fork and exec.
    unsafe { command.pre_exec(tie) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_layout_of_the_kernel() {
        assert_eq!((size_of::<Info>(), size_of::<Config>()), (232, 304));
        assert_eq!(std::mem::offset_of!(Info, flags), 52);
    }
}
