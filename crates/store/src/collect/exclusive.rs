//! The cost of each image: the bytes of blocks that no other image needs, which forgetting it would free.
//!
//! Bounded memory: of a store with many blocks, only a sample is counted, those with certain hashes, and the sums are multiplied.
//! Hashes are random, so of an image with n counted blocks the error is about 1/√n.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use platter_image::{BlockId, Error, Result, Score};

use super::mark::{Marking, Sample};
use crate::catalog::PackState;
use crate::store::Store;
use platter_collection::{SHARED, merge_owners};
use platter_pack::{PackDirectory, read_directory};
use platter_records::{ImageCost, ImageCosts, ImageName, PackCount, PackId, Version};

/// Most blocks that are counted; they need about 100 bytes each. A store with more gets a sample.
const COUNTED_MAX: usize = 1 << 21;
/// How often to count again because versions were forgotten or packs collected meanwhile.
const COUNTS_MAX: usize = 8;

/// What a count begins with.
struct Counted {
    /// Number of the last change.
    change: u64,
    versions: Vec<Version>,
    packs: BTreeSet<PackId>,
}

impl Counted {
    fn has_all_of(&self, before: &Self) -> bool {
        let now: BTreeSet<BlockId> = self.versions.iter().map(|version| version.record_id).collect();
        before.versions.iter().all(|version| now.contains(&version.record_id))
            && before.packs.is_subset(&self.packs)
    }
}

impl Store {
    /// Returns what each image costs. Walks all recipes, again if something that they need was collected meanwhile. The bytes of a
    /// frame are divided equally among its blocks.
    ///
    /// # Errors
    /// `Missing` or `Corrupt` when a recipe cannot be read; `Transient` when the store changes faster than it can be counted; an
    /// error when the catalog cannot be read.
    pub fn image_costs(&self) -> Result<ImageCosts> {
        self.count_undisturbed(&mut |counted| {
            self.image_costs_of(counted, Sample::of(self.blocks(), COUNTED_MAX))
        })
    }

    /// Counts until everything that the count began with was still there at its end. Otherwise a result may miss what was moved, and
    /// an error may name a block that nothing needs any more.
    fn count_undisturbed(&self, count: &mut dyn FnMut(&Counted) -> Result<ImageCosts>) -> Result<ImageCosts> {
        for _ in 0..COUNTS_MAX {
            let before = self.to_count()?;
            let costs = count(&before);
            if self.to_count()?.has_all_of(&before) {
                return costs;
            }
        }
        Err(Error::transient(
            "versions are forgotten and packs collected faster than the costs can be counted: try again later",
        ))
    }

    fn to_count(&self) -> Result<Counted> {
        let change = self.last_change()?;
        Ok(Counted { change, versions: self.versions()?, packs: self.live_packs()? })
    }

    fn image_costs_of(&self, counted: &Counted, sample: Sample) -> Result<ImageCosts> {
        let change = counted.change;
        let mut images: BTreeMap<ImageName, Vec<&Version>> = BTreeMap::new();
        for version in &counted.versions {
            images.entry(version.name.image.clone()).or_default().push(version);
        }
        // What several images have as a whole is walked once.
        let mut users: HashMap<Score, BTreeSet<&ImageName>> = HashMap::new();
        for version in &counted.versions {
            users.entry(version.record.score).or_default().insert(&version.name.image);
        }
        let walk = |versions: &mut dyn Iterator<Item = &Version>| {
            let mut marking = Marking::sampled(self, sample);
            for version in versions {
                marking
                    .version(version.record.score, version.record_id)
                    .map_err(|error| error.within(format!("walking {}", version.name)))?;
            }
            Ok::<_, Error>(marking)
        };
        let is_shared = |version: &&Version| users[&version.record.score].len() > 1;
        let mut shared = walk(&mut counted.versions.iter().filter(is_shared))?;
        let mut owners = merge_owners(Vec::new(), shared.live(), SHARED);
        for (number, versions) in images.values().enumerate() {
            let mut own = walk(&mut versions.iter().copied().filter(|version| !is_shared(version)))?;
            owners = merge_owners(owners, own.live(), number as u32);
        }
        let (mut bytes, mut shared_bytes) = (vec![0_u64; images.len()], 0);
        let mut counted = vec![false; owners.len()];
        self.visit_directories(&mut |directory| {
            for (row, ids) in directory?.iter() {
                let share = u64::from(row.packed_length) / ids.len().max(1) as u64;
                for id in ids.iter().filter(|id| sample.has(id)) {
                    let Ok(at) = owners.binary_search_by_key(id, |(id, _)| *id) else { continue };
                    if std::mem::replace(&mut counted[at], true) {
                        continue;
                    }
                    match owners[at].1 {
                        SHARED => shared_bytes += share * sample.one_of(),
                        image => bytes[image as usize] += share * sample.one_of(),
                    }
                }
            }
            Ok(())
        })?;
        let costs = images.into_iter().zip(bytes).map(|((image, versions), exclusive_bytes)| ImageCost {
            image,
            versions: versions.len() as u64,
            exclusive_bytes,
        });
        let (images, one_of) = (costs.collect(), sample.one_of());
        Ok(ImageCosts { change, one_of, images, shared_bytes, trash: self.trash()? })
    }

    /// Returns the collected packs whose files are kept for now.
    fn trash(&self) -> Result<PackCount> {
        let mut trash = PackCount::default();
        let packs = self.catalog()?.packs()?;
        packs.iter().filter(|row| row.state == PackState::Dead).for_each(|row| trash.add(row.length));
        Ok(trash)
    }

    fn live_packs(&self) -> Result<BTreeSet<PackId>> {
        let rows = self.catalog()?.packs()?.into_iter();
        Ok(rows.filter(|row| row.state == PackState::Live).map(|row| row.id).collect())
    }

    /// Calls `visit` with the directory of each live pack: its frames, each with the ids of its blocks. A pack whose directory
    /// cannot be read is an error for `visit`, which decides whether to go on.
    ///
    /// # Errors
    /// Those of `visit`; an error when the catalog cannot be read.
    pub fn visit_directories(
        &self,
        visit: &mut dyn FnMut(Result<PackDirectory>) -> Result<()>,
    ) -> Result<()> {
        let live = self.live_packs()?;
        for (ordinal, pack) in self.0.packs.all().iter().enumerate() {
            if live.contains(&pack.id) {
                let file = self.0.packs.file(ordinal as u32);
                visit(file.and_then(|file| read_directory(&*file, pack.id, self.id())))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use platter_collection::CollectRequest;
    use platter_image::frame::{Compressor, FrameBuilder};
    use platter_image::page::{Entry, State};
    use platter_image::recipe::{CutPolicy, RecipeBuilder};
    use platter_image::{Domain, ErrorKind, Extent, FrameStore, Kind};
    use platter_records::VersionRecord;

    use super::*;
    use crate::place::StorePlace;

    /// Publishes a disk with a block of 512 bytes for each number.
    fn publish(store: &Store, name: &str, numbers: std::ops::Range<u32>) {
        let session = store.session().unwrap();
        let mut compressor = Compressor::new(3).unwrap();
        let length = 512 * u64::from(numbers.end - numbers.start);
        let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
        let pages: Vec<(BlockId, Vec<u8>)> = Vec::new();
        let mut recipe = RecipeBuilder::new(length, 512, policy, Domain::SHARED, pages);
        let mut append = |kind, id, bytes: &[u8]| {
            if session.lookup_and_pin(&id).unwrap().is_none() {
                let mut frame = FrameBuilder::new(kind, Domain::SHARED, 1 << 10);
                frame.push(id, bytes);
                session.append(&frame.encode(&mut compressor).unwrap()).unwrap();
            }
        };
        for (number, at) in numbers.zip(0..) {
            let bytes = number.to_le_bytes().repeat(128);
            let id = BlockId::of(Kind::Data, &bytes);
            append(Kind::Data, id, &bytes);
            let state = State::Data { block: id, offset: 0 };
            recipe.push(Entry { extent: Extent::new(512 * at, 512), state }).unwrap();
        }
        let (score, pages) = recipe.finish().unwrap();
        pages.iter().for_each(|(id, bytes)| append(Kind::Page, *id, bytes));
        let mut draft = VersionRecord::draft(name.parse().unwrap(), score, 1);
        draft.disk_length = length;
        session.publish(draft).unwrap();
    }

    /// Deletes at once what nothing needs.
    fn collect(store: &Store) {
        let request = CollectRequest {
            now_unix_ms: 1_000_000,
            keep_trash_ms: 0,
            dry_run: false,
            is_confirmed: true,
            compact_percent: 0,
            recompress: None,
            end_leases: false,
        };
        assert!(store.collect(&request, &|| Ok(Vec::new()), &mut |_| {}).unwrap().deleted.packs > 0);
    }

    /// Two images with 1,500 blocks of their own, and 500 that both need.
    #[test]
    fn a_sample_estimates_what_each_image_costs() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path());
        Store::init(&place).unwrap();
        let store = Store::open_writer(&place).unwrap();
        publish(&store, "a", 0..2000);
        publish(&store, "b", 1500..3500);
        let all = store.image_costs().unwrap();
        assert_eq!((all.one_of, all.change, all.images.len()), (1, store.last_change().unwrap(), 2));
        let near =
            |found: u64, expected: u64, percent: u64| found.abs_diff(expected) * 100 <= expected * percent;
        let (own, shared) = (all.images[0].exclusive_bytes, all.shared_bytes);
        assert!(near(own, all.images[1].exclusive_bytes, 2), "{all:?}");
        // Pages, too, are needed by one image only.
        assert!(own > 3 * shared && shared > 0, "{all:?}");
        let some =
            store.image_costs_of(&store.to_count().unwrap(), Sample::of(store.blocks(), 1000)).unwrap();
        assert_eq!(some.one_of, 4);
        assert!(some.images.iter().all(|image| near(image.exclusive_bytes, own, 60)), "{some:?} {all:?}");
        assert_ne!(some.images, all.images);
        assert!(near(some.shared_bytes, shared, 35), "{some:?} {all:?}");
    }

    /// An image is forgotten and collected after a count has listed it.
    #[test]
    fn what_is_collected_meanwhile_is_not_said_to_be_lost() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path());
        Store::init(&place).unwrap();
        let store = Store::open_writer(&place).unwrap();
        publish(&store, "a", 0..50);
        publish(&store, "b", 50..100);
        let mut counts = 0;
        let costs = store.count_undisturbed(&mut |counted| {
            counts += 1;
            if counts == 1 {
                store.forget(&"b".parse().unwrap(), None).unwrap();
                collect(&store);
            }
            let costs = store.image_costs_of(counted, Sample::default());
            assert_eq!(costs.is_err(), counts == 1, "{costs:?}");
            costs
        });
        let costs = costs.unwrap();
        assert_eq!((counts, costs.images.len(), costs.change), (2, 1, store.last_change().unwrap()));
        assert!(costs.images[0].exclusive_bytes > 0);
        // A store that never comes to rest.
        let disturbed = store.count_undisturbed(&mut |counted| {
            let name = "a".parse().unwrap();
            store.forget(&name, None).unwrap();
            publish(&store, "a", 200..250);
            store.image_costs_of(counted, Sample::default())
        });
        assert_eq!(disturbed.unwrap_err().kind(), ErrorKind::Transient);
    }
}
