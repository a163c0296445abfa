//! `platter find`.

use std::process::ExitCode;

use platter_browse::find;
use platter_jobs::StoreLocation;

use super::Outcome;
use crate::arguments::Find;
use crate::output::Output;
use crate::visible;

pub(crate) fn run(store: &StoreLocation, options: &Find, output: &Output) -> Outcome {
    let pattern: Option<Vec<char>> = options.name.as_ref().map(|name| name.chars().collect());
    let mut code = ExitCode::SUCCESS;
    find(store, &options.location, &mut |found| {
        let entry = match found {
            Ok(entry) => entry,
            Err(error) => {
                code = output.fail(&error);
                return;
            }
        };
        let name: Vec<char> = entry.name.rsplit('/').next().unwrap_or_default().chars().collect();
        if pattern.as_ref().is_none_or(|pattern| matches(pattern, &name)) {
            output.fact(&entry, || visible::words(&entry.name).into_owned());
        }
    })?;
    Ok(code)
}

/// Whether a name matches a pattern with `*` and `?`. Takes at most the product of both lengths.
fn matches(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut place) = (0, 0);
    // The last `*`, and how much of the name it has taken.
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == name[place] => {
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
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        let check = |pattern: &str, name: &str| {
            matches(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>())
        };
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
