//! A volume group as its metadata describes it, checked in itself.
//!
//! [`Group::parse`] fails if anything leaves a doubt about which extents are free: then all of the group is kept. A logical
//! volume that is understood well enough to know its extents, but not to read it, has a reason ([`Volume::reason`]).

use std::collections::{BTreeMap, BTreeSet};

use platter_image::{Error, Result, SECTOR};

use super::text::{Section, Value};

/// Kinds of segments that consist of other logical volumes, or of nothing. They have no extents of their own.
const COMPOSED: &[&str] = &[
    "cache",
    "cache-pool",
    "error",
    "integrity",
    "mirror",
    "raid0",
    "raid0_meta",
    "raid1",
    "raid10",
    "raid10_near",
    "raid4",
    "raid5",
    "raid5_la",
    "raid5_ls",
    "raid5_n",
    "raid5_ra",
    "raid5_rs",
    "raid6",
    "raid6_la_6",
    "raid6_ls_6",
    "raid6_n_6",
    "raid6_nc",
    "raid6_nr",
    "raid6_ra_6",
    "raid6_rs_6",
    "raid6_zr",
    "snapshot",
    "thin",
    "thin-pool",
    "vdo",
    "vdo-pool",
    "writecache",
    "zero",
];

/// The kind of segments in one or several places.
const STRIPED: &str = "striped";
/// All values that such a segment may have.
const STRIPED_VALUES: &[&str] = &[
    "start_extent",
    "extent_count",
    "reshape_count",
    "data_copies",
    "tags",
    "type",
    "stripe_count",
    "stripe_size",
    "stripes",
];

/// A physical volume of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Physical {
    /// Its UUID without hyphens.
    pub(super) uuid: String,
    /// Where its extents begin, in bytes from its start.
    pub(super) start: u64,
    /// How many extents it has.
    pub(super) count: u64,
}

/// A segment of a logical volume that has extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Its length in extents.
    pub(super) count: u64,
    /// Bytes in one place before the next has its turn; 0 if there is only one place.
    pub(super) stripe: u64,
    /// The places: the index of the physical volume, and the first extent.
    pub(super) places: Vec<(usize, u64)>,
}

/// A logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) name: String,
    /// All segments that have extents; with a reason, maybe not those that make up the volume.
    pub(super) segments: Vec<Segment>,
    /// Why its contents cannot be read from its segments.
    pub(super) reason: Option<String>,
    /// Texts in its segments that are not on physical volumes: the names of the logical volumes that it is made of are among them.
    uses: BTreeSet<String>,
}

/// A volume group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) uuid: String,
    /// The length of an extent in bytes.
    pub(super) extent_length: u64,
    pub(super) physical: Vec<Physical>,
    pub(super) volumes: Vec<Volume>,
}

impl Group {
    /// Parses a text of metadata.
    ///
    /// # Errors
    /// `Corrupt`, with the reason not to rely on it.
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        let top = Section::parse(text)?;
        if top.text("contents")? != "Text Format Volume Group" || top.number("version")? != 1 {
            return Err(Error::corrupt("its metadata is not a volume group of version 1"));
        }
        let mut groups = top.sections.iter();
        let (Some((name, group)), None) = (groups.next(), groups.next()) else {
            return Err(Error::corrupt("its metadata does not describe one volume group"));
        };
        Self::read(name, group).map_err(|error| Error::corrupt(format!("volume group {name}: {error}")))
    }

    fn read(name: &str, section: &Section) -> Result<Self> {
        check_flags(section, &["RESIZEABLE", "READ", "WRITE"], &[])?;
        let format = section.values.get("format").is_none_or(|format| *format == Value::Text("lvm2".into()));
        let lock = section.values.get("lock_type").is_none_or(|lock| *lock == Value::Text("none".into()));
        if !format || !lock {
            return Err(Error::corrupt("it has another format, or is shared between machines"));
        }
        let extent_length = section.number("extent_size")?.checked_mul(SECTOR).filter(|length| *length > 0);
        let extent_length =
            extent_length.ok_or_else(|| Error::corrupt("its extents have an impossible length"))?;
        let mut keys = BTreeMap::new();
        let mut physical = Vec::new();
        for (key, section) in sections(section, "physical_volumes") {
            let read = Physical::read(section, extent_length);
            let read = read.map_err(|error| Error::corrupt(format!("physical volume {key}: {error}")))?;
            keys.insert(key, physical.len());
            physical.push(read);
        }
        let mut volumes = Vec::new();
        for (name, section) in sections(section, "logical_volumes") {
            let read = Reader { keys: &keys, extent_length, uses: BTreeSet::new(), reason: None };
            let volume = read.volume(name, section);
            volumes.push(volume.map_err(|error| Error::corrupt(format!("logical volume {name}: {error}")))?);
        }
        check_composed(&volumes)?;
        let parts: BTreeSet<String> = volumes.iter().flat_map(|volume| volume.uses.iter().cloned()).collect();
        for volume in volumes.iter_mut().filter(|volume| parts.contains(&volume.name)) {
            volume.reason.get_or_insert_with(|| "another logical volume uses it".to_owned());
        }
        let uuid = section.text("id")?.to_owned();
        let group = Self { name: name.to_owned(), uuid, extent_length, physical, volumes };
        group.check_extents()?;
        Ok(group)
    }

    /// Checks that all extents that are in use exist, and that each has one user.
    fn check_extents(&self) -> Result<()> {
        let mut used = Vec::new();
        for (index, volume) in self.volumes.iter().enumerate() {
            for segment in &volume.segments {
                let part = segment.count / segment.places.len() as u64;
                for (physical, first) in &segment.places {
                    let end = first.checked_add(part).filter(|end| *end <= self.physical[*physical].count);
                    let end = end.ok_or_else(|| {
                        Error::corrupt(format!(
                            "logical volume {} ends behind its physical volume",
                            volume.name
                        ))
                    })?;
                    used.push((*physical, *first, end, index));
                }
            }
        }
        used.sort_unstable();
        match used.windows(2).find(|two| two[0].0 == two[1].0 && two[0].2 > two[1].1) {
            Some(two) => {
                let (one, other) = (&self.volumes[two[0].3].name, &self.volumes[two[1].3].name);
                Err(Error::corrupt(format!("logical volumes {one} and {other} have an extent in common")))
            }
            None => Ok(()),
        }
    }
}

impl Physical {
    fn read(section: &Section, extent_length: u64) -> Result<Self> {
        check_flags(section, &["ALLOCATABLE"], &[])?;
        let start = section.number("pe_start")?.checked_mul(SECTOR);
        let count = section.number("pe_count")?;
        let end = count.checked_mul(extent_length).and_then(|length| length.checked_add(start?));
        match (start, end) {
            (Some(start), Some(_)) => {
                let uuid = section.text("id")?.replace('-', "");
                Ok(Self { uuid, start, count })
            }
            _ => Err(Error::corrupt("its extents are impossible")),
        }
    }
}

/// The sections in the section of that name.
fn sections<'s>(section: &'s Section, name: &str) -> impl Iterator<Item = (&'s str, &'s Section)> {
    let inner = section.sections.get(name).into_iter().flat_map(|inner| &inner.sections);
    inner.map(|(name, section)| (name.as_str(), section))
}

/// Checks that there are no other flags than these.
fn check_flags(section: &Section, status: &[&str], flags: &[&str]) -> Result<()> {
    match unknown_flag(section, status, flags)? {
        Some(flag) => Err(Error::corrupt(format!("it has the flag {flag}"))),
        None => Ok(()),
    }
}

fn unknown_flag(section: &Section, status: &[&str], flags: &[&str]) -> Result<Option<String>> {
    let mut found = section.texts("status")?;
    found.retain(|flag| !status.contains(flag));
    found.extend(section.texts("flags")?.into_iter().filter(|flag| !flags.contains(flag)));
    Ok(found.first().map(|flag| (*flag).to_owned()))
}

/// Checks that logical volumes that are made of others end in extents: no chain of them leads back to itself.
fn check_composed(volumes: &[Volume]) -> Result<()> {
    let mut open: BTreeMap<&str, &Volume> = volumes
        .iter()
        .filter(|volume| volume.segments.is_empty())
        .map(|volume| (&*volume.name, volume))
        .collect();
    let names: BTreeSet<&str> = volumes.iter().map(|volume| &*volume.name).collect();
    // Those that use no logical volume, like one of zeros, need none.
    let is_composed = |volume: &Volume| volume.uses.iter().any(|used| names.contains(&**used));
    loop {
        let before = open.len();
        let ends = |volume: &Volume| {
            volume.uses.iter().any(|used| names.contains(&**used) && !open.contains_key(&**used))
        };
        let left: BTreeMap<&str, &Volume> = open
            .iter()
            .filter(|(_, volume)| is_composed(volume) && !ends(volume))
            .map(|(name, volume)| (*name, *volume))
            .collect();
        match left.keys().next() {
            None => return Ok(()),
            Some(name) if left.len() == before => {
                return Err(Error::corrupt(format!("logical volume {name} is made of itself")));
            }
            Some(_) => open = left,
        }
    }
}

/// Reads a logical volume.
struct Reader<'g, 's> {
    /// The names of the physical volumes in the text, and their indexes.
    keys: &'g BTreeMap<&'s str, usize>,
    extent_length: u64,
    /// See [`Volume::uses`].
    uses: BTreeSet<String>,
    /// Why the volume's contents cannot be read.
    reason: Option<String>,
}

impl Reader<'_, '_> {
    fn volume(mut self, name: &str, section: &Section) -> Result<Volume> {
        let flag = unknown_flag(section, &["READ", "WRITE", "VISIBLE", "FIXED_MINOR"], &["ACTIVATION_SKIP"])?;
        self.reason = flag.map(|flag| format!("it has the flag {flag}"));
        if !section.texts("status")?.contains(&"VISIBLE") {
            self.reason = Some("it is a part of another logical volume".to_owned());
        }
        let mut found = Vec::new();
        for (key, segment) in &section.sections {
            if !key.starts_with("segment") {
                return Err(Error::corrupt(format!("it has a section {key:?}")));
            }
            let (start, count) = (segment.number("start_extent")?, segment.number("extent_count")?);
            let end = start.checked_add(count).filter(|end| *end > start);
            let end = end.ok_or_else(|| Error::corrupt(format!("{key} has an impossible length")))?;
            let read = self.segment(segment, count);
            found.push((start, end, read.map_err(|error| Error::corrupt(format!("{key}: {error}")))?));
        }
        if found.len() as u64 != section.number("segment_count")? {
            return Err(Error::corrupt("a segment is missing"));
        }
        found.sort_by_key(|(start, ..)| *start);
        let mut position = 0;
        for (start, end, _) in &found {
            if *start != position {
                return Err(Error::corrupt(format!("its segments leave out or repeat extent {position}")));
            }
            position = *end;
        }
        let segments = found.into_iter().filter_map(|(_, _, segment)| segment).collect();
        Ok(Volume { name: name.to_owned(), segments, reason: self.reason, uses: self.uses })
    }

    /// A segment; `None` if it has no extents of its own.
    fn segment(&mut self, section: &Section, count: u64) -> Result<Option<Segment>> {
        let kind = section.text("type")?;
        if kind == STRIPED {
            return self.striped(section, count);
        }
        let (name, _) = kind.split_once('+').unwrap_or((kind, ""));
        if !COMPOSED.contains(&name) {
            return Err(Error::corrupt(format!("its type {kind} is not known")));
        }
        let mut is_direct = false;
        section.visit_texts(&mut |text| {
            is_direct |= self.keys.contains_key(text);
            self.uses.insert(text.to_owned());
        });
        if is_direct {
            return Err(Error::corrupt(format!("of type {kind}, it uses a physical volume directly")));
        }
        self.reason.get_or_insert_with(|| format!("it has a segment of type {kind}"));
        Ok(None)
    }

    fn striped(&mut self, section: &Section, count: u64) -> Result<Option<Segment>> {
        if let Some(name) = section.values.keys().find(|name| !STRIPED_VALUES.contains(&name.as_str())) {
            return Err(Error::corrupt(format!("its value {name:?} is not known")));
        }
        if !section.sections.is_empty() {
            return Err(Error::corrupt("it has sections"));
        }
        for (name, usual) in [("reshape_count", 0), ("data_copies", 1)] {
            if section.values.get(name).is_some_and(|value| *value != Value::Number(usual)) {
                return Err(Error::corrupt(format!("its value {name:?} is not understood")));
            }
        }
        let Some(Value::List(stripes)) = section.values.get("stripes") else {
            return Err(Error::corrupt("it has no stripes"));
        };
        let (mut places, mut composed) = (Vec::new(), 0);
        for pair in stripes.chunks(2) {
            let [Value::Text(name), Value::Number(first)] = pair else {
                return Err(Error::corrupt("its stripes are not pairs of a volume and an extent"));
            };
            match self.keys.get(name.as_str()) {
                Some(index) => places.push((*index, *first)),
                None => {
                    self.uses.insert(name.clone());
                    composed += 1;
                }
            }
        }
        let stripe_count = places.len() as u64 + composed;
        if stripe_count == 0
            || stripe_count != section.number("stripe_count")?
            || !count.is_multiple_of(stripe_count)
        {
            return Err(Error::corrupt("the number of its stripes is wrong"));
        }
        if composed > 0 && !places.is_empty() {
            return Err(Error::corrupt("it is both on physical and on logical volumes"));
        }
        if composed > 0 {
            self.reason.get_or_insert_with(|| "it is on other logical volumes".to_owned());
            return Ok(None);
        }
        let stripe = match stripe_count {
            1 => 0,
            _ => section.number("stripe_size")?.checked_mul(SECTOR).unwrap_or(0),
        };
        if stripe_count > 1 && (stripe == 0 || !self.extent_length.is_multiple_of(stripe)) {
            return Err(Error::corrupt("its stripes have an impossible length"));
        }
        Ok(Some(Segment { count, stripe, places }))
    }
}
