//! The files of a filesystem on a volume that is not in one piece: the filesystem is read through the volume, but all places that
//! are told are those on the disk.

use std::ops::Range;

use platter_image::{DiskRead, Extent, Result};
use self_cell::self_cell;

use crate::files::{Attribute, FileContents, FileInode, FileTree, Listing, Visit};
use crate::layout::{Layout, VolumeDisk};
use crate::open_files::open_files;
use crate::probe::Found;

type Tree<'v> = Box<dyn FileTree + 'v>;

self_cell!(
    struct Opened<'d> {
        owner: VolumeDisk<'d>,
        #[not_covariant]
        dependent: Tree,
    }
);

/// The files on a volume.
pub(crate) struct VolumeFiles<'d> {
    disk: &'d dyn DiskRead,
    layout: Layout,
    opened: Opened<'d>,
    label: Option<String>,
    uuid: Option<String>,
}

impl<'d> VolumeFiles<'d> {
    /// Opens the filesystem that was found at the start of a volume; `None` if files of this kind cannot be read.
    ///
    /// # Errors
    /// Those of [`open_files()`].
    pub(crate) fn open(found: &Found, disk: &'d dyn DiskRead, layout: &Layout) -> Option<Result<Self>> {
        let opened = Opened::try_new(VolumeDisk::new(disk, layout.clone()), |volume| {
            match open_files(found, volume, Extent::new(0, volume.length())) {
                Some(Ok(files)) => Ok(files),
                Some(Err(error)) => Err(Some(error)),
                None => Err(None),
            }
        });
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return error.map(Err),
        };
        let (label, uuid) = opened.with_dependent(|_, files| {
            let (label, uuid) = files.names();
            (label.map(str::to_owned), uuid.map(str::to_owned))
        });
        Some(Ok(Self { disk, layout: layout.clone(), opened, label, uuid }))
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut dyn FileTree) -> T) -> T {
        self.opened.with_dependent_mut(|_, files| work(&mut **files))
    }
}

impl FileTree for VolumeFiles<'_> {
    fn filesystem(&self) -> &'static str {
        self.opened.with_dependent(|_, files| files.filesystem())
    }

    fn block_size(&self) -> u32 {
        self.opened.with_dependent(|_, files| files.block_size())
    }

    fn names(&self) -> (Option<&str>, Option<&str>) {
        (self.label.as_deref(), self.uuid.as_deref())
    }

    fn default_subvolume(&mut self) -> Result<Option<u64>> {
        self.with(|files| files.default_subvolume())
    }

    fn root(&self) -> u64 {
        self.opened.with_dependent(|_, files| files.root())
    }

    fn renew(&mut self) {
        self.with(|files| files.renew());
    }

    fn inode(&mut self, number: u64) -> Result<FileInode> {
        self.with(|files| files.inode(number))
    }

    fn forgets(&self) -> bool {
        self.opened.with_dependent(|_, files| files.forgets())
    }

    fn list(&mut self, directory: &FileInode) -> Result<Listing> {
        self.with(|files| files.list(directory))
    }

    fn disk(&self) -> &dyn DiskRead {
        self.disk
    }

    fn contents(&mut self, file: &FileInode) -> Result<FileContents> {
        let contents = self.with(|files| files.contents(file))?;
        Ok(match contents {
            FileContents::Runs(runs) => FileContents::Runs(self.layout.translate_runs(&runs)?),
            contents => contents,
        })
    }

    fn visit_packed(&mut self, file: &FileInode, range: Range<u64>, visit: Visit<'_>) -> Result<()> {
        self.with(|files| files.visit_packed(file, range, visit))
    }

    fn visit_places(&mut self, file: &FileInode, visit: &mut dyn FnMut(Extent)) -> Result<bool> {
        let mut places = Vec::new();
        let is_all = self.with(|files| files.visit_places(file, &mut |place| places.push(place)))?;
        places.iter().flat_map(|place| self.layout.pieces(*place)).for_each(|(_, piece)| visit(piece));
        Ok(is_all)
    }

    fn target(&mut self, link: &FileInode) -> Result<Vec<u8>> {
        self.with(|files| files.target(link))
    }

    fn attributes(&mut self, file: &FileInode) -> Result<Vec<Attribute>> {
        self.with(|files| files.attributes(file))
    }
}
