//! Live disks of this machine. The processes that serve disks of the store are asked at most once every few seconds,
//! however many clients request the list.

use std::sync::Arc;
use std::time::Instant;

use platter_api::ListedDisk;
use platter_image::Result;
use platter_records::VersionQuery;
use tokio::sync::Mutex;

use crate::access::Principal;
use crate::config::DISKS_AGE_MAX;
use crate::origin::Origin;

/// The last list, with its time.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    known: Mutex<Option<(Instant, Arc<Vec<ListedDisk>>)>>,
}

impl Disks {
    /// Returns all live disks.
    ///
    /// # Errors
    /// When the catalog or the processes cannot be asked.
    pub(crate) async fn all(&self, origin: &Arc<Origin>) -> Result<Arc<Vec<ListedDisk>>> {
        // Held during the inquiry, so concurrent requests share one.
        let mut known = self.known.lock().await;
        if let Some((since, disks)) = &*known
            && since.elapsed() < DISKS_AGE_MAX
        {
            return Ok(Arc::clone(disks));
        }
        let shared = Arc::clone(origin);
        let disks = Arc::new(origin.pool.run(move || (shared.list_disks)(&shared.store)).await?);
        *known = Some((Instant::now(), Arc::clone(&disks)));
        Ok(disks)
    }
}

/// Returns what the principal may know of a disk: nothing if it may not read the disk's image; addresses, processes and
/// caches only if it reads everything.
pub(crate) fn as_seen_by(who: &Principal, disk: &ListedDisk) -> Option<ListedDisk> {
    if who.reads_everything() {
        return Some(disk.clone());
    }
    let Ok(VersionQuery::Named(image, _)) = disk.status.disk.parse() else { return None };
    let mut seen = who.may_read(&image).then(|| disk.clone())?;
    // These are of all disks of a process together.
    (seen.status.process, seen.status.cache, seen.status.node) = (None, None, None);
    seen.status.exports.clear();
    Some(seen)
}

#[cfg(test)]
mod tests {
    use platter_api::{DiskStatus, NodeCounters};

    use super::*;
    use crate::access::Patterns;
    use platter_api::Role;

    #[test]
    fn a_token_for_some_images_learns_nothing_of_other_disks_nor_of_the_machine() {
        let patterns = Patterns(vec!["lab/*".parse().unwrap()]);
        let some =
            Principal { id: "t".into(), name: String::new(), role: Role::Admin, patterns, quota_bytes: None };
        let disk = |name: &str| ListedDisk {
            lost: false,
            status: DiskStatus {
                disk: name.into(),
                base: String::new(),
                disk_bytes: 1,
                writable: true,
                holder: Some("me".into()),
                edit_lock: Some(1),
                written_bytes: None,
                exports: vec!["nbd+unix:///x?socket=/secret".into()],
                process: Some(7),
                cache: None,
                fill: None,
                node: Some(NodeCounters::default()),
            },
        };
        assert!(disk("lab/a").status.node.is_some());
        for hidden in ["other/a", "other/a@1", "lab", "", "../lab/a", &"0".repeat(64)] {
            assert!(as_seen_by(&some, &disk(hidden)).is_none(), "{hidden}");
        }
        for own in ["lab/a", "lab/a@3"] {
            let seen = as_seen_by(&some, &disk(own)).unwrap().status;
            assert_eq!((seen.exports.len(), seen.process, seen.holder.as_deref()), (0, None, Some("me")));
            assert!(seen.node.is_none(), "the counters of all disks of a node");
        }
        assert_eq!(
            as_seen_by(&Principal::of_unix_socket(), &disk("other/a")).unwrap().status.exports.len(),
            1
        );
    }
}
