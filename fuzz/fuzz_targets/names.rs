//! Names: accepted names survive writing and parsing again, and as a path they lead nowhere else.

#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use platter_fuzz::bug_free;
use platter_records::{ImageName, NumberChoice, VersionName, VersionQuery};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Some(image) = bug_free(text.parse::<ImageName>()) {
        assert_eq!(image.as_str(), text);
        assert_eq!(image.to_string(), text);
        assert!(text.is_ascii() && !text.contains('@'));
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        assert!(Path::new(text).components().all(is_plain), "{text:?} leads elsewhere as a path");
    }
    match bug_free(text.parse::<VersionQuery>()) {
        None => assert!(text.parse::<ImageName>().is_err(), "{text:?} is an image, and yet no query"),
        Some(VersionQuery::Score(score)) => assert!(score.to_string().eq_ignore_ascii_case(text)),
        Some(VersionQuery::Named(image, NumberChoice::Latest)) => {
            assert!(text == image.as_str() || text == format!("{image}@latest"));
        }
        Some(VersionQuery::Named(image, NumberChoice::Number(number))) => {
            assert!(number > 0);
            assert_eq!(VersionName { image, number }.to_string(), text);
        }
    }
});
