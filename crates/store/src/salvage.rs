//! Takes over packs that the catalog does not know: what sessions left that a crash or an error ended.
//!
//! Why nothing is trusted but what is read here: such a pack may lack its footer, have holes where writes did not
//! reach the disk, or, after a failed sync, be readable now and gone after the next power cut (trust F6). So its good
//! frames are *copied* into a new pack, which is sealed and synced like any other, and only after the commit is the
//! old file removed. A crash anywhere in between leaves files that the next writer takes over the same way.
//!
//! Why a version record found there is entered in the catalog: a record is written only after all that it needs was
//! durable (see `session`), so a record with no hole before it is a publish that lacked nothing but the commit. It is
//! finished, if it were allowed now: an edit token may have been taken over since. Records after a hole are not:
//! something of theirs may be what is missing. A record that is not entered is not kept either, or `rebuild` would
//! find it again; blocks are kept in any case.

use std::collections::{BTreeMap, BTreeSet};

use platter_image::frame::{EncodedFrame, FrameDecoder, Verify};
use platter_image::{BlockId, ErrorKind, FrameStore, IoContext, Kind, Result};
use platter_vfs::OpenMode;

use crate::boot_set::BootSetHead;
use crate::catalog::Change;
use crate::identity::PackId;
use crate::name::VersionName;
use crate::pack::{Scanned, read_header, scan};
use crate::record::VersionRecord;
use crate::session::Session;
use crate::store::Store;
use crate::token::refusal;

/// Which records count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adopt {
    /// Those with no hole before them.
    Whole,
    /// All: the user has asked for whatever is left.
    Any,
}

/// What was taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Packs of interrupted sessions: their good frames are the store's now.
    pub packs: usize,
    /// Versions whose publishing lacked nothing but its last step: they exist now.
    pub versions: Vec<VersionName>,
}

/// A boot set whose head was found.
pub(crate) type FoundBootSet = (BlockId, BootSetHead);

/// A frame of kind version, and the records in it.
struct Found {
    frame: EncodedFrame,
    records: Vec<(BlockId, VersionRecord)>,
}

/// Takes over every pack the catalog does not know. The store has been opened to be written, and has no sessions yet.
pub(crate) fn salvage(store: &Store, adopt: Adopt) -> Result<Salvaged> {
    let listed: BTreeSet<PackId> = store.catalog()?.packs()?.into_iter().map(|row| row.id).collect();
    let unlisted: Vec<PackId> =
        store.place().list_packs()?.into_iter().filter(|pack| !listed.contains(pack)).collect();
    let (mut taken, mut found, mut boot_sets) = (Vec::new(), Vec::new(), Vec::new());
    if unlisted.is_empty() {
        return Ok(Salvaged::default());
    }
    let session = store.session()?;
    for pack in unlisted {
        let path = store.place().pack(pack);
        let opened = store.place().vfs().open(&path, OpenMode::Read);
        let file = opened.context(|| format!("opening {}", path.display()))?;
        match read_header(&*file) {
            // Another store's, or a newer Platter's: not ours to touch.
            Ok((_, owner)) if owner != store.id() => continue,
            Err(error) if error.kind() == ErrorKind::Refused => continue,
            // A header that did not reach the disk: the frames prove themselves.
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
        let salvaged = scan(&*file, &mut |frame| {
            if frame.row.kind == Kind::BootSet && (adopt == Adopt::Any || !frame.after_hole) {
                boot_sets.extend(read_boot_sets(frame.stored)?);
            }
            if frame.row.kind != Kind::Version {
                return keep_frame(&session, &frame);
            }
            if adopt == Adopt::Any || !frame.after_hole {
                found.push(Found { frame: copy(&frame), records: read_records(frame.stored)? });
            }
            Ok(())
        });
        salvaged.map_err(|error| error.within(format!("taking over the interrupted pack {pack}")))?;
        taken.push((pack, path));
    }
    // In their order, so that of two records for one number the older one wins: it was there first.
    found.sort_by_cached_key(|found| {
        let first = found.records.first();
        first.map(|(_, record)| (record.image.clone(), record.number, record.time_unix_ms))
    });
    let epoch = random_epoch(store)?;
    let versions = session.commit(|change, state, session| {
        let mut adopted = Vec::new();
        for found in &found {
            let names = adopt_records(change, found, adopt)?;
            if !names.is_empty() {
                session.append_to(state, &found.frame)?;
            }
            adopted.extend(names);
        }
        add_boot_sets(change, epoch, &boot_sets)?;
        Ok(adopted)
    })?;
    for (pack, path) in &taken {
        store.place().remove_if_there(path)?;
        // Durable before anything else is published: a refused record must not come back beside a later version.
        store.place().sync_dir(&store.place().pack_dir(*pack))?;
    }
    Ok(Salvaged { packs: taken.len(), versions })
}

/// Enters the records of a frame that count; gives their versions.
fn adopt_records(change: &mut Change<'_>, found: &Found, adopt: Adopt) -> Result<Vec<VersionName>> {
    let mut adopted = Vec::new();
    for (id, record) in &found.records {
        let held = change.token(&record.image)?;
        // A rename that lacks its commit has not happened: the version has its old name. What stands under a number
        // that was used was renamed, or forgotten.
        let is_new = record.renamed_from.is_none() && record.number > change.last_number(&record.image)?;
        let is_allowed = is_new && refusal(&record.image, record.token, held.as_ref()).is_none();
        if (adopt == Adopt::Any || is_allowed) && change.add_version(*id, record)? {
            adopted.push(record.name());
        }
    }
    Ok(adopted)
}

/// Copies a frame, unless the store has every block of it.
fn keep_frame(session: &Session, frame: &Scanned<'_>) -> Result<()> {
    for block in frame.blocks {
        if session.lookup_and_pin(&block.id)?.is_none() {
            return session.append(&copy(frame)).map(|_| ());
        }
    }
    Ok(())
}

fn copy(frame: &Scanned<'_>) -> EncodedFrame {
    EncodedFrame {
        kind: frame.row.kind,
        stored: frame.stored.to_vec(),
        blocks: frame.blocks.to_vec(),
        raw_length: frame.row.raw_length,
    }
}

/// Sixteen random bytes.
fn random_epoch(store: &Store) -> Result<[u8; 16]> {
    store.place().vfs().random_id().context(|| "choosing a name for the hoard's revisions".into())
}

/// Enters boot sets that were found in packs: each for all versions of its score that have none, in one revision. A
/// newer one of the same score goes before an older one.
pub(crate) fn add_boot_sets(
    change: &mut Change<'_>,
    epoch: [u8; 16],
    found: &[FoundBootSet],
) -> Result<usize> {
    let mut newest_first: Vec<&FoundBootSet> = found.iter().collect();
    newest_first.sort_by_key(|(id, head)| (std::cmp::Reverse(head.record.time_unix_ms), *id));
    let mut known: BTreeSet<VersionName> =
        change.hoard_members()?.into_iter().map(|member| member.version).collect();
    let (mut revision, before) = (None, known.len());
    let mut versions: BTreeMap<_, Vec<VersionName>> = BTreeMap::new();
    for version in change.versions_by_time()? {
        versions.entry(version.record.score).or_default().push(version.name);
    }
    for (id, head) in newest_first {
        for name in versions.get(&head.record.score).into_iter().flatten() {
            if !known.insert(name.clone()) {
                continue;
            }
            let revision = match revision {
                Some(revision) => revision,
                None => {
                    change.make_hoard(epoch)?;
                    *revision.insert(change.next_hoard_revision(head.record.time_unix_ms)?)
                }
            };
            change.add_member(name, *id, &head.record, revision)?;
        }
    }
    Ok(known.len() - before)
}

/// The good heads in a frame of kind boot set. Parts and bad ones are none; a newer Platter's end the whole run.
pub(crate) fn read_boot_sets(stored: &[u8]) -> Result<Vec<FoundBootSet>> {
    let mut decoder = FrameDecoder::new()?;
    let (header, contents) = match decoder.decode(stored, Verify::Hashes) {
        Ok(decoded) => decoded,
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let (mut found, mut rest) = (Vec::new(), contents);
    for block in &header.blocks {
        let (bytes, after) = rest.split_at(block.length as usize);
        rest = after;
        match BootSetHead::decode(bytes) {
            _ if !BootSetHead::is_one(bytes) => {}
            Ok(head) => found.push((block.id, head)),
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The good records in a frame of kind version. Bad ones are none; a newer Platter's end the whole run.
pub(crate) fn read_records(stored: &[u8]) -> Result<Vec<(BlockId, VersionRecord)>> {
    let mut decoder = FrameDecoder::new()?;
    let (header, contents) = match decoder.decode(stored, Verify::Hashes) {
        Ok(decoded) => decoded,
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let (mut records, mut rest) = (Vec::new(), contents);
    for block in &header.blocks {
        let (bytes, after) = rest.split_at(block.length as usize);
        rest = after;
        match VersionRecord::decode(bytes) {
            Ok(record) => records.push((block.id, record)),
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
    }
    Ok(records)
}
