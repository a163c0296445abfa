//! Which store a command works on: that of a directory, or an origin's, with what is needed to speak with it.

use std::env;
use std::path::{Path, PathBuf};

use platter_jobs::{Error, Result, ServerOptions, StoreLocation, StorePlace, Trust, default_store_dir};

use crate::arguments::ServerArguments;

/// Most bytes of a file with an access token.
const TOKEN_LENGTH_MAX: usize = 4096;

/// The store that the arguments name, or else the environment: `--store` goes before `PLATTER_SERVER`, and that before
/// `PLATTER_STORE`.
///
/// # Errors
/// `Refused` for an address, a token or a fingerprint that is none; `Missing` for a file that is not there.
pub(crate) fn location(store: Option<&Path>, server: &ServerArguments) -> Result<StoreLocation> {
    let from_environment = || variable("PLATTER_SERVER").filter(|_| store.is_none());
    let Some(address) = server.server.clone().or_else(from_environment) else {
        let dir = store.map_or_else(default_store_dir, Path::to_path_buf);
        return Ok(StorePlace::on_system(dir).into());
    };
    Ok(StoreLocation::Remote(ServerOptions {
        address: address.parse()?,
        token: token(server.token_file.as_deref())?,
        trust: trust(server)?,
    }))
}

fn token(file: Option<&Path>) -> Result<Option<String>> {
    let Some(file) = file else { return Ok(variable("PLATTER_TOKEN")) };
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::io(format!("reading the access token in {}", file.display()), error))?;
    let token = text.trim();
    if token.is_empty() || text.len() > TOKEN_LENGTH_MAX {
        return Err(Error::refused(format!("{} holds no access token", file.display())));
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
