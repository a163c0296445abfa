//! Garbage collection of the served store, beside uploads and readers.

use std::sync::Arc;

use platter_api::CollectRequest;
use platter_image::Result;
use platter_records::CollectReport;

use crate::clock::unix_ms;
use crate::config::Collections;
use crate::origin::Origin;
use crate::serve_event::{OnEvent, ServeEvent};

const MS_PER_S: u64 = 1000;

impl Origin {
    /// Collects garbage.
    ///
    /// # Errors
    /// As `Store::collect`; `Transient` when another process writes the store.
    pub(crate) fn collect(&self, request: &CollectRequest) -> Result<CollectReport> {
        let writer = self.writer.lease()?;
        let keep_trash_ms = request.keep_trash_s.saturating_mul(MS_PER_S);
        let request = platter_store::CollectRequest {
            now_unix_ms: unix_ms(),
            keep_trash_ms: i64::try_from(keep_trash_ms).unwrap_or(i64::MAX),
            dry_run: request.dry_run,
            is_confirmed: request.confirmed,
            compact_percent: request.compact_percent.min(100),
            recompress: request.recompress,
            end_leases: request.end_leases,
        };
        let bases = || {
            let mut scores = (self.overlay_bases)(&writer)?;
            if !request.end_leases {
                scores.extend(self.leases.unwritten());
            }
            Ok(scores)
        };
        let collected = writer.collect(&request, &bases, &mut |_| {});
        self.metrics.collections.add(1);
        match &collected {
            Ok(report) => {
                if !request.dry_run {
                    self.metrics.collection_needs_confirmation.set(u64::from(report.needs_confirmation));
                    if !report.needs_confirmation {
                        if request.end_leases {
                            self.leases.end_unwritten();
                        }
                        self.uploads.note_collection(&writer)?;
                    }
                }
                self.metrics.collected_bytes.add(report.deleted.bytes);
                self.metrics.trash_bytes.set(report.trash.bytes);
                self.metrics.collections_failed.add(u64::from(!report.failed.is_empty()));
            }
            Err(_) => self.metrics.collections_failed.add(1),
        }
        collected
    }
}

/// Collects garbage in intervals, until the origin ends. What needs a person is told as a note.
pub(crate) async fn keep_collecting(origin: Arc<Origin>, collections: Collections, on_event: OnEvent) {
    let mut ending = origin.ending.clone();
    while !*ending.borrow() {
        tokio::select! {
            () = tokio::time::sleep(collections.every) => {}
            _ = ending.changed() => continue,
        }
        let shared = Arc::clone(&origin);
        let request = CollectRequest { recompress: collections.recompress, ..CollectRequest::default() };
        let collected = origin.pool.run(move || shared.collect(&request)).await;
        let note = match collected {
            Ok(report) if report.needs_confirmation => {
                "garbage collection would give up more than 30 % of all bytes: `platter gc` asks for confirmation".into()
            }
            Ok(report) if report.failed.is_empty() => continue,
            Ok(report) => format!("garbage collection: {}", report.failed.join("; ")),
            Err(error) => format!("garbage collection: {error}"),
        };
        on_event(&ServeEvent::Note(note));
    }
}
