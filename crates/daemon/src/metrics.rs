//! Counters and gauges of the origin, as text for Prometheus. `docs/metrics.md` explains each.
//!
//! Owns their names. Labels contain no image names: their number is unbounded, and readers of metrics need not know
//! them.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use platter_records::StoreHealth;

/// A counter or gauge.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Answered {
    count: u64,
    seconds: f64,
}

/// All counters and gauges.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// By method and path of the endpoint, and status.
    requests: Mutex<BTreeMap<(&'static str, &'static str, u16), Answered>>,
    pub(crate) authentication_failures: Counter,
    pub(crate) connections: Counter,
    pub(crate) connections_taken: Counter,
    pub(crate) connections_unauthenticated: Counter,
    pub(crate) connections_turned_away: Counter,
    pub(crate) connections_displaced: Counter,
    pub(crate) connections_too_slow: Counter,
    pub(crate) frames_sent: Counter,
    pub(crate) frames_rebuilt: Counter,
    pub(crate) frame_bytes_sent: Counter,
    pub(crate) frames_failed: Counter,
    pub(crate) blocks_not_found: Counter,
    pub(crate) upload_bytes: Counter,
    pub(crate) upload_blocks: Counter,
    pub(crate) versions_published: Counter,
    pub(crate) uploads: Counter,
    pub(crate) nodes: Counter,
    pub(crate) node_reports: Counter,
    pub(crate) node_reports_refused: Counter,
    pub(crate) calls_waiting: Counter,
    pub(crate) id_set_bytes: Counter,
    pub(crate) blocks: Counter,
    pub(crate) images: Counter,
    pub(crate) versions: Counter,
    pub(crate) collections: Counter,
    pub(crate) collections_failed: Counter,
    pub(crate) collection_needs_confirmation: Counter,
    pub(crate) collected_bytes: Counter,
    pub(crate) trash_bytes: Counter,
    pub(crate) scrubbed_bytes: Counter,
    pub(crate) scrubbed_packs: Counter,
    pub(crate) scrub_bad_frames: Counter,
    pub(crate) quarantined_frames: Counter,
    pub(crate) quarantined_blocks: Counter,
    pub(crate) never_read_back_bytes: Counter,
    pub(crate) oldest_read_back_seconds: Counter,
}

impl Metrics {
    /// Counts a response. Its stream may still be under way.
    pub(crate) fn answered(&self, route: (&'static str, &'static str), status: u16, time: Duration) {
        let mut requests = self.requests.lock();
        let answered = requests.entry((route.0, route.1, status)).or_default();
        answered.count += 1;
        answered.seconds += time.as_secs_f64();
    }

    /// Takes over what reads of the packs have shown.
    pub(crate) fn set_health(&self, health: &StoreHealth) {
        self.trash_bytes.set(health.trash.bytes);
        self.quarantined_frames.set(health.quarantined_frames);
        self.quarantined_blocks.set(health.quarantined_blocks);
        self.never_read_back_bytes.set(health.never_read_back.bytes);
        let oldest = health.oldest_read_back_unix_ms.unwrap_or(0).max(0).cast_unsigned();
        self.oldest_read_back_seconds.set(oldest / 1000);
    }

    /// Returns the text for Prometheus.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        self.requests_text(&mut text);
        for (name, counter) in self.plain() {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            // Writing to a `String` cannot fail.
            let _ = write!(text, "# TYPE {name} {kind}\n{name} {}\n", counter.get());
        }
        text
    }

    fn requests_text(&self, text: &mut String) {
        let requests = self.requests.lock();
        let mut series = |name: &str, value: &dyn Fn(&Answered) -> String| {
            let _ = writeln!(text, "# TYPE {name} counter");
            for ((method, path, status), answered) in requests.iter() {
                let labels = format!("method=\"{method}\",path=\"{path}\",status=\"{status}\"");
                let _ = writeln!(text, "{name}{{{labels}}} {}", value(answered));
            }
        };
        series("platter_http_requests_total", &|answered| answered.count.to_string());
        series("platter_http_request_seconds_total", &|answered| format!("{:.6}", answered.seconds));
    }

    fn plain(&self) -> [(&'static str, &Counter); 36] {
        [
            ("platter_http_authentication_failures_total", &self.authentication_failures),
            ("platter_http_connections", &self.connections),
            ("platter_http_connections_total", &self.connections_taken),
            ("platter_http_connections_unauthenticated", &self.connections_unauthenticated),
            ("platter_http_connections_turned_away_total", &self.connections_turned_away),
            ("platter_http_connections_displaced_total", &self.connections_displaced),
            ("platter_http_connections_too_slow_total", &self.connections_too_slow),
            ("platter_frames_sent_total", &self.frames_sent),
            ("platter_frames_rebuilt_total", &self.frames_rebuilt),
            ("platter_frames_failed_total", &self.frames_failed),
            ("platter_frame_stream_bytes_sent_total", &self.frame_bytes_sent),
            ("platter_blocks_not_found_total", &self.blocks_not_found),
            ("platter_upload_bytes_total", &self.upload_bytes),
            ("platter_upload_blocks_total", &self.upload_blocks),
            ("platter_versions_published_total", &self.versions_published),
            ("platter_uploads", &self.uploads),
            ("platter_nodes", &self.nodes),
            ("platter_node_reports_total", &self.node_reports),
            ("platter_node_reports_refused_total", &self.node_reports_refused),
            ("platter_store_calls_waiting", &self.calls_waiting),
            ("platter_id_set_bytes", &self.id_set_bytes),
            ("platter_store_blocks", &self.blocks),
            ("platter_store_images", &self.images),
            ("platter_store_versions", &self.versions),
            ("platter_collections_total", &self.collections),
            ("platter_collections_failed_total", &self.collections_failed),
            ("platter_collection_needs_confirmation", &self.collection_needs_confirmation),
            ("platter_collected_bytes_total", &self.collected_bytes),
            ("platter_trash_bytes", &self.trash_bytes),
            ("platter_scrubbed_bytes_total", &self.scrubbed_bytes),
            ("platter_scrubbed_packs_total", &self.scrubbed_packs),
            ("platter_scrub_bad_frames_total", &self.scrub_bad_frames),
            ("platter_quarantined_frames", &self.quarantined_frames),
            ("platter_quarantined_blocks", &self.quarantined_blocks),
            ("platter_never_read_back_bytes", &self.never_read_back_bytes),
            ("platter_oldest_read_back_timestamp_seconds", &self.oldest_read_back_seconds),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/metrics.md");

    #[test]
    fn names_and_documentation_match() {
        let metrics = Metrics::default();
        metrics.answered(("get", "/healthz"), 200, Duration::from_millis(1));
        let text = metrics.text();
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .filter_map(|line| line.split(' ').next())
            .collect();
        let explained: Vec<&str> = PAGE
            .lines()
            .filter_map(|line| line.strip_prefix("| `platter_"))
            .filter_map(|line| line.split('`').next())
            .collect();
        for name in &names {
            let name = name.strip_prefix("platter_").unwrap();
            assert!(explained.contains(&name), "docs/metrics.md does not explain platter_{name}");
        }
        assert_eq!(names.len(), explained.len(), "docs/metrics.md: {explained:?}");
        assert!(
            text.contains("platter_http_requests_total{method=\"get\",path=\"/healthz\",status=\"200\"} 1\n")
        );
    }
}
