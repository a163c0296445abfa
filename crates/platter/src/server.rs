//! Selects the store that a command uses: a local directory, or an origin with its address, token and trust.

use std::env;
use std::path::{Path, PathBuf};

use platter_jobs::{
    Actor, CacheLocation, Error, OriginAccess, Result, ServerOptions, StoreLocation, StorePlace, Trust,
    default_holder, default_store_dir,
};

use crate::arguments::{Arguments, CacheArguments, Command, OtherArguments, ServerArguments};

/// Maximum size of an access token file in bytes.
const TOKEN_LENGTH_MAX: usize = 4096;

/// The store named by the arguments or the environment. Priority: `--server` or `--store`, then `PLATTER_SERVER`, then
/// `PLATTER_STORE`.
///
/// # Errors
/// `Refused` for an invalid address, token or fingerprint; `Missing` for a missing file.
pub(crate) fn location(arguments: &Arguments) -> Result<StoreLocation> {
    let (store, server) = (arguments.store.as_deref(), &arguments.server);
    let from_environment = || variable("PLATTER_SERVER").filter(|_| store.is_none());
    let of_node = match &arguments.command {
        Command::Node(options) => options.origin.clone(),
        _ => None,
    };
    let Some(address) = of_node.or_else(|| server.server.clone()).or_else(from_environment) else {
        let dir = store.map_or_else(default_store_dir, Path::to_path_buf);
        if arguments.retry_lock.is_some() && matches!(arguments.command, Command::Serve(_) | Command::Node(_))
        {
            return Err(Error::refused(
                "--retry-lock: not for serve and node, which hold the store while they run",
            ));
        }
        let place = StorePlace::on_system(dir).with_actor(local_actor()).with_lock_wait(arguments.retry_lock);
        let place = place.with_lock_advice(lock_advice(&arguments.command));
        return Ok(place.with_index_memory(u64::from(arguments.index_memory) << 20).into());
    };
    if arguments.retry_lock.is_some() {
        return Err(Error::refused("--retry-lock: an origin waits for the lock of its store by itself"));
    }
    Ok(server_at(&address, server)?.into())
}

/// What helps a command whose store is being written, besides waiting.
fn lock_advice(command: &Command) -> &'static str {
    match command {
        // They refuse --retry-lock.
        Command::Serve(_) | Command::Node(_) => "",
        // An origin does the same for them.
        Command::Capture(_)
        | Command::Clone(_)
        | Command::Rename(_)
        | Command::Protect(_)
        | Command::Unprotect(_)
        | Command::Quota(_)
        | Command::Forget(_)
        | Command::Sign(_)
        | Command::Lock(_)
        | Command::Pull(_)
        | Command::Gc(_) => {
            ", or repeat the command with --retry-lock TIME; if it is a server, name its address with --server"
        }
        _ => ", or repeat the command with --retry-lock TIME",
    }
}

/// The origin at an address, with the token and the trust that the arguments name.
///
/// # Errors
/// As [`location`].
pub(crate) fn server_at(address: &str, server: &ServerArguments) -> Result<ServerOptions> {
    Ok(ServerOptions {
        address: address.parse()?,
        token: token(server.token_file.as_deref())?,
        trust: trust(server)?,
    })
}

/// The origin that a command names beside its own store; `None` if it names a directory. The access token of one origin is never
/// sent to another: with `is_second`, only arguments for the other origin count.
///
/// # Errors
/// As [`location`].
pub(crate) fn other_store(
    named: &str,
    other: &OtherArguments,
    server: &ServerArguments,
    is_second: bool,
) -> Result<Option<ServerOptions>> {
    if !named.starts_with("unix:") && !named.contains("://") {
        return Ok(None);
    }
    let token = match other.other_token_file.as_deref() {
        None if is_second => None,
        None => token(server.token_file.as_deref())?,
        file => token(file)?,
    };
    let trust = match (&other.other_ca, &other.other_fingerprint) {
        (Some(file), _) => Trust::Authorities(file.clone()),
        (None, Some(text)) => Trust::fingerprint(text)?,
        (None, None) if is_second => Trust::System,
        (None, None) => trust(server)?,
    };
    Ok(Some(ServerOptions { address: named.parse()?, token, trust }))
}

/// Whether arguments or environment name how to reach an origin.
pub(crate) fn names_access(server: &ServerArguments) -> bool {
    let is_named = server.token_file.is_some() || server.fingerprint.is_some() || server.ca.is_some();
    is_named || variable("PLATTER_TOKEN").is_some() || variable("PLATTER_FINGERPRINT").is_some()
}

/// How to reach an origin again, without secrets: the names of files instead of their contents.
///
/// # Errors
/// `Io` when a path cannot be made absolute.
pub(crate) fn origin_access(address: &str, server: &ServerArguments) -> Result<OriginAccess> {
    let absolute = |path: &Option<PathBuf>| match path {
        None => Ok(String::new()),
        Some(path) => std::path::absolute(path)
            .map(|path| path.display().to_string())
            .map_err(|error| Error::io(format!("looking for {}", path.display()), error)),
    };
    let address = match address.strip_prefix("unix:") {
        Some(path) => format!("unix:{}", absolute(&Some(PathBuf::from(path)))?),
        None => address.to_owned(),
    };
    let fingerprint = server.fingerprint.clone().or_else(|| variable("PLATTER_FINGERPRINT"));
    Ok(OriginAccess {
        address,
        token_file: absolute(&server.token_file)?,
        fingerprint: fingerprint.filter(|_| server.ca.is_none()).unwrap_or_default(),
        authorities: absolute(&server.ca)?,
    })
}

/// Who makes changes of stores in directories.
pub(crate) fn local_actor() -> Actor {
    Actor::new(&default_holder(), "local")
}

/// The same store, read through the cache that the arguments name, if any.
///
/// # Errors
/// `Refused` for a local store.
pub(crate) fn with_cache(store: &StoreLocation, cache: &CacheArguments) -> Result<StoreLocation> {
    match &cache.cache_dir {
        Some(dir) => cached(store, dir, cache.cache_size),
        None => Ok(store.clone()),
    }
}

/// The same store, read through this cache.
///
/// # Errors
/// As [`with_cache`].
pub(crate) fn cached(store: &StoreLocation, dir: &Path, limit_bytes: u64) -> Result<StoreLocation> {
    match store {
        StoreLocation::Remote(origin) => {
            let cache = CacheLocation { dir: dir.to_owned(), limit_bytes };
            Ok(StoreLocation::Remote(origin.cached(cache)))
        }
        StoreLocation::Local(_) => Err(Error::refused(
            "--cache-dir needs an origin: name one with --server, such as --server https://HOST:PORT",
        )),
    }
}

fn token(file: Option<&Path>) -> Result<Option<String>> {
    let Some(file) = file else { return Ok(variable("PLATTER_TOKEN")) };
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::io(format!("reading the access token in {}", file.display()), error))?;
    let token = text.trim();
    if token.is_empty() || text.len() > TOKEN_LENGTH_MAX {
        return Err(Error::refused(format!("{} does not contain an access token", file.display())));
    }
    Ok(Some(token.to_owned()))
}

fn trust(server: &ServerArguments) -> Result<Trust> {
    if let Some(file) = &server.ca {
        return Ok(Trust::Authorities(PathBuf::from(file)));
    }
    let fingerprint = server.fingerprint.clone().or_else(|| variable("PLATTER_FINGERPRINT"));
    fingerprint.map_or(Ok(Trust::System), |text| Trust::fingerprint(&text))
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
