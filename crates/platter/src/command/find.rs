//! `platter find`.

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use platter_browse::find;
use platter_jobs::StoreLocation;

use super::Outcome;
use crate::arguments::Find;
use crate::file_names::FileNames;
use crate::output::Output;

pub(crate) fn run(store: &StoreLocation, options: &Find, output: &Output) -> Outcome {
    let pattern = options.name.as_ref().map(|name| units(name.as_bytes()));
    let names = FileNames::new(options.print0);
    let mut code = ExitCode::SUCCESS;
    find(store, &options.location, &mut |found| {
        let entry = match found {
            Ok(entry) => entry,
            Err(error) => {
                code = output.fail(&error);
                return;
            }
        };
        let name = entry.name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if pattern.as_ref().is_none_or(|pattern| matches(pattern, &units(name))) {
            output.bytes(&entry, || names.line(names.shown(&entry.name)));
        }
    })?;
    Ok(code)
}

/// A character of a name, or a byte that is no part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Character(char),
    Byte(u8),
}

fn units(name: &[u8]) -> Vec<Unit> {
    let chunks = name.utf8_chunks();
    let units = chunks.flat_map(|chunk| {
        let invalid = chunk.invalid().iter().map(|byte| Unit::Byte(*byte));
        chunk.valid().chars().map(Unit::Character).chain(invalid)
    });
    units.collect()
}

/// Whether a name matches a pattern with `*` and `?`. Takes at most the product of both lengths.
fn matches(pattern: &[Unit], name: &[Unit]) -> bool {
    const ANY: Unit = Unit::Character('*');
    const ONE: Unit = Unit::Character('?');
    let (mut at, mut place) = (0, 0);
    // The last `*`, and how much of the name it has taken.
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        match pattern.get(at) {
            Some(&ANY) => {
                star = Some((at, place));
                at += 1;
            }
            Some(wanted) if *wanted == ONE || *wanted == name[place] => {
                at += 1;
                place += 1;
            }
            _ => match &mut star {
                Some((begin, taken)) => {
                    *taken += 1;
                    (at, place) = (*begin + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == ANY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        let check = |pattern: &str, name: &str| matches(&units(pattern.as_bytes()), &units(name.as_bytes()));
        assert!(matches(&units(b"?\xfeb*"), &units(b"\xff\xfebin")));
        assert!(!matches(&units(b"\xfe"), &units(b"\xff")));
        for (pattern, name) in
            [("*", ""), ("*", "a"), ("*.conf", "a.conf"), ("a*b*c", "axxbyyc"), ("?", "ä"), ("a", "a")]
        {
            assert!(check(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("*.conf", "a.confx"), ("?", ""), ("a*b", "acd"), ("ab", "a")] {
            assert!(!check(pattern, name), "{pattern} {name}");
        }
    }
}
