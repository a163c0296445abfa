//! The decision: turns what is known about a device into reasons to refuse it. Pure.

use super::locks::Holder;

/// Why a device is refused. The names are what a user types to override a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A filesystem on it is mounted.
    Mounted,
    /// It is used as swap.
    Swap,
    /// It is held by RAID, device mapper or a cache.
    Held,
    /// It is the file behind an active loop device.
    LoopBacking,
    /// Something else has it open exclusively, or has locked it, such as a running virtual machine.
    Busy,
    /// Its sector size differs from the image's.
    SectorSize,
    /// The image does not fit.
    TooSmall,
    /// The store is on it.
    HoldsStore,
    /// It is neither a block device nor a regular file.
    WrongKind,
    /// It is a regular file with data that is not a disk.
    NotADisk,
    /// It cannot be written.
    ReadOnly,
    /// It is a regular file among device nodes, or would be created there.
    BelowDev,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 12] = [
        Self::Mounted,
        Self::Swap,
        Self::Held,
        Self::LoopBacking,
        Self::Busy,
        Self::SectorSize,
        Self::TooSmall,
        Self::HoldsStore,
        Self::WrongKind,
        Self::NotADisk,
        Self::ReadOnly,
        Self::BelowDev,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mounted => "mounted",
            Self::Swap => "swap",
            Self::Held => "held",
            Self::LoopBacking => "loop-backing",
            Self::Busy => "busy",
            Self::SectorSize => "sector-size",
            Self::TooSmall => "too-small",
            Self::HoldsStore => "holds-store",
            Self::WrongKind => "wrong-kind",
            Self::NotADisk => "not-a-disk",
            Self::ReadOnly => "read-only",
            Self::BelowDev => "below-dev",
        }
    }

    /// The reason with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// Whether the user may override it.
    pub fn can_be_forced(self) -> bool {
        !matches!(self, Self::TooSmall | Self::HoldsStore | Self::WrongKind | Self::ReadOnly | Self::BelowDev)
    }

    /// Whether it means that the device is in use, so that it cannot be opened exclusively.
    pub(super) fn is_use(self) -> bool {
        matches!(self, Self::Mounted | Self::Swap | Self::Held | Self::Busy)
    }
}

/// A reason with the evidence and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// What to tell the user.
    pub text: String,
}

/// A filesystem mounted from the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountedFrom {
    pub(super) device: String,
    pub(super) mount_point: String,
    pub(super) is_writable: bool,
}

/// Facts about a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Evidence {
    /// Its kind, if it cannot be a disk.
    pub(super) wrong_kind: Option<&'static str>,
    pub(super) mounted: Vec<MountedFrom>,
    /// Devices used as swap.
    pub(super) swaps: Vec<String>,
    /// Devices with their holders.
    pub(super) holders: Vec<(String, String)>,
    /// Loop devices whose file it is.
    pub(super) loops: Vec<String>,
    /// It could not be opened exclusively.
    pub(super) is_busy: bool,
    /// Who has locked a target, or may write a source, and the name of the device or file.
    pub(super) locks: Vec<(Holder, String)>,
    /// The device, file or directory cannot be written.
    pub(super) is_read_only: bool,
    /// Its length and the required length, if it cannot grow and the image is known.
    pub(super) lengths: Option<(u64, u64)>,
    /// Its sector size and the image's, if it has one and the image is known.
    pub(super) sector_sizes: Option<(u32, u32)>,
    /// The image is one partition.
    pub(super) is_partition: bool,
    /// The directory of the store, and how it is located on the device.
    pub(super) store: Option<(String, &'static str)>,
    /// A file would be created among device nodes (false), or is there already (true).
    pub(super) below_dev: Option<bool>,
    /// It is a file with this many bytes in which no disk was found.
    pub(super) no_disk: Option<u64>,
    /// It is a file in this format, with an article, which is not a disk byte by byte.
    pub(super) image: Option<&'static str>,
}

/// Whether the user consents to overwriting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// Yes.
    Given,
    /// The user can be asked.
    Askable,
    /// No one can be asked.
    Absent,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Go on.
    Write,
    /// Show the contents, and ask.
    Ask,
    /// Refuse.
    Refuse,
}

/// Decides about a target that does or does not hold data.
pub(super) fn overwrite(holds_data: bool, agreement: Agreement) -> Step {
    match (holds_data, agreement) {
        (false, _) | (true, Agreement::Given) => Step::Write,
        (true, Agreement::Askable) => Step::Ask,
        (true, Agreement::Absent) => Step::Refuse,
    }
}

/// What a file contains instead of a disk.
fn contents(evidence: &Evidence) -> Vec<Refusal> {
    let no_disk = evidence.no_disk.map(|length| {
        format!(
            "it is a file of {length} bytes that does not contain a disk: there is neither a partition table nor a file system"
        )
    });
    let image = evidence.image.map(|image| {
        format!(
            "it is {image}, and a disk is written byte by byte: name a raw file, or write such a file anew with \
             `platter export --format`"
        )
    });
    [no_disk, image].into_iter().flatten().map(|text| Refusal { reason: Reason::NotADisk, text }).collect()
}

/// Why it cannot be installed to.
pub(super) fn target(evidence: &Evidence) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut add = |reason, text| refusals.push(Refusal { reason, text });
    if let Some(kind) = evidence.wrong_kind {
        add(Reason::WrongKind, format!("it is {kind}, but a disk is a block device or a regular file"));
    }
    if let Some((store, how)) = &evidence.store {
        add(Reason::HoldsStore, format!("the store {store} {how}: choose another target"));
    }
    match evidence.below_dev {
        Some(true) => add(
            Reason::BelowDev,
            "it is a regular file in /dev, perhaps created by a mistyped name: remove it".to_owned(),
        ),
        Some(false) => add(
            Reason::BelowDev,
            "there is no such device, and no files are created in /dev: check the name".to_owned(),
        ),
        None => {}
    }
    for Refusal { reason, text } in contents(evidence) {
        add(reason, text);
    }
    if evidence.is_read_only {
        add(
            Reason::ReadOnly,
            "it cannot be written: it is read-only, or write permission is missing".to_owned(),
        );
    }
    if let Some((length, needed)) = evidence.lengths.filter(|(length, needed)| length < needed) {
        add(
            Reason::TooSmall,
            format!("it has {length} bytes, but the image needs {needed}: choose a larger one"),
        );
    }
    // A partition has no table whose numbers count sectors.
    let suits = |own: u32, image: u32| own == image || (evidence.is_partition && own < image);
    if let Some((own, image)) = evidence.sector_sizes.filter(|(own, image)| !suits(*own, *image)) {
        let why = match evidence.is_partition {
            true => "a file system with smaller blocks than these sectors could not be mounted",
            false => "its partition tables would not be found",
        };
        add(Reason::SectorSize, format!("its sectors have {own} bytes, those of the image {image}: {why}"));
    }
    for mount in &evidence.mounted {
        add(Reason::Mounted, format!("{} is mounted on {}: unmount it", mount.device, mount.mount_point));
    }
    for swap in &evidence.swaps {
        add(Reason::Swap, format!("{swap} is used as swap: turn it off with swapoff"));
    }
    for (device, holder) in &evidence.holders {
        add(Reason::Held, format!("{device} is held by {holder}: stop it"));
    }
    for device in &evidence.loops {
        add(Reason::LoopBacking, format!("it is the file behind {device}: detach it with losetup -d"));
    }
    let is_explained =
        !(evidence.mounted.is_empty() && evidence.swaps.is_empty() && evidence.holders.is_empty());
    for (holder, place) in &evidence.locks {
        add(Reason::Busy, format!("{holder} has locked {place}: stop that program"));
    }
    if evidence.is_busy && !is_explained && evidence.locks.is_empty() {
        add(Reason::Busy, "a program has it open exclusively: stop that program".to_owned());
    }
    refusals
}

/// Why it cannot be captured: it may change while it is read. If it is mounted read-only it does not change,
/// and it cannot be opened exclusively anyway; layers below such a mount (such as a volume) are held because
/// of it.
pub(super) fn source(evidence: &Evidence) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut add = |reason, text| refusals.push(Refusal { reason, text });
    if let Some(kind) = evidence.wrong_kind {
        add(Reason::WrongKind, format!("it is {kind}, but a disk is a block device or a regular file"));
    }
    for mount in evidence.mounted.iter().filter(|mount| mount.is_writable) {
        add(
            Reason::Mounted,
            format!(
                "{} is mounted for writing on {}: unmount it, or mount it read-only",
                mount.device, mount.mount_point
            ),
        );
    }
    for swap in &evidence.swaps {
        add(Reason::Swap, format!("{swap} is used as swap: turn it off with swapoff"));
    }
    for (holder, place) in &evidence.locks {
        add(
            Reason::Busy,
            format!(
                "{holder} has {place} open for writing, and may not have written everything: stop that program"
            ),
        );
    }
    if !evidence.mounted.is_empty() {
        return refusals;
    }
    for (device, holder) in &evidence.holders {
        add(Reason::Held, format!("{device} is held by {holder}: stop it"));
    }
    if evidence.is_busy
        && evidence.swaps.is_empty()
        && evidence.holders.is_empty()
        && evidence.locks.is_empty()
    {
        add(Reason::Busy, "a program has it open exclusively: stop that program".to_owned());
    }
    refusals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons(refusals: &[Refusal]) -> Vec<Reason> {
        refusals.iter().map(|refusal| refusal.reason).collect()
    }

    #[test]
    fn every_reason_has_a_name() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_name(reason.name()), Some(reason));
        }
        assert_eq!(Reason::from_name("all"), None);
    }

    #[test]
    fn every_reason_refuses_a_target() {
        assert_eq!(target(&Evidence::default()), []);
        let fits =
            Evidence { lengths: Some((10, 10)), sector_sizes: Some((512, 512)), ..Evidence::default() };
        assert_eq!(target(&fits), []);
        let mounted = MountedFrom { device: "sda1".into(), mount_point: "/".into(), is_writable: false };
        for (own, image, suits) in [(512, 4096, true), (4096, 512, false)] {
            let part =
                Evidence { sector_sizes: Some((own, image)), is_partition: true, ..Evidence::default() };
            assert_eq!(target(&part).is_empty(), suits, "{own} {image}");
        }
        let everything = Evidence {
            wrong_kind: Some("a pipe"),
            mounted: vec![mounted],
            swaps: vec!["sda2".into()],
            holders: vec![("sda3".into(), "dm-0".into())],
            loops: vec!["loop0".into()],
            is_busy: true,
            locks: Vec::new(),
            is_read_only: true,
            lengths: Some((10, 11)),
            sector_sizes: Some((512, 4096)),
            is_partition: false,
            store: Some(("/store".into(), "is on it")),
            below_dev: Some(true),
            no_disk: Some(12),
            image: Some("a qcow2 image"),
        };
        let found = reasons(&target(&everything));
        let all_but_busy = Reason::ALL.into_iter().filter(|reason| *reason != Reason::Busy);
        assert!(all_but_busy.into_iter().all(|reason| found.contains(&reason)), "{found:?}");
        assert!(!found.contains(&Reason::Busy), "being mounted explains why it is busy");
        let busy = Evidence { is_busy: true, ..Evidence::default() };
        assert_eq!(reasons(&target(&busy)), [Reason::Busy]);
    }

    #[test]
    fn data_is_overwritten_only_with_consent() {
        for (holds_data, agreement, step) in [
            (false, Agreement::Given, Step::Write),
            (false, Agreement::Askable, Step::Write),
            (false, Agreement::Absent, Step::Write),
            (true, Agreement::Given, Step::Write),
            (true, Agreement::Askable, Step::Ask),
            (true, Agreement::Absent, Step::Refuse),
        ] {
            assert_eq!(overwrite(holds_data, agreement), step, "{holds_data} {agreement:?}");
        }
    }

    #[test]
    fn files_in_wrong_places_are_refused() {
        let evidence = |below_dev, no_disk| Evidence { below_dev, no_disk, ..Evidence::default() };
        assert_eq!(reasons(&target(&evidence(Some(false), None))), [Reason::BelowDev]);
        assert_eq!(reasons(&target(&evidence(Some(true), Some(3)))), [Reason::BelowDev, Reason::NotADisk]);
        assert!(Reason::NotADisk.can_be_forced() && !Reason::BelowDev.can_be_forced());
    }

    #[test]
    fn sources_in_use_are_refused() {
        let mounted =
            |is_writable| MountedFrom { device: "sda1".into(), mount_point: "/".into(), is_writable };
        let read_only = Evidence { mounted: vec![mounted(false)], is_busy: true, ..Evidence::default() };
        assert_eq!(source(&read_only), []);
        let writable = Evidence { mounted: vec![mounted(false), mounted(true)], ..Evidence::default() };
        assert_eq!(reasons(&source(&writable)), [Reason::Mounted]);
        let held = vec![("sda3".into(), "dm-0".into())];
        let below_a_mount = Evidence { holders: held.clone(), ..read_only.clone() };
        assert_eq!(source(&below_a_mount), []);
        let held = Evidence { holders: held, is_busy: true, ..Evidence::default() };
        assert_eq!(reasons(&source(&held)), [Reason::Held]);
        let swap = Evidence { swaps: vec!["sda2".into()], is_busy: true, ..Evidence::default() };
        assert_eq!(reasons(&source(&swap)), [Reason::Swap]);
        let busy = Evidence { is_busy: true, ..Evidence::default() };
        assert_eq!(reasons(&source(&busy)), [Reason::Busy]);
    }
}
