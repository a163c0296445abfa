//! The patterns of an access token: the images that it gives access to.

use platter_api::NamePattern;
use platter_records::ImageName;

/// The patterns of a token. A name matches if one of them matches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patterns(pub(crate) Vec<NamePattern>);

impl Patterns {
    /// Whether they match this image.
    pub(crate) fn matches(&self, image: &ImageName) -> bool {
        self.0.iter().any(|pattern| pattern.matches(image))
    }

    /// Whether they match this image and every possible image below it.
    pub(crate) fn matches_tree(&self, image: &ImageName) -> bool {
        self.matches(image) && self.match_below(image)
    }

    /// Whether one of them matches every possible image below this one.
    pub(crate) fn match_below(&self, image: &ImageName) -> bool {
        self.0.iter().any(|pattern| pattern.matches_below(image))
    }

    /// Returns the shortest list that matches the same names, in one fixed order. Two lists match the same names
    /// exactly if their canonical lists are equal.
    pub(crate) fn canonical(&self) -> Self {
        let mut kept: Vec<&NamePattern> = Vec::new();
        for pattern in &self.0 {
            if !kept.iter().any(|other| other.covers(pattern)) {
                kept.retain(|other| !pattern.covers(other));
                kept.push(pattern);
            }
        }
        let mut kept: Vec<NamePattern> = kept.into_iter().cloned().collect();
        kept.sort_by_key(ToString::to_string);
        Self(kept)
    }

    /// Whether they match every possible image.
    pub(crate) fn match_everything(&self) -> bool {
        self.0.contains(&NamePattern::Everything)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(text: &[&str]) -> Patterns {
        Patterns(text.iter().map(|pattern| pattern.parse().unwrap()).collect())
    }

    #[test]
    fn patterns_match_names() {
        let table = [
            ("*", "lab/a", true, true),
            ("lab/*", "lab/a", true, true),
            ("lab/*", "lab/a/b", true, true),
            ("lab/*", "lab", false, false),
            ("lab/*", "laboratory/a", false, false),
            ("lab/*", "lab2", false, false),
            ("lab/a", "lab/a", true, false),
            ("lab/a", "lab/a/b", false, false),
            ("lab/a", "lab/ab", false, false),
        ];
        for (pattern, name, matches, tree) in table {
            let (pattern, name) = (patterns(&[pattern]), name.parse().unwrap());
            assert_eq!(
                (pattern.matches(&name), pattern.matches_tree(&name)),
                (matches, tree),
                "{pattern:?} {name}"
            );
        }
        assert!(patterns(&["lab/*", "lab"]).matches_tree(&"lab".parse().unwrap()));
        assert!(!patterns(&["a/*", "b"]).match_everything());
        assert!(!patterns(&[]).matches(&"a".parse().unwrap()));
    }

    #[test]
    fn lists_that_match_the_same_names_have_one_canonical_form() {
        let table: [(&[&str], &[&str]); 6] = [
            (&["b", "a", "b"], &["a", "b"]),
            (&["lab/a", "lab/*", "lab/x/*"], &["lab/*"]),
            (&["lab/x/*", "lab/*"], &["lab/*"]),
            (&["lab/*", "lab"], &["lab", "lab/*"]),
            (&["lab", "*", "x/*"], &["*"]),
            (&["laboratory", "lab/*"], &["lab/*", "laboratory"]),
        ];
        for (given, canonical) in table {
            assert_eq!(patterns(given).canonical(), patterns(canonical), "{given:?}");
        }
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for bad in ["", "/*", "lab*", "*/a", "lab/*/b", "Lab/*", "**", "lab/"] {
            assert!(bad.parse::<NamePattern>().is_err(), "{bad}");
        }
        for good in ["*", "lab/*", "a/b/*", "a/b"] {
            assert_eq!(good.parse::<NamePattern>().unwrap().to_string(), good);
        }
    }
}
