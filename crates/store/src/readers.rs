//! Registrations of readers: which recipes the processes that read a store may still need, for the collector in the process that
//! writes it.
//!
//! A reader has a file in `readers/`, locked as long as it lives, with one score in hexadecimal per line. It registers a score
//! before it looks whether the catalog still has a version with it, and the collector looks at the registrations after the
//! catalog. So if the reader still found the version, the collector finds the version or the registration. A process that died
//! holds no lock, and its file is removed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use platter_image::{BlockId, IoContext, Result, Score};
use platter_vfs::{OpenMode, VfsFile};

use crate::place::StorePlace;
use crate::store::Store;

const SUFFIX: &str = ".reader";
/// Bytes of a line.
const LINE_LENGTH: usize = 2 * BlockId::LEN + 1;
/// How often to choose another name when a collector removed the file before it was locked.
const TRIES: u32 = 20;

/// Lists further scores whose recipes must stay, such as those below overlays. Called while the catalog is locked.
pub type MoreRoots<'a> = &'a dyn Fn() -> Result<Vec<Score>>;

/// The registration of an opened store. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    place: StorePlace,
    path: PathBuf,
    file: Box<dyn VfsFile>,
    scores: BTreeSet<Score>,
}

impl Registration {
    fn create(place: &StorePlace) -> Result<Self> {
        let dir = place.readers_dir();
        place.create_dirs(&dir)?;
        for _ in 0..TRIES {
            let id = place.vfs().random_id().context(|| "choosing a name for a reader".into())?;
            let name: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            let path = dir.join(format!("{name}{SUFFIX}"));
            let context = || format!("making {}", path.display());
            let Some(file) = place.vfs().lock(&path).context(context)? else { continue };
            // A collector that found it unlocked has removed it: nobody would see what is written to it.
            if place.vfs().exists(&path).context(context)? {
                return Ok(Self { place: place.clone(), path, file, scores: BTreeSet::new() });
            }
        }
        Err(platter_image::Error::transient(format!("cannot register a reader in {}", dir.display())))
    }

    fn add(&mut self, score: Score) -> Result<()> {
        if self.scores.contains(&score) {
            return Ok(());
        }
        let at = (self.scores.len() * LINE_LENGTH) as u64;
        let written = self.file.write_all_at(format!("{score}\n").as_bytes(), at);
        written.context(|| format!("writing {}", self.path.display()))?;
        self.scores.insert(score);
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Left behind, it is removed by the next collection.
        let _ = self.place.remove_if_there(&self.path);
    }
}

impl Store {
    /// Keeps the recipe with that score from being collected as long as this store is open, even if its versions are forgotten.
    /// Returns whether a version has it now: only then it is certain that all of its blocks are still here.
    ///
    /// # Errors
    /// `Io`, also when the store may not be written; an error when the catalog cannot be read.
    pub fn hold(&self, score: Score) -> Result<bool> {
        {
            let mut registration = self.0.registration.lock();
            if registration.is_none() {
                *registration = Some(Registration::create(self.place())?);
            }
            registration.as_mut().map_or(Ok(()), |registration| registration.add(score))?;
        }
        Ok(self.catalog()?.oldest_of(score)?.is_some())
    }
}

/// Returns the scores that readers registered. Removes the files of readers that died.
pub(crate) fn registered(place: &StorePlace) -> Result<BTreeSet<Score>> {
    let dir = place.readers_dir();
    let context = || format!("reading the registrations in {}", dir.display());
    let mut scores = BTreeSet::new();
    if !place.vfs().exists(&dir).context(context)? {
        return Ok(scores);
    }
    for entry in place.vfs().list(&dir).context(context)? {
        if !entry.name.ends_with(SUFFIX) {
            continue;
        }
        let path = dir.join(&entry.name);
        if let Some(_stale) = place.vfs().lock(&path).context(context)? {
            place.remove_if_there(&path)?;
            continue;
        }
        let file = match place.vfs().open(&path, OpenMode::Read) {
            // It ended meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            opened => opened.context(context)?,
        };
        let mut bytes = vec![0; file.length().context(context)? as usize];
        file.read_exact_at(&mut bytes, 0).context(context)?;
        // An incomplete line is being written: its reader looks into the catalog later.
        for line in bytes.chunks_exact(LINE_LENGTH) {
            let score = std::str::from_utf8(&line[..LINE_LENGTH - 1]).ok().and_then(BlockId::from_hex);
            let score = score.ok_or_else(|| {
                platter_image::Error::corrupt(format!("{} is no registration of a reader", path.display()))
            })?;
            scores.insert(Score(score));
        }
    }
    Ok(scores)
}
