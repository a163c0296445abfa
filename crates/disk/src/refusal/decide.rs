//! The decision: from what is known of a device to the reasons why it is refused. Pure.

/// Why a device is refused. Names are what a user types to insist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A filesystem on it is mounted.
    Mounted,
    /// It is used as swap.
    Swap,
    /// RAID, device mapper or a cache holds it.
    Held,
    /// It is the file behind an active loop device.
    LoopBacking,
    /// Something else has it open exclusively.
    Busy,
    /// Its sectors are of another size than the image's.
    SectorSize,
    /// The image does not fit.
    TooSmall,
    /// The store is on it.
    HoldsStore,
    /// It is neither a block device nor a regular file.
    WrongKind,
    /// It is a regular file with data, and no disk is in it.
    NotADisk,
    /// It cannot be written.
    ReadOnly,
    /// A file among the nodes of devices, or one that would be made there.
    BelowDev,
}

impl Reason {
    /// All of them.
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

    /// The reason of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// Whether a user who insists may have it anyway.
    pub fn can_be_forced(self) -> bool {
        !matches!(self, Self::TooSmall | Self::HoldsStore | Self::WrongKind | Self::ReadOnly | Self::BelowDev)
    }

    /// Whether it says that somebody uses the device: whoever insists then cannot have it for himself alone.
    pub(super) fn is_use(self) -> bool {
        matches!(self, Self::Mounted | Self::Swap | Self::Held | Self::Busy)
    }
}

/// A reason, with what was found and what would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// What to tell the user.
    pub text: String,
}

/// A filesystem that is mounted from the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountedFrom {
    pub(super) device: String,
    pub(super) mount_point: String,
    pub(super) is_writable: bool,
}

/// What is known of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Evidence {
    /// What it is, if it cannot be a disk.
    pub(super) wrong_kind: Option<&'static str>,
    pub(super) mounted: Vec<MountedFrom>,
    /// Names of devices used as swap.
    pub(super) swaps: Vec<String>,
    /// Devices with their holders.
    pub(super) holders: Vec<(String, String)>,
    /// Loop devices that it is behind.
    pub(super) loops: Vec<String>,
    /// It could not be opened exclusively.
    pub(super) is_busy: bool,
    /// The device, or the file or its directory, cannot be written.
    pub(super) is_read_only: bool,
    /// Its length and the one that is needed, if it cannot grow and the image is known.
    pub(super) lengths: Option<(u64, u64)>,
    /// Its sector size and the image's, if it has one of its own and the image is known.
    pub(super) sector_sizes: Option<(u32, u32)>,
    /// The directory of the store, and how it comes to be on the device.
    pub(super) store: Option<(String, &'static str)>,
    /// A file would be made among the nodes of devices (false), or stands there already (true).
    pub(super) below_dev: Option<bool>,
    /// It is a file of so many bytes with data in which no disk was found.
    pub(super) no_disk: Option<u64>,
}

/// How the user can agree to what is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// He did.
    Given,
    /// He can be asked.
    Askable,
    /// Nobody can be asked.
    Absent,
}

/// What an agreement leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Go on.
    Write,
    /// Show what is there, and ask.
    Ask,
    /// Refuse.
    Refuse,
}

/// Whether a target may be overwritten that holds something, or does not.
pub(super) fn overwrite(holds_data: bool, agreement: Agreement) -> Step {
    match (holds_data, agreement) {
        (false, _) | (true, Agreement::Given) => Step::Write,
        (true, Agreement::Askable) => Step::Ask,
        (true, Agreement::Absent) => Step::Refuse,
    }
}

/// Why it cannot be installed to.
pub(super) fn target(evidence: &Evidence) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut add = |reason, text| refusals.push(Refusal { reason, text });
    if let Some(kind) = evidence.wrong_kind {
        add(Reason::WrongKind, format!("it is {kind}, and a disk is a block device or a regular file"));
    }
    if let Some((store, how)) = &evidence.store {
        add(Reason::HoldsStore, format!("the store {store} {how}: choose another target"));
    }
    match evidence.below_dev {
        Some(true) => add(
            Reason::BelowDev,
            "it is a regular file among the devices, perhaps left by a mistyped name: remove it".to_owned(),
        ),
        Some(false) => add(
            Reason::BelowDev,
            "there is no such device, and no file is made among the devices of /dev: check the name"
                .to_owned(),
        ),
        None => {}
    }
    if let Some(length) = evidence.no_disk {
        add(
            Reason::NotADisk,
            format!(
                "it is a file with {length} bytes of something else: neither a partition table nor a file system is in it"
            ),
        );
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
            format!("it holds {length} bytes and the image needs {needed}: choose a larger one"),
        );
    }
    if let Some((own, image)) = evidence.sector_sizes.filter(|(own, image)| own != image) {
        add(
            Reason::SectorSize,
            format!(
                "its sectors have {own} bytes, those of the image {image}: partition tables would not be found"
            ),
        );
    }
    for mount in &evidence.mounted {
        add(Reason::Mounted, format!("{} is mounted on {}: unmount it", mount.device, mount.mount_point));
    }
    for swap in &evidence.swaps {
        add(Reason::Swap, format!("{swap} is used as swap: swapoff it"));
    }
    for (device, holder) in &evidence.holders {
        add(Reason::Held, format!("{device} is held by {holder}: stop it"));
    }
    for device in &evidence.loops {
        add(Reason::LoopBacking, format!("it is behind {device}: losetup -d it"));
    }
    let is_explained =
        !(evidence.mounted.is_empty() && evidence.swaps.is_empty() && evidence.holders.is_empty());
    if evidence.is_busy && !is_explained {
        add(Reason::Busy, "something has it open exclusively: stop that".to_owned());
    }
    refusals
}

/// Why it cannot be captured: it may change while it is read. Mounted read-only, it does not, and then nobody can have it
/// alone; what such a mount stands upon (a volume, say) is held for it.
pub(super) fn source(evidence: &Evidence) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut add = |reason, text| refusals.push(Refusal { reason, text });
    if let Some(kind) = evidence.wrong_kind {
        add(Reason::WrongKind, format!("it is {kind}, and a disk is a block device or a regular file"));
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
        add(Reason::Swap, format!("{swap} is used as swap: swapoff it"));
    }
    if !evidence.mounted.is_empty() {
        return refusals;
    }
    for (device, holder) in &evidence.holders {
        add(Reason::Held, format!("{device} is held by {holder}: stop it"));
    }
    if evidence.is_busy && evidence.swaps.is_empty() && evidence.holders.is_empty() {
        add(Reason::Busy, "something has it open exclusively: stop that".to_owned());
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
    fn targets() {
        assert_eq!(target(&Evidence::default()), []);
        let fits =
            Evidence { lengths: Some((10, 10)), sector_sizes: Some((512, 512)), ..Evidence::default() };
        assert_eq!(target(&fits), []);
        let mounted = MountedFrom { device: "sda1".into(), mount_point: "/".into(), is_writable: false };
        let everything = Evidence {
            wrong_kind: Some("a pipe"),
            mounted: vec![mounted],
            swaps: vec!["sda2".into()],
            holders: vec![("sda3".into(), "dm-0".into())],
            loops: vec!["loop0".into()],
            is_busy: true,
            is_read_only: true,
            lengths: Some((10, 11)),
            sector_sizes: Some((512, 4096)),
            store: Some(("/store".into(), "is on it")),
            below_dev: Some(true),
            no_disk: Some(12),
        };
        let found = reasons(&target(&everything));
        let all_but_busy = Reason::ALL.into_iter().filter(|reason| *reason != Reason::Busy);
        assert!(all_but_busy.into_iter().all(|reason| found.contains(&reason)), "{found:?}");
        assert!(!found.contains(&Reason::Busy), "being mounted says why it is busy");
        let busy = Evidence { is_busy: true, ..Evidence::default() };
        assert_eq!(reasons(&target(&busy)), [Reason::Busy]);
    }

    #[test]
    fn what_is_overwritten_is_agreed_to() {
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
    fn files_in_wrong_places() {
        let evidence = |below_dev, no_disk| Evidence { below_dev, no_disk, ..Evidence::default() };
        assert_eq!(reasons(&target(&evidence(Some(false), None))), [Reason::BelowDev]);
        assert_eq!(reasons(&target(&evidence(Some(true), Some(3)))), [Reason::BelowDev, Reason::NotADisk]);
        assert!(Reason::NotADisk.can_be_forced() && !Reason::BelowDev.can_be_forced());
    }

    #[test]
    fn sources() {
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
