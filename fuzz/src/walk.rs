//! Walks everything in the filesystem of a disk, as `ls`, `cat` and `cp` do.

use platter_filesystem::{FileContents, FileInode, FileKind, FileTree, Found, Piece, open_files};
use platter_image::{DiskRead, Error, ErrorKind, Extent, Result};

/// More files are not visited, and more bytes are not read.
const FILES_MAX: usize = 2000;
const BYTES_MAX: u64 = 64 << 20;

/// Reads names, contents and attributes, as every kind of filesystem. Panics if an error is a defect of the reader.
pub fn walk(disk: &Vec<u8>) {
    let extent = Extent::new(0, disk.length());
    for kind in ["ext", "xfs", "btrfs", "ntfs", "vfat", "exfat"] {
        match open_files(&Found::Filesystem(kind), disk, extent).expect("a known kind") {
            Ok(mut files) => visit(&mut *files),
            Err(error) => check(&error),
        }
    }
}

fn check(error: &Error) {
    assert_ne!(error.kind(), ErrorKind::Bug, "{error}");
}

/// Reads names, contents and attributes of an open filesystem. Panics if an error is a defect of the reader.
pub fn visit(files: &mut dyn FileTree) {
    let mut numbers = vec![files.root()];
    let (mut visited, mut bytes) = (0, 0_u64);
    while let Some(number) = numbers.pop() {
        visited += 1;
        if visited > FILES_MAX || bytes > BYTES_MAX {
            return;
        }
        let inode = match files.inode(number) {
            Ok(inode) => inode,
            Err(error) => {
                check(&error);
                continue;
            }
        };
        let results = [
            files.attributes(&inode).map(|_| ()),
            files.visit_places(&inode, &mut |_| ()).map(|_| ()),
            match inode.metadata().kind {
                FileKind::Directory => files.list(&inode).map(|listing| {
                    numbers.extend((0..listing.len()).filter_map(|at| Some(listing.get(at)?.1)));
                }),
                FileKind::Link => files.target(&inode).map(|_| ()),
                _ => {
                    let mut position = 0;
                    let read = files.visit_contents(&inode, &mut |offset, piece| {
                        assert_eq!(offset, position, "pieces do not follow one another");
                        position += match piece {
                            Piece::Zeros(length) => length,
                            Piece::Bytes(piece) => {
                                bytes += piece.len() as u64;
                                piece.len() as u64
                            }
                        };
                        Ok(())
                    });
                    if read.is_ok() {
                        assert_eq!(position, inode.metadata().size, "the pieces are not the whole file");
                    }
                    read.and_then(|()| visit_part(files, &inode))
                }
            },
        ];
        results.iter().for_each(|result| {
            if let Err(error) = result {
                check(error);
            }
        });
    }
}

/// Reads a part of packed contents, as a mount does.
fn visit_part(files: &mut dyn FileTree, inode: &FileInode) -> Result<()> {
    if !matches!(files.contents(inode)?, FileContents::Packed) {
        return Ok(());
    }
    let size = inode.metadata().size;
    let part = size / 3..size / 2;
    let mut next = None;
    files.visit_packed(inode, part.clone(), &mut |offset, piece| {
        assert!(next.map_or(offset <= part.start, |next| next == offset), "pieces do not follow one another");
        let length = match piece {
            Piece::Zeros(length) => length,
            Piece::Bytes(bytes) => bytes.len() as u64,
        };
        next = Some(offset + length);
        Ok(())
    })?;
    assert!(
        part.is_empty() || next.is_some_and(|next| (part.end..=size).contains(&next)),
        "a part is missing"
    );
    Ok(())
}
