//! Usage errors (exit code 2): arguments that are wrong regardless of the contents of store and disks.
//!
//! The argument types check single names, numbers and addresses while parsing. This file checks combinations: an option
//! that another one requires, or two arguments in the wrong order.

mod combinations;

use std::ffi::OsString;
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, value_parser};
use platter_jobs::{StoreLocation, VersionQuery};

use crate::agent;
use crate::arguments::{Arguments, Attach, CacheArguments, Command, Far};
use crate::output::Output;

/// Commands that take a disk and an image, and whether the image comes first.
const PAIRS: [(&str, bool); 4] = [("capture", false), ("install", true), ("export", true), ("receive", true)];

/// What other programs call commands, and their names here.
const ELSEWHERE: [(&str, &str); 3] = [("backup", "capture"), ("restore", "install"), ("list", "images")];

/// Parses the command line.
///
/// # Errors
/// A usage error with the usage of its command.
pub(crate) fn parse(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let parsed = Arguments::try_parse_from(words).and_then(|arguments| match &arguments.command {
        Command::Receive(options) if arguments.server.server.is_some() && options.what.len() == 1 => {
            let message = "--server needs the version that the origin is to cast: platter receive --server URL NAME TARGET";
            Err(wrong("receive", ErrorKind::MissingRequiredArgument, message))
        }
        Command::Receive(options) => match options.wanted() {
            Ok(_) => Ok(arguments),
            Err(error) => Err(wrong("receive", ErrorKind::ValueValidation, &error.to_string())),
        },
        Command::Analyze(options) => match options.what_if() {
            Ok(_) => Ok(arguments),
            Err(error) => Err(wrong("analyze", ErrorKind::ValueValidation, &error.to_string())),
        },
        Command::Mount(options) => match options.parts() {
            Ok(_) => Ok(arguments),
            Err(error) => Err(wrong("mount", ErrorKind::ValueValidation, &error.to_string())),
        },
        Command::Push(options) | Command::Pull(options) => match options.parts() {
            Ok(_) => Ok(arguments),
            Err(error) => {
                let name = if matches!(arguments.command, Command::Push(_)) { "push" } else { "pull" };
                Err(wrong(name, ErrorKind::ValueValidation, &error.to_string()))
            }
        },
        _ => Ok(arguments),
    });
    let parsed = parsed.and_then(|arguments| {
        let wrong_ones =
            combinations::wrong_combination(&arguments.command, arguments.server.server.is_some());
        match wrong_ones {
            Some((name, text)) => Err(wrong(name, ErrorKind::ArgumentConflict, &text)),
            None => Ok(arguments),
        }
    });
    parsed.map_err(|error| match error.kind() {
        ErrorKind::ValueValidation => swapped(words).unwrap_or(error),
        ErrorKind::InvalidSubcommand => with_tip(error),
        _ => error,
    })
}

/// An error about an unknown command, with the name that it has here, if other programs call it that.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let tip = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) => ELSEWHERE.iter().find(|(other, _)| other == name),
        _ => None,
    };
    if let Some((_, own)) = tip {
        let text = StyledStr::from(format!("the command is `platter {own}`"));
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![text]));
    }
    error
}

/// Checks for missing options.
///
/// # Errors
/// A usage error that names the missing option.
pub(crate) fn check(command: &Command, store: &StoreLocation) -> Result<(), clap::Error> {
    let missing = match command {
        Command::Attach(options) => of_attach(options, store)
            .or_else(|| of_cache(&options.cache_of_origin, store))
            .or_else(|| of_overlays(&options.far, store)),
        Command::Install(options) => of_cache(&options.cache, store),
        Command::Export(options) => of_cache(&options.cache, store),
        Command::Mount(options) => of_cache(&options.cache_of_origin, store),
        Command::Disks(options) => of_overlays(&options.far, store),
        Command::Detach(options) => of_overlays(&options.far, store),
        Command::Publish(options) => of_overlays(&options.far, store),
        Command::Discard(options) => of_overlays(&options.far, store),
        Command::Node(_) if is_local(store) => Some(
            "a node reads an origin through its cache: name the origin with --origin; `platter attach` serves the disks of a store on this machine",
        ),
        _ => None,
    };
    let kind = ErrorKind::MissingRequiredArgument;
    missing.map_or(Ok(()), |missing| Err(wrong(name_of(command), kind, missing)))
}

/// Prints a usage error, or the requested help, and ends the process.
pub(crate) fn exit(words: &[OsString], error: &clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit()
    }
    // Parsing failed, so the words are searched for --json directly.
    let is_json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    Output::new(is_json, false).wrong_usage(&error.to_string(), error.exit_code());
    std::process::exit(error.exit_code())
}

/// A usage error that belongs to no single command.
pub(crate) fn refused(error: &platter_jobs::Error) -> clap::Error {
    Arguments::command().error(ErrorKind::ValueValidation, error)
}

fn of_attach(options: &Attach, store: &StoreLocation) -> Option<&'static str> {
    let has_tree = options.tree.fuse.is_some() || options.tree.ninep.is_some();
    let has_address = has_tree || options.nbd.nbd.is_some();
    let is_at_node = options.node.is_some() || !has_address;
    let can_fill = is_at_node || (!is_local(store) && options.cache_of_origin.cache_dir.is_some());
    match () {
        () if options.versions.is_empty() && !has_tree => {
            Some("nothing to serve: name a version, such as lab/debian12")
        }
        () if !has_address && matches!(agent::of_attach(store, options), Ok(None)) => {
            Some("no address to serve at: use --nbd, --fuse or --9p; no node of this store runs here")
        }
        () if options.disk.fill && !can_fill => {
            Some("--fill needs an origin and a cache: --server URL --cache-dir DIR")
        }
        () if is_at_node && has_address && options.versions.len() > 1 => {
            Some("--nbd with --node is for one disk: name one version")
        }
        () => None,
    }
}

fn of_cache(options: &CacheArguments, store: &StoreLocation) -> Option<&'static str> {
    (options.cache_dir.is_some() && is_local(store))
        .then_some("--cache-dir needs an origin: name one with --server, such as --server https://HOST:PORT")
}

fn of_overlays(options: &Far, store: &StoreLocation) -> Option<&'static str> {
    (options.overlays.is_some() && is_local(store))
        .then_some("--overlays needs an origin: name one with --server")
}

fn is_local(store: &StoreLocation) -> bool {
    matches!(store, StoreLocation::Local(_))
}

fn name_of(command: &Command) -> &'static str {
    match command {
        Command::Attach(_) => "attach",
        Command::Install(_) => "install",
        Command::Export(_) => "export",
        Command::Mount(_) => "mount",
        Command::Disks(_) => "disks",
        Command::Detach(_) => "detach",
        Command::Publish(_) => "publish",
        Command::Node(_) => "node",
        _ => "discard",
    }
}

fn wrong(name: &str, kind: ErrorKind, message: &str) -> clap::Error {
    let mut whole = Arguments::command();
    whole.build();
    match whole.find_subcommand_mut(name) {
        Some(command) => command.error(kind, message),
        None => whole.error(kind, message),
    }
}

/// The error for a disk and an image given in the wrong order, if that is the mistake.
fn swapped(words: &[OsString]) -> Option<clap::Error> {
    let mut lenient = Arguments::command();
    for (name, _) in PAIRS {
        lenient = lenient.mut_subcommand(name, |command| {
            command.mut_args(|argument| match argument.is_positional() {
                true => argument.value_parser(value_parser!(OsString)),
                false => argument,
            })
        });
    }
    let positionals = |name: &str| -> Vec<String> {
        let command = Arguments::command();
        let command = command.find_subcommand(name);
        let all = command.into_iter().flat_map(clap::Command::get_positionals);
        all.map(|argument| argument.get_id().to_string()).collect()
    };
    let matches = lenient.try_get_matches_from(words).ok()?;
    let (name, matches) = matches.subcommand()?;
    let (_, image_first) = *PAIRS.iter().find(|(known, _)| *known == name)?;
    let given: Vec<&str> = positionals(name)
        .iter()
        .filter_map(|id| matches.get_raw(id))
        .flatten()
        .filter_map(|word| word.to_str())
        .collect();
    let &[first, second] = &given[..] else { return None };
    let (image, disk) = if image_first { (first, second) } else { (second, first) };
    let is_swapped = is_path(image) && disk.parse::<VersionQuery>().is_ok();
    let what = if image_first { "image" } else { "disk" };
    let message = format!("the {what} comes first: platter {name} {second} {first}");
    is_swapped.then(|| wrong(name, ErrorKind::ValueValidation, &message))
}

/// Whether a word is not a valid image name, and looks like a path or names an existing file.
fn is_path(word: &str) -> bool {
    let looks_like_one = word.starts_with(['/', '.', '~']) || Path::new(word).exists();
    looks_like_one && word.parse::<VersionQuery>().is_err()
}

#[cfg(test)]
mod tests {
    use clap::builder::ValueParser;

    use super::*;

    fn said(line: &str) -> (i32, String) {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match parse(&words) {
            Ok(_) => (0, String::new()),
            Err(error) => (error.exit_code(), error.to_string()),
        }
    }

    #[test]
    fn names_that_other_programs_use_lead_to_ours() {
        for (other, own) in ELSEWHERE {
            let (code, text) = said(&format!("platter {other} x"));
            assert_eq!(
                (code, text.contains(&format!("tip: the command is `platter {own}`"))),
                (2, true),
                "{text}"
            );
        }
        let (code, text) = said("platter export lab/debian:1 file");
        assert!(code == 2 && text.contains("platter install lab/debian:1 FILE"), "{text}");
    }

    /// What a copy names may have options before, between and after its words.
    #[test]
    fn options_of_a_copy_stand_anywhere() {
        let parsed = |line: &str| parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in
            ["push --restore a s", "push a --restore s", "push a s --restore", "pull a b@1 --restore s"]
        {
            let arguments = parsed(&format!("platter {line}"));
            assert!(arguments.is_ok(), "{line}: {arguments:?}");
        }
        for line in ["push a", "push A! s", "pull --restore s"] {
            assert!(parsed(&format!("platter {line}")).is_err(), "{line}");
        }
    }

    #[test]
    fn swapped_arguments_are_reported() {
        for (line, words) in [
            ("platter install /dev/loop3 lab/a", "the image comes first: platter install lab/a /dev/loop3"),
            (
                "platter install /dev/loop3 lab/a@2 --yes",
                "the image comes first: platter install lab/a@2 /dev/loop3",
            ),
            ("platter export ./disk.raw lab/a", "the image comes first: platter export lab/a ./disk.raw"),
            ("platter receive /dev/loop3 lab/a", "the image comes first: platter receive lab/a /dev/loop3"),
            (
                "platter --quiet capture lab/a /dev/loop3 --raw",
                "the disk comes first: platter capture /dev/loop3 lab/a",
            ),
        ] {
            let (code, text) = said(line);
            assert!(code == 2 && text.contains(words), "{line}: {code} {text}");
        }
        for line in
            ["platter install past/A disk", "platter install /dev/loop3 ../x", "platter capture disk past/A"]
        {
            let (code, text) = said(line);
            assert!(
                code == 2
                    && !text.contains("comes first")
                    && text.contains("must start") | text.contains("not allowed") | text.contains("empty"),
                "{line}: {text}"
            );
        }
        for line in [
            "platter install lab/a /dev/loop3",
            "platter capture disk lab/a",
            "platter receive lab/a x",
            "platter receive /dev/loop3",
            "platter receive --server unix:s lab/a /dev/loop3",
        ] {
            assert_eq!(said(line).0, 0, "{line}");
        }
    }

    #[test]
    fn an_origin_casts_only_a_version_that_is_named() {
        let (code, text) = said("platter receive --server unix:s /dev/loop3");
        assert!(code == 2 && text.contains("NAME TARGET"), "{code} {text}");
    }

    /// Every image name has a type of its own, so the parser rejects invalid names: no untyped argument is an image name.
    #[test]
    fn untyped_arguments_are_not_image_names() {
        fn untyped(command: &clap::Command, place: &str, found: &mut Vec<String>) {
            let text = ValueParser::string().type_id();
            let names =
                command.get_positionals().filter(|argument| argument.get_value_parser().type_id() == text);
            found.extend(names.map(|argument| format!("{place} {}", argument.get_id())));
            for below in command.get_subcommands() {
                untyped(below, &format!("{place} {}", below.get_name()), found);
            }
        }
        let mut found = Vec::new();
        untyped(&Arguments::command(), "platter", &mut found);
        // Some are paths, or names that are parsed later; the last words of push and pull are directories or addresses.
        let others = [
            "platter follow origin",
            "platter pull words",
            "platter push words",
            "platter serve token add name",
            "platter serve token remove id",
            "platter key distrust id",
            "platter receive what",
        ];
        found.sort();
        let mut expected = others.map(str::to_owned).to_vec();
        expected.sort();
        assert_eq!(found, expected);
    }
}
