//! Promises: which blocks uploads under way were asked to send and have not sent yet. Another upload that has such a block need not
//! send it, too, so captures of related disks at the same time bring each block once.
//!
//! A promise is broken when its upload ends, when its client is silent or gone, or after [`PROMISE_KEPT`]; in the last case nobody relies
//! on that upload again. Whoever relies on a promise learns that before it publishes. Never decides who may use a block: only uploads that may read everything take part.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use platter_image::BlockId;

use super::Upload;
use crate::config::{PROMISE_KEPT, PROMISES_MAX};

/// All promises of an origin.
#[derive(Debug, Default)]
pub(super) struct Promises(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    promises: HashMap<BlockId, Promise>,
    /// When those that no longer count were last removed.
    purged: Option<Instant>,
}

#[derive(Debug)]
struct Promise {
    upload: Weak<Upload>,
    since: Instant,
}

/// Who sends a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The upload that asks.
    Send,
    /// Another one.
    Promised,
}

impl Promise {
    /// Returns whether it may still be kept.
    fn counts(&self) -> bool {
        self.upload.upgrade().is_some_and(|upload| upload.keeps_promise(self.since))
    }
}

impl Promises {
    /// Decides whether this upload sends a block that the store needs. If so, it has promised that.
    pub(super) fn ask(&self, id: &BlockId, upload: &Arc<Upload>) -> Answer {
        let mut table = self.0.lock();
        if let Some(promise) = table.promises.get(id)
            && !std::ptr::eq(promise.upload.as_ptr(), Arc::as_ptr(upload))
            && promise.counts()
        {
            return Answer::Promised;
        }
        if table.promises.len() >= PROMISES_MAX
            && table.purged.is_none_or(|time| time.elapsed() >= PROMISE_KEPT)
        {
            table.promises.retain(|_, promise| promise.counts());
            table.purged = Some(Instant::now());
        }
        if table.promises.len() < PROMISES_MAX {
            table.promises.insert(*id, Promise { upload: Arc::downgrade(upload), since: Instant::now() });
        }
        Answer::Send
    }

    /// These blocks were sent.
    pub(super) fn keep(&self, ids: impl Iterator<Item = BlockId>) {
        let mut table = self.0.lock();
        ids.for_each(|id| drop(table.promises.remove(&id)));
    }

    /// Returns whether an upload may still send this block.
    pub(super) fn is_promised(&self, id: &BlockId) -> bool {
        self.0.lock().promises.get(id).is_some_and(Promise::counts)
    }
}
