//! Opens encrypted stores: gets a secret from a key file, a command or the terminal, and the key from a slot that it opens.
//!
//! Secrets are erased after use, and never printed.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use platter_jobs::{
    Error, ErrorKind, KEY_FILE_LENGTH_MAX, KeyFile, MasterKey, Result, Secret, SecretKind, StoreLocation,
    StorePlace, new_key_file_text,
};
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::arguments::{Arguments, Command, NewSecret, UnlockArguments};
use crate::output::Output;
use crate::question::{ask_passphrase, can_ask, new_passphrase};

/// The most bytes that are read of a key file or of what a command prints: more than a secret may have.
const SECRET_LENGTH_MAX: u64 = (64 << 10) + 2;

/// Opens the store of a command. Commands that only read names do not ask for a passphrase.
///
/// # Errors
/// `Refused` when no slot opens; the errors of the file or command.
pub(crate) fn for_command(store: &StoreLocation, arguments: &Arguments, output: &Output) -> Result<()> {
    let needs_key = match &arguments.command {
        // They open the store by themselves, or have none.
        Command::Init(_)
        | Command::Encryption(_)
        | Command::Key(_)
        | Command::Trace(_)
        | Command::Completions(_)
        | Command::Receive(_) => return Ok(()),
        Command::Cast(options) if options.probe || options.node.is_some() => return Ok(()),
        Command::Images(_)
        | Command::Show(_)
        | Command::History(_)
        | Command::Log(_)
        | Command::Lock(_)
        | Command::Copies(_)
        | Command::Disks(_)
        | Command::Detach(_)
        | Command::Verify(_)
        | Command::Check(_) => false,
        Command::Serve(options) if options.command.is_some() => false,
        _ => true,
    };
    let StoreLocation::Local(place) = store else { return Ok(()) };
    let keys = match place.read_key_file() {
        Ok(Some(keys)) => keys,
        Ok(None) => return Ok(()),
        // It restores store.json.
        Err(_) if matches!(arguments.command, Command::Rebuild(_)) => {
            return for_damaged(place, arguments, output);
        }
        // The command says what it misses.
        Err(_) if !needs_key || !place.is_store().unwrap_or(false) => return Ok(()),
        Err(error) => return Err(error),
    };
    match named_secret(&arguments.unlock, output)? {
        Some(secret) => open(&keys, &secret, output),
        None if needs_key && can_ask() => open(&keys, &asked(place)?, output),
        None => Ok(()),
    }
}

/// Opens a store whose `store.json` may be missing or damaged.
fn for_damaged(place: &StorePlace, arguments: &Arguments, output: &Output) -> Result<()> {
    let Ok(Some(keys)) = place.read_key_file_alone() else { return Ok(()) };
    match named_secret(&arguments.unlock, output)? {
        Some(secret) => open(&keys, &secret, output),
        None => Ok(()),
    }
}

/// The master key of an encrypted store, for commands that change its slots.
///
/// # Errors
/// As [`for_command`]; `Refused` without a terminal to ask.
pub(crate) fn master(
    place: &StorePlace,
    keys: &KeyFile,
    unlock: &UnlockArguments,
    output: &Output,
) -> Result<(MasterKey, u32)> {
    let secret = match named_secret(unlock, output)? {
        Some(secret) => secret,
        None => asked(place)?,
    };
    try_slots(keys, &secret, output)
}

/// The secret of a new store: from the options that open it, or a new passphrase.
///
/// # Errors
/// As [`new_secret`].
pub(crate) fn first_secret(
    place: &StorePlace,
    unlock: &UnlockArguments,
    output: &Output,
) -> Result<(Secret, Option<NewKeyFile>)> {
    let (file, command) = named(unlock);
    new_secret(place, &NewSecret { new_file: file, new_command: command }, output)
}

/// A secret for a slot. Creates a key file that is missing; the caller keeps it once the slot is durable.
///
/// # Errors
/// `Refused` without a terminal to ask, or when the two passphrases differ; `Io`.
pub(crate) fn new_secret(
    place: &StorePlace,
    named: &NewSecret,
    output: &Output,
) -> Result<(Secret, Option<NewKeyFile>)> {
    match (&named.new_file, &named.new_command) {
        (Some(file), _) => {
            let created = NewKeyFile::create_if_missing(Some(place), file)?;
            let secret = Secret::new(SecretKind::File, read_new_secret_file(file, output)?)?;
            Ok((secret, created))
        }
        (None, Some(command)) => Ok((of_command(command)?, None)),
        (None, None) => Ok((Secret::new(SecretKind::Passphrase, new_passphrase()?)?, None)),
    }
}

fn open(keys: &KeyFile, secret: &Secret, output: &Output) -> Result<()> {
    try_slots(keys, secret, output)?.0.use_in_process()
}

fn try_slots(keys: &KeyFile, secret: &Secret, output: &Output) -> Result<(MasterKey, u32)> {
    if keys.is_slow() {
        output.note("trying the key slots, whose parameters were chosen to be slow: this takes a while");
    }
    keys.unlock(secret)
}

fn asked(place: &StorePlace) -> Result<Secret> {
    let prompt = format!("Passphrase of the store in {}: ", place.dir().display());
    Secret::new(SecretKind::Passphrase, ask_passphrase(&prompt)?)
}

/// The key file and the command that arguments or environment name. Arguments win.
fn named(unlock: &UnlockArguments) -> (Option<PathBuf>, Option<String>) {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match (&unlock.unlock_file, &unlock.unlock_command) {
        (None, None) => {
            let file = variable("PLATTER_UNLOCK_FILE").map(PathBuf::from);
            let command = variable("PLATTER_UNLOCK_COMMAND").filter(|_| file.is_none());
            (file, command.map(|command| command.to_string_lossy().into_owned()))
        }
        (file, command) => (file.clone(), command.clone()),
    }
}

fn named_secret(unlock: &UnlockArguments, output: &Output) -> Result<Option<Secret>> {
    match named(unlock) {
        (Some(file), _) => of_file(&file, output).map(Some),
        (None, Some(command)) => of_command(&command).map(Some),
        (None, None) => Ok(None),
    }
}

fn of_file(path: &Path, output: &Output) -> Result<Secret> {
    Secret::new(SecretKind::File, read_secret_file(path, output)?)
}

/// The contents of a key file. Other users should not be able to read it.
///
/// # Errors
/// `Missing`, `Io`.
pub(crate) fn read_secret_file(path: &Path, output: &Output) -> Result<Zeroizing<Vec<u8>>> {
    read_secret(path, false, output)
}

/// As [`read_secret_file`], for a file whose contents become a secret: nobody else may have chosen them, or may change them.
///
/// # Errors
/// Also `Refused` when it is a symbolic link, of another user than this one and root, or can be written by others.
pub(crate) fn read_new_secret_file(path: &Path, output: &Output) -> Result<Zeroizing<Vec<u8>>> {
    read_secret(path, true, output)
}

fn read_secret(path: &Path, is_new: bool, output: &Output) -> Result<Zeroizing<Vec<u8>>> {
    let failed = |error: std::io::Error| {
        let kind =
            if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::Missing } else { ErrorKind::Io };
        Error::new(kind, format!("reading the key file {}", path.display())).with_source(error)
    };
    let links = if is_new { OFlags::NOFOLLOW } else { OFlags::empty() };
    let file = match OpenOptions::new().read(true).custom_flags(links.bits().cast_signed()).open(path) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            let what = format!("the key file {} is a symbolic link: name the file itself", path.display());
            return Err(Error::refused(what));
        }
        opened => opened.map_err(failed)?,
    };
    let metadata = file.metadata().map_err(failed)?;
    let (mode, owner) = (metadata.mode(), metadata.uid());
    let is_ours = owner == 0 || owner == rustix::process::geteuid().as_raw();
    if is_new && (!is_ours || mode & 0o022 != 0) {
        return Err(Error::refused(format!(
            "the key file {} exists, and user {owner} or others may write it (mode {:03o}): name a file that does not exist",
            path.display(),
            mode & 0o777
        )));
    }
    if mode & 0o077 != 0 {
        output.note(&format!(
            "other users can read the key file {} (mode {:03o}): `chmod 600` it",
            path.display(),
            mode & 0o777
        ));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET_LENGTH_MAX as usize));
    file.take(SECRET_LENGTH_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// The key slots in a file that the user named.
///
/// # Errors
/// `Refused` when it is no regular file; `Corrupt`; `Io`.
pub(crate) fn key_slots_in(path: &Path) -> Result<KeyFile> {
    let failed = |error| Error::io(format!("reading {}", path.display()), error);
    // A pipe would block, and a device may never end.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::refused(format!("{} is no regular file: name a keys.json", path.display())));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .map_err(failed)?
        .take(KEY_FILE_LENGTH_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    KeyFile::decode(&bytes).map_err(|error| error.within(path.display().to_string()))
}

/// A key file that this process created. It is removed again unless it is kept.
#[derive(Debug)]
pub(crate) struct NewKeyFile {
    path: PathBuf,
    is_kept: bool,
}

impl NewKeyFile {
    /// Creates a key file with random contents, durable on return, if there is no file. `place`: the store that it
    /// opens, if it opens one.
    ///
    /// # Errors
    /// `Refused` if it would be in the directory of the store; `Io`.
    pub(crate) fn create_if_missing(place: Option<&StorePlace>, path: &Path) -> Result<Option<Self>> {
        let failed = |error| Error::io(format!("creating the key file {}", path.display()), error);
        let mut options = OpenOptions::new();
        // A file that is there, also an empty one, may be another user's.
        options.write(true).mode(0o600).create_new(true);
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        if let Some(place) = place {
            refuse_inside(place, path, parent)?;
        }
        let mut file = match options.open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(None),
            created => created.map_err(failed)?,
        };
        let created = Self { path: path.to_owned(), is_kept: false };
        let mut write = || {
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(new_key_file_text().map_err(std::io::Error::other)?.as_bytes())?;
            file.sync_all()?;
            File::open(parent)?.sync_all()
        };
        write().map_err(failed)?;
        Ok(Some(created))
    }

    /// Keeps the file: what it opens is durable. `advice`: what to do with it.
    pub(crate) fn keep(mut self, advice: &str, output: &Output) {
        self.is_kept = true;
        output.note(&format!("created the key file {}: {advice}", self.path.display()));
    }
}

impl Drop for NewKeyFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // Nothing needs it. If it stays, it opens nothing.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Refuses a key file in the directory of the store that it opens.
fn refuse_inside(place: &StorePlace, path: &Path, parent: &Path) -> Result<()> {
    // If one of them does not exist yet, the file cannot be inside.
    let (Ok(store), Ok(parent)) = (place.dir().canonicalize(), parent.canonicalize()) else { return Ok(()) };
    match parent.starts_with(store) {
        true => Err(Error::refused(format!(
            "the key file {} would be in the directory of the store, so every copy of the store would have its key: choose \
             another place",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// What a command prints. Its errors go to standard error.
fn of_command(command: &str) -> Result<Secret> {
    let failed = |error| Error::io("running the command that prints the secret", error);
    let mut child = Process::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET_LENGTH_MAX as usize));
    if let Some(printed) = child.stdout.take() {
        printed.take(SECRET_LENGTH_MAX).read_to_end(&mut bytes).map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        return Err(Error::refused(format!("the command that prints the secret failed: {status}")));
    }
    Secret::new(SecretKind::Command, bytes)
}
