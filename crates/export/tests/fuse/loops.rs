//! Loop devices over files of the tree, and a file system on them.

use std::process::Command;
use std::sync::Arc;

use crate::memory::{Done, MemoryFile, MemoryTree};
use crate::mounted::{Mounted, is_possible, is_root};

/// Detaches a loop device, even when the test fails.
struct Loop(String);

impl Loop {
    /// `None` where there are no loop devices.
    fn attach(mounted: &Mounted, option: &str) -> Option<Self> {
        let output = mounted.try_shell(&format!("losetup -f --show {option} live.raw"));
        if !output.status.success() && !std::path::Path::new("/dev/loop-control").exists() {
            println!("skipped: no loop devices");
            return None;
        }
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Self(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
        let _ = Command::new("losetup").args(["-d", &self.0]).output();
    }
}

fn file_system(option: &str) {
    if !is_possible() || !is_root() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    let bytes = vec![0x5a; 32 << 20];
    let live = tree.put("live.raw", MemoryFile { is_fixed_length: true, ..MemoryFile::of(bytes) });
    let mounted = Mounted::of(&tree);
    let Some(device) = Loop::attach(&mounted, option) else { return };
    let name = device.0.clone();
    let on = |script: &str| mounted.shell(&script.replace("DEV", &name));
    assert_eq!(on("losetup -nO DIO DEV"), if option.is_empty() { "0" } else { "1" });
    on("mkfs.ext4 -q DEV; mkdir $T/fs; mount DEV $T/fs");
    on("head -c 5000000 /dev/urandom > $T/random; cp $T/random $T/fs/a; cp $T/random $T/fs/b; rm $T/fs/b");
    on("sync -f $T/fs; fstrim $T/fs; umount $T/fs");
    // After flushing, the contents come from the server.
    on("blockdev --flushbufs DEV; mount DEV $T/fs; cmp $T/fs/a $T/random; umount $T/fs");
    on("e2fsck -fn DEV");
    drop(device);
    assert!(live.did(|done| *done == Done::Sync), "flushes reach the file");
    assert!(live.did(|done| matches!(done, Done::Zero(..))), "discarding reaches the file");
    std::fs::write(mounted.path().with_file_name("copy"), live.contents()).unwrap();
    on("e2fsck -fn $T/copy");
    mounted.finish();
}

#[test]
fn a_file_system_over_a_loop_device() {
    file_system("");
}

#[test]
fn a_file_system_over_a_loop_device_with_direct_io() {
    file_system("--direct-io=on");
}
