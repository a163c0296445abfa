//! Replies of an origin about versions, stored for times when it is down: a small file in the directory of a cache.
//!
//! Stores only which scores the names have. Contents are not trusted because of it: data read under a score is verified
//! against that score.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use platter_vfs::{Vfs, read_whole, replace};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const FILE: &str = "answers.json";
/// Most bytes of the file.
const FILE_LENGTH_MAX: u64 = 16 << 20;
/// Most replies, and most bytes of one.
const ANSWERS_MAX: usize = 4096;
const ANSWER_LENGTH_MAX: usize = 1 << 20;
/// Most bytes of all of them.
const LENGTH_MAX: usize = 8 << 20;

/// The file.
#[derive(Default, Serialize, Deserialize)]
struct Remembered {
    /// The origin that sent them.
    origin: String,
    /// By path of the request.
    answers: BTreeMap<String, Value>,
}

/// Stored replies of one origin.
pub struct Answers {
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
    kept: Mutex<Remembered>,
    notes: Mutex<Vec<String>>,
    /// The origin was down at the last request, and a note says so.
    is_away: AtomicBool,
}

impl Answers {
    /// Reads the stored replies of this origin. Replies of another origin are dropped, and so is an invalid file.
    pub fn open(vfs: Arc<dyn Vfs>, dir: &Path, origin: &str) -> Self {
        let path = dir.join(FILE);
        let read = read_whole(&*vfs, &path, FILE_LENGTH_MAX).ok().flatten();
        let kept = read.and_then(|bytes| serde_json::from_slice::<Remembered>(&bytes).ok());
        let kept = kept.filter(|kept| kept.origin == origin);
        let kept = kept.unwrap_or_else(|| Remembered { origin: origin.to_owned(), answers: BTreeMap::new() });
        Self { vfs, path, kept: Mutex::new(kept), notes: Mutex::default(), is_away: AtomicBool::new(false) }
    }

    /// Returns the last reply to a request.
    pub fn get(&self, question: &str) -> Option<Value> {
        self.kept().answers.get(question).cloned()
    }

    /// Stores the reply to these requests, unless it is already stored.
    pub fn keep(&self, questions: &[String], answer: &Value) {
        let length = answer.to_string().len();
        let mut kept = self.kept();
        if length > ANSWER_LENGTH_MAX || questions.iter().all(|it| kept.answers.get(it) == Some(answer)) {
            return;
        }
        let held: usize = kept.answers.values().map(|answer| answer.to_string().len()).sum();
        if kept.answers.len() + questions.len() > ANSWERS_MAX || held + length > LENGTH_MAX {
            // Requests that are repeated are stored again.
            kept.answers.clear();
        }
        kept.answers.extend(questions.iter().map(|question| (question.clone(), answer.clone())));
        let written = serde_json::to_vec(&*kept)
            .map_err(std::io::Error::other)
            .and_then(|bytes| replace(&*self.vfs, &self.path, &bytes));
        if let Err(error) = written {
            self.note(format!("{}: {error}", self.path.display()));
        }
    }

    /// Notes that stored replies of this origin are used, once for each time that it is down.
    pub(super) fn note_away(&self, origin: &str) {
        if !self.is_away.swap(true, Ordering::Relaxed) {
            self.note(format!("{origin} is down: using its stored replies"));
        }
    }

    /// Notes that the origin replied.
    pub(super) fn note_reply(&self) {
        self.is_away.store(false, Ordering::Relaxed);
    }

    /// Adds a note that a person should see.
    pub fn note(&self, what: String) {
        let mut notes = self.notes.lock();
        if notes.len() < 16 && !notes.contains(&what) {
            notes.push(what);
        }
    }

    /// The notes since the last call.
    pub fn notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock())
    }

    fn kept(&self) -> MutexGuard<'_, Remembered> {
        self.kept.lock()
    }
}

#[cfg(test)]
mod tests {
    use platter_vfs::simulated::SimulatedDisk;
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_kept_for_one_origin_and_bounded() {
        let disk: Arc<dyn Vfs> = Arc::new(SimulatedDisk::new(1));
        let open = |origin| Answers::open(disk.clone(), Path::new("/"), origin);
        let answers = open("a");
        answers.keep(&["x".into(), "y".into()], &json!({"n": 1}));
        assert_eq!(open("a").get("y"), Some(json!({"n": 1})));
        assert_eq!(open("b").get("y"), None);
        answers.keep(&["large".into()], &json!("x".repeat(ANSWER_LENGTH_MAX)));
        assert_eq!(answers.get("large"), None);
        for n in 0..20 {
            answers.keep(&[n.to_string()], &json!("x".repeat(ANSWER_LENGTH_MAX - 10)));
            assert!(answers.kept().answers.len() <= 10);
        }
        assert!(open("a").get("19").is_some() && answers.notes().is_empty());
    }

    #[test]
    fn an_origin_that_is_down_is_noted_once() {
        let answers = Answers::open(Arc::new(SimulatedDisk::new(1)), Path::new("/"), "here");
        let noted = || {
            answers.note_away("here");
            answers.notes().len()
        };
        assert_eq!([noted(), noted()], [1, 0]);
        answers.note_reply();
        assert_eq!([noted(), noted()], [1, 0], "down again");
    }
}
