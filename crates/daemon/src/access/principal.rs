//! The sender of a request.

use platter_records::{ImageName, VersionName, VersionRecord};
use platter_store::Limit;

use super::Patterns;
use platter_api::{NamePattern, Role};

/// The authenticated sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The access token's id; empty for clients of the unix socket.
    pub(crate) id: String,
    /// The access token's name, for the log of changes; empty for clients of the unix socket.
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) patterns: Patterns,
    /// The quota of the access token.
    pub(crate) quota_bytes: Option<u64>,
}

impl Principal {
    /// The principal of the unix socket's clients. The socket's file mode controls access.
    pub(crate) fn of_unix_socket() -> Self {
        let (id, name) = (String::new(), String::new());
        let patterns = Patterns(vec![NamePattern::Everything]);
        Self { id, name, role: Role::Admin, patterns, quota_bytes: None }
    }

    /// The limits for what it adds: all images that it covers count.
    pub(crate) fn limits(&self) -> Vec<Limit> {
        let patterns = self.patterns.clone();
        let limit = self.quota_bytes.map(|bytes| {
            let what = format!("quota of the access token {:?}", self.name);
            Limit::new(what, bytes, move |image| patterns.matches(image))
        });
        limit.into_iter().collect()
    }

    /// Whether it may read this image.
    pub(crate) fn may_read(&self, image: &ImageName) -> bool {
        self.patterns.matches(image)
    }

    /// Whether it may read all images below this one, whatever their names.
    pub(crate) fn may_read_below(&self, image: &ImageName) -> bool {
        self.patterns.match_below(image)
    }

    /// Returns the record as this principal may see it: without the names of hidden images, and without the numbers of new
    /// bytes, which depend on what was stored of hidden images.
    pub(crate) fn shown(&self, record: VersionRecord) -> VersionRecord {
        let keep = |name: Option<VersionName>| name.filter(|name| self.may_read(&name.image));
        VersionRecord {
            cloned_from: keep(record.cloned_from),
            renamed_from: keep(record.renamed_from),
            new_raw_bytes: if self.reads_everything() { record.new_raw_bytes } else { 0 },
            new_stored_bytes: if self.reads_everything() { record.new_stored_bytes } else { 0 },
            ..record
        }
    }

    /// Whether it may read everything, so nothing has to be hidden from it.
    pub(crate) fn reads_everything(&self) -> bool {
        self.patterns.match_everything()
    }
}

#[cfg(test)]
mod tests {
    use platter_image::{BlockId, Score};

    use super::*;

    #[test]
    fn hidden_names_are_left_out() {
        let name = |image: &str| Some(VersionName { image: image.parse().unwrap(), number: 1 });
        let draft = VersionRecord::draft("lab/a".parse().unwrap(), Score(BlockId([0; 32])), 0);
        let record =
            VersionRecord { cloned_from: name("secret/payroll"), renamed_from: name("lab/b"), ..draft };
        let who = Principal {
            id: "1".into(),
            name: String::new(),
            role: Role::Read,
            patterns: Patterns(vec!["lab/*".parse().unwrap()]),
            quota_bytes: None,
        };
        let shown = who.shown(record.clone());
        assert_eq!((shown.cloned_from, shown.renamed_from), (None, name("lab/b")));
        assert_eq!(Principal::of_unix_socket().shown(record.clone()), record);
    }
}
