//! Combinations of options that contradict each other or lack one, whatever store and disks hold.

use std::path::Path;

use platter_jobs::{ExportOptions, ForgetRequest, check_format, is_raw};

use crate::arguments::{Attach, Cast, Command, Diff, Export, Forget, Init, Receive};

/// The command and what is wrong with its options, if something is.
pub(super) fn wrong_combination(command: &Command, has_server: bool) -> Option<(&'static str, String)> {
    let (name, wrong) = match command {
        Command::Init(options) => ("init", of_init(options)),
        Command::Forget(options) => ("forget", of_forget(options)),
        Command::Export(options) => ("export", of_export(options)),
        Command::Diff(options) => ("diff", of_diff(options)),
        Command::Attach(options) => ("attach", of_attach(options)),
        Command::Cast(options) => ("cast", of_cast(options, has_server)),
        Command::Receive(options) if has_server => ("receive", of_receive(options)),
        _ => return None,
    };
    wrong.map(|wrong| (name, wrong))
}

fn of_init(options: &Init) -> Option<String> {
    let is_secret_named = options.secret.new_file.is_some() || options.secret.new_command.is_some();
    let wrong = match options.same_key_as {
        _ if !is_secret_named || options.encrypt => return None,
        Some(_) => {
            "--same-key-as takes the key slots of the other store: name a secret that opens one of them with --unlock-file or \
             --unlock-command, and add others later with `platter encryption add`"
        }
        None => "--new-file and --new-command name the secret of an encrypted store: add --encrypt",
    };
    Some(wrong.into())
}

fn of_forget(options: &Forget) -> Option<String> {
    let is_policy = !options.keep.policy().is_empty();
    let wrong = match &options.what {
        _ if !is_policy && (options.keep.dry_run || options.keep.below) => {
            "--dry-run and --below belong to a policy: name at least one --keep-… rule"
        }
        _ if is_policy && options.all => {
            "--all forgets every version, and --keep-… keeps some: leave one of them out"
        }
        ForgetRequest::Image(_) => return None,
        _ if is_policy => "a policy chooses among the versions of an image: give its NAME without a number",
        _ => return None,
    };
    Some(wrong.into())
}

fn of_export(options: &Export) -> Option<String> {
    let format = ExportOptions { format: options.format, compress: options.compress };
    let is_pipe = options.file == Path::new("-") && !options.holes;
    match is_pipe && (!is_raw(&options.file, format) || options.compress) {
        true => Some("only raw disks can be written to standard output".into()),
        false if options.holes => None,
        false => check_format(&options.file, format).err().map(|error| error.to_string()),
    }
}

fn of_diff(options: &Diff) -> Option<String> {
    let (first, second) = (&options.first, &options.second);
    (first.path.is_some() != second.path.is_some())
        .then(|| format!("{first} and {second}: name a version twice, or a partition or path in both"))
}

fn of_attach(options: &Attach) -> Option<String> {
    options.take_over.then(|| {
        "only `platter node` and `platter serve` take over: a process of `platter attach` does not remember which versions it \
         serves, so its clients might see another version. Attach the disks to a node (--node DIR)"
            .into()
    })
}

const PROBE_ASKS_NOBODY: &str =
    "--probe asks no origin: leave out --server; a receiver can name the sender with --sender";

fn of_cast(options: &Cast, has_server: bool) -> Option<String> {
    match () {
        () if options.probe && has_server => Some(PROBE_ASKS_NOBODY.into()),
        () if options.readable && !has_server && options.node.is_none() => Some(
            "--readable is about a version of an origin: name the origin with --server, or a node with --node, or leave it out"
                .into(),
        ),
        () => None,
    }
}

/// With `--server`.
fn of_receive(options: &Receive) -> Option<String> {
    if options.probe {
        return Some(PROBE_ASKS_NOBODY.into());
    }
    if options.hoard.is_some() {
        return Some("--hoard receives what `platter cast --hoard` sends: leave out --server".into());
    }
    let given = [
        ("--sender", options.sender.is_some()),
        ("--key-file", options.key_file.is_some()),
        ("--trust-any", options.trust_any),
    ];
    let (option, _) = given.iter().find(|(_, is_given)| *is_given)?;
    Some(format!(
        "with --server, the origin names the sender, the disk and the key of the cast: leave out {option}"
    ))
}
