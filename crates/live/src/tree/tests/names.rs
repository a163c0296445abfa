//! Tests of changes of names.

use super::*;

#[test]
fn removing_a_file_forgets_its_version() {
    let lab = Lab::new();
    for last in 1..4 {
        capture_bytes(&lab.place, "lab/a", &disk(last));
    }
    assert_eq!(kind(lab.remove("lab/a/2.score")), ErrorKind::Refused);
    let error = lab.remove("lab/a/latest.raw").unwrap_err();
    assert!(error.to_string().contains("3.raw"), "{error}");
    assert_eq!(kind(lab.remove_directory("lab/a")), ErrorKind::Refused);
    assert_eq!(kind(lab.remove_directory("import")), ErrorKind::Refused);
    lab.remove("lab/a/3.raw").unwrap();
    assert_eq!(lab.names("lab/a"), ["1.raw", "1.score", "2.raw", "2.score", "latest.raw", "latest.score"]);
    assert_eq!(lab.contents("lab/a/latest.raw"), disk(2));
    assert_eq!(kind(lab.remove("lab/a/3.raw")), ErrorKind::Missing);
    capture_bytes(&lab.place, "lab/a", &disk(4));
    assert_eq!(lab.newest("lab/a").name.number, 4, "number 3 is never used again");
}

#[test]
fn everything_below_a_directory_can_be_removed() {
    let lab = Lab::new();
    for image in ["lab", "lab/a", "lab/a", "lab/b/c", "other"] {
        capture_bytes(&lab.place, image, &disk(1));
    }
    lab.make("lab/empty").unwrap();
    lab.remove_all("lab");
    assert_eq!(lab.names(""), ["by-date", "import", "other"]);
    assert!(open_tree(&lab.place, &lab.disks).lookup(ROOT, "lab").is_err());
    assert_eq!(Store::open_reader(&lab.place).unwrap().versions().unwrap().len(), 1);
}

#[test]
fn an_edited_image_is_neither_forgotten_nor_renamed() {
    let lab = Lab::new();
    capture_bytes(&lab.place, "lab/a", &disk(1));
    let store = Store::open_reader(&lab.place).unwrap();
    store.take_edit_lock(&"lab/a".parse().unwrap(), "somebody", 1).unwrap();
    for change in [lab.remove("lab/a/1.raw"), lab.rename("lab", "attic")] {
        assert!(change.unwrap_err().to_string().contains("somebody"));
    }
    assert_eq!(lab.contents("lab/a/1.raw"), disk(1));
}

#[test]
fn renaming_keeps_numbers_of_nodes() {
    let lab = Lab::new();
    for image in ["lab/a", "lab/a", "lab/b", "labor"] {
        capture_bytes(&lab.place, image, &disk(1));
    }
    lab.make("lab/empty").unwrap();
    let nodes = |at: &str| {
        ["", "/a", "/a/2.raw", "/a/latest.score", "/b", "/empty"]
            .map(|path| lab.node(&format!("{at}{path}")).unwrap())
    };
    let before = nodes("lab");
    let file = lab.open("lab/a/2.raw", Access::Read).unwrap();
    lab.rename("lab", "attic").unwrap();
    assert_eq!(nodes("attic"), before);
    assert_eq!(lab.names(""), ["attic", "by-date", "import", "labor"]);
    assert_eq!(contents(&*file), disk(1));
    lab.make("deep").unwrap();
    lab.rename("attic/a", "deep/er").unwrap();
    assert_eq!(lab.node("deep/er/2.raw").unwrap(), before[2]);
    assert_eq!(lab.names("attic"), ["b", "empty"]);
    assert_eq!(lab.newest("deep/er").record.renamed_from.unwrap().to_string(), "lab/a@2");
    lab.rename("attic/b", "b").unwrap();
    lab.remove_directory("attic/empty").unwrap();
    lab.remove_directory("attic").unwrap();
}

#[test]
fn names_are_not_replaced_and_must_fit() {
    let lab = Lab::new();
    for image in ["a", "b", "lab/x"] {
        capture_bytes(&lab.place, image, &disk(1));
    }
    let refused = [
        ("a", "b"),
        ("a", "lab"),
        ("lab", "lab/x/y"),
        ("lab", "lab/z"),
        ("a", "A"),
        ("a", "a.raw"),
        ("a", "import/a"),
        ("a", "by-date/a"),
        ("a/1.raw", "a/7.raw"),
        ("import", "export"),
        ("by-date", "x"),
    ];
    for (from, to) in refused {
        assert_eq!(kind(lab.rename(from, to)), ErrorKind::Refused, "{from} {to}");
    }
    assert_eq!(kind(lab.tree.rename((ROOT, "none"), (ROOT, "x"))), ErrorKind::Missing);
    assert_eq!(lab.contents("a/1.raw"), disk(1));
    lab.make("m").unwrap();
    lab.rename("m", "n").unwrap();
    assert_eq!(lab.names(""), ["a", "b", "by-date", "import", "lab", "n"]);
}

/// Changes by another process are visible at once.
#[test]
fn changes_by_other_processes_are_followed() {
    let lab = Lab::new();
    capture_bytes(&lab.place, "a", &disk(1));
    let other = open_tree(&lab.place, &lab.disks);
    let node = lab.node("a/1.raw").unwrap();
    other.rename((ROOT, "a"), (ROOT, "b")).unwrap();
    assert_eq!(lab.names(""), ["b", "by-date", "import"]);
    assert_eq!(kind(lab.tree.node(node)), ErrorKind::Missing);
    let request = CloneRequest {
        store: lab.place.clone().into(),
        version: "b".into(),
        name: "c".parse().unwrap(),
        next: false,
        edit_lock: EditLockChoice::Free,
        tool_version: "test".into(),
    };
    clone(&request).unwrap();
    assert_eq!(lab.contents("c/1.raw"), disk(1));
}
