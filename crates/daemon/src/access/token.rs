//! Access tokens: the file in the store's directory that holds them (`docs/formats/access-tokens.md`).
//!
//! Owns that file. A secret is shown once, at its creation, and never stored: the file contains its BLAKE3 hash. A
//! change is written under a lock to a new file, which is synced and then replaces the old one, so after a crash the
//! file holds either the old or the new tokens. A server sees a change at the next request.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind as IoErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use platter_api::{AccessToken, NamePattern, NewToken, PATTERNS_MAX, Role, TOKEN_NAME_LENGTH_MAX};
use platter_image::{Error, Result};
use platter_store::StorePlace;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::{Patterns, Principal};
use platter_transport::private_file;
use platter_transport::random_hex;

const FILE: &str = "access-tokens.json";
const LOCK: &str = "access-tokens.lock";
const FORMAT_VERSION: u32 = 1;
/// Prefix of every secret, so that leaked secrets can be searched for.
const SECRET_PREFIX: &str = "platter-";
/// Most tokens.
const TOKENS_MAX: usize = 1000;
/// Most bytes of the file that are read.
const FILE_LENGTH_MAX: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct TokenFile {
    platter_access_tokens: u32,
    tokens: Vec<StoredToken>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredToken {
    #[serde(flatten)]
    token: AccessToken,
    /// BLAKE3 of the secret in hexadecimal.
    secret_blake3: String,
    /// Of all other fields, so that damage does not change what a token may do. Files written before it existed lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

impl StoredToken {
    fn new(token: AccessToken, secret: &str) -> Self {
        let mut stored = Self { token, secret_blake3: hash(secret), checksum: None };
        stored.checksum = Some(stored.expected_checksum());
        stored
    }

    fn expected_checksum(&self) -> String {
        let AccessToken { id, name, role, patterns, quota_bytes, created_unix_ms } = &self.token;
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        let (patterns, quota) =
            (patterns.join(","), quota_bytes.map(|bytes| bytes.to_string()).unwrap_or_default());
        let secret = &self.secret_blake3;
        let text = format!("{id}\n{name}\n{role}\n{patterns}\n{quota}\n{created_unix_ms}\n{secret}");
        hash(&text)[..16].to_owned()
    }
}

/// Identifies a state of the file: inode number, length, and time of change.
type Stamp = (u64, u64, i64, i64);

/// The access tokens of a store.
#[derive(Debug)]
pub struct AccessTokens {
    dir: PathBuf,
    seen: Mutex<Option<ReadTokens>>,
}

/// The file as of the last read. Even two changes at the same clock tick are noticed, because each change creates a
/// file with another inode number.
#[derive(Debug)]
struct ReadTokens {
    stamp: Option<Stamp>,
    by_hash: HashMap<String, Arc<Principal>>,
}

impl AccessTokens {
    /// Creates the access tokens of this store. Reads nothing yet.
    pub fn of(store: &StorePlace) -> Self {
        Self { dir: store.dir().to_owned(), seen: Mutex::new(None) }
    }

    /// Returns all tokens, in order of creation.
    ///
    /// # Errors
    /// `Corrupt` when the file is damaged, `Refused` when a newer Platter wrote it, `Io`.
    pub fn list(&self) -> Result<Vec<AccessToken>> {
        Ok(self.read()?.into_iter().map(|stored| stored.token).collect())
    }

    /// Creates a token. Durable on return.
    ///
    /// # Errors
    /// `Refused` for an unfit name or one that another token has, no pattern, or too many tokens; as [`AccessTokens::list`].
    pub fn add(
        &self,
        name: &str,
        role: Role,
        patterns: Vec<NamePattern>,
        quota_bytes: Option<u64>,
    ) -> Result<NewToken> {
        if name.is_empty() || name.len() > TOKEN_NAME_LENGTH_MAX || name.chars().any(char::is_control) {
            return Err(Error::refused(format!(
                "token name {name:?}: 1 to {TOKEN_NAME_LENGTH_MAX} bytes without control characters are allowed"
            )));
        }
        if patterns.is_empty() || patterns.len() > PATTERNS_MAX {
            return Err(Error::refused(format!("a token must have 1 to {PATTERNS_MAX} patterns of images")));
        }
        let secret = format!("{SECRET_PREFIX}{}", random_hex::<32>()?);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let token = AccessToken {
            id: random_hex::<8>()?,
            name: name.to_owned(),
            role,
            patterns,
            quota_bytes,
            created_unix_ms: since.as_millis() as i64,
        };
        self.change(|tokens| {
            if tokens.len() == TOKENS_MAX {
                return Err(Error::refused(format!("there are {TOKENS_MAX} access tokens already")));
            }
            if let Some(other) = tokens.iter().find(|stored| stored.token.name == name) {
                return Err(Error::refused(format!(
                    "an access token named {name:?} exists ({}): choose another name, or remove that one",
                    other.token.id
                )));
            }
            tokens.push(StoredToken::new(token.clone(), &secret));
            Ok(())
        })?;
        Ok(NewToken { token, secret })
    }

    /// Removes a token, and returns it. It is invalid from the next request on.
    ///
    /// # Errors
    /// `Missing` when there is no token with this id; as [`AccessTokens::list`].
    pub fn remove(&self, id: &str) -> Result<AccessToken> {
        self.change(|tokens| {
            let at = tokens.iter().position(|stored| stored.token.id == id);
            let at = at.ok_or_else(|| {
                let named =
                    tokens.iter().filter(|stored| stored.token.name == id).map(|stored| &*stored.token.id);
                let named = named.collect::<Vec<_>>().join(", ");
                let hint = if named.is_empty() {
                    String::new()
                } else {
                    format!(": the id of that name is {named}")
                };
                Error::missing(format!("there is no access token with the id {id:?}{hint}"))
            })?;
            Ok(tokens.remove(at).token)
        })
    }

    /// Returns the principal with this secret.
    ///
    /// # Errors
    /// As [`AccessTokens::list`].
    pub(crate) fn principal(&self, secret: &str) -> Result<Option<Arc<Principal>>> {
        let stamp = self.stamp()?;
        let mut seen = self.seen.lock();
        if seen.as_ref().is_none_or(|seen| seen.stamp != stamp) {
            let by_hash = self.read()?.into_iter().map(|StoredToken { token, secret_blake3, .. }| {
                let AccessToken { id, name, role, patterns, quota_bytes, .. } = token;
                let patterns = Patterns(patterns);
                (secret_blake3, Arc::new(Principal { id, name, role, patterns, quota_bytes }))
            });
            *seen = Some(ReadTokens { stamp, by_hash: by_hash.collect() });
        }
        // Looked up by hash, so the duration reveals nothing about any secret.
        Ok(seen.as_ref().and_then(|seen| seen.by_hash.get(&hash(secret)).cloned()))
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    fn stamp(&self) -> Result<Option<Stamp>> {
        match fs::metadata(self.path()) {
            Ok(file) => Ok(Some((file.ino(), file.len(), file.ctime(), file.ctime_nsec()))),
            Err(error) if error.kind() == IoErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(format!("{}: reading its attributes", self.path().display()), error)),
        }
    }

    fn read(&self) -> Result<Vec<StoredToken>> {
        let path = self.path();
        let Some(text) = private_file::read(&path, FILE_LENGTH_MAX)? else { return Ok(Vec::new()) };
        let file: TokenFile = serde_json::from_slice(&text).map_err(|error| {
            Error::corrupt(format!("{}: not a file of access tokens", path.display())).with_source(error)
        })?;
        if file.platter_access_tokens != FORMAT_VERSION {
            return Err(Error::refused(format!(
                "{}: format {}, but this Platter supports format {FORMAT_VERSION}: use a newer Platter",
                path.display(),
                file.platter_access_tokens
            )));
        }
        let is_damaged = |stored: &&StoredToken| {
            stored.checksum.as_ref().is_some_and(|sum| *sum != stored.expected_checksum())
        };
        match file.tokens.iter().find(is_damaged) {
            Some(damaged) => Err(Error::corrupt(format!(
                "{}: the checksum of token {:?} is wrong: delete its entry, and add the token again",
                path.display(),
                damaged.token.name
            ))),
            None => Ok(file.tokens),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<StoredToken>) -> Result<T>) -> Result<T> {
        let lock = self.dir.join(LOCK);
        let lock_file = private_file::open(&lock)?;
        flock(&lock_file, FlockOperation::LockExclusive)
            .map_err(|error| Error::io(format!("{}: locking it", lock.display()), error.into()))?;
        let mut tokens = self.read()?;
        let changed = change(&mut tokens)?;
        let file = TokenFile { platter_access_tokens: FORMAT_VERSION, tokens };
        let text = serde_json::to_string_pretty(&file)
            .map_err(|error| Error::bug("cannot serialize access tokens").with_source(error))?;
        private_file::replace(&self.path(), format!("{text}\n").as_bytes())?;
        Ok(changed)
    }
}

fn hash(secret: &str) -> String {
    blake3::hash(secret.as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use platter_image::ErrorKind;

    use super::*;

    fn tokens() -> (tempfile::TempDir, AccessTokens) {
        let folder = tempfile::tempdir().unwrap();
        let tokens = AccessTokens::of(&StorePlace::on_system(folder.path()));
        (folder, tokens)
    }

    #[test]
    fn a_token_is_valid_from_its_creation_to_its_removal() {
        let (folder, tokens) = tokens();
        assert_eq!(tokens.list().unwrap(), []);
        assert_eq!(tokens.principal("platter-").unwrap(), None);
        let made = tokens.add("ci", Role::Write, vec!["lab/*".parse().unwrap()], None).unwrap();
        let other = tokens.add("all", Role::Read, vec![NamePattern::Everything], None).unwrap();
        assert_ne!(made.secret, other.secret);
        let principal = tokens.principal(&made.secret).unwrap().unwrap();
        assert_eq!((principal.role, principal.id.clone()), (Role::Write, made.token.id.clone()));
        assert!(!principal.reads_everything());
        assert_eq!(tokens.principal(&made.secret[..made.secret.len() - 1]).unwrap(), None);
        // As if by another process.
        let elsewhere = AccessTokens::of(&StorePlace::on_system(folder.path()));
        assert_eq!(elsewhere.remove(&made.token.id).unwrap(), made.token);
        assert_eq!(tokens.principal(&made.secret).unwrap(), None);
        assert!(tokens.principal(&other.secret).unwrap().is_some());
        assert_eq!(tokens.remove(&made.token.id).unwrap_err().kind(), ErrorKind::Missing);
    }

    #[test]
    fn secrets_are_not_in_the_file_and_only_its_owner_reads_it() {
        let (folder, tokens) = tokens();
        let made = tokens.add("ci", Role::Read, vec![NamePattern::Everything], None).unwrap();
        let path = folder.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&made.secret[SECRET_PREFIX.len()..]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// Of any single damage, the tokens are as they were or nobody is admitted. Files without checksums are read.
    #[test]
    fn damage_gives_no_other_rights() {
        let (folder, tokens) = tokens();
        let path = folder.path().join(FILE);
        let made = tokens.add("ci", Role::Read, vec!["lab/*".parse().unwrap()], Some(1_000_000)).unwrap();
        let text = fs::read(&path).unwrap();
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut damaged = text.clone();
                damaged[at] ^= 1 << bit;
                fs::write(&path, damaged).unwrap();
                let read = AccessTokens::of(&StorePlace::on_system(folder.path())).principal(&made.secret);
                if let Ok(Some(found)) = read {
                    let rights = (found.role, found.patterns.0.clone(), found.quota_bytes);
                    assert_eq!(
                        rights,
                        (Role::Read, made.token.patterns.clone(), Some(1_000_000)),
                        "{at}: {bit}"
                    );
                }
            }
        }
        let text = String::from_utf8(text).unwrap();
        let (before, after) = text.split_once(",\n      \"checksum\"").unwrap();
        fs::write(&path, format!("{before}{}", &after[after.find('\n').unwrap()..])).unwrap();
        assert_eq!(tokens.list().unwrap(), [made.token]);
    }

    #[test]
    fn invalid_tokens_are_refused_and_a_damaged_file_admits_nobody() {
        let (folder, tokens) = tokens();
        assert!(tokens.add("", Role::Read, vec![NamePattern::Everything], None).is_err());
        assert!(tokens.add("a\nb", Role::Read, vec![NamePattern::Everything], None).is_err());
        assert!(tokens.add("a", Role::Read, vec![], None).is_err());
        let made = tokens.add("a", Role::Admin, vec![NamePattern::Everything], None).unwrap();
        let second = tokens.add("a", Role::Read, vec![NamePattern::Everything], None).unwrap_err();
        assert!(second.to_string().contains(&made.token.id), "{second}");
        fs::write(folder.path().join(FILE), "{\"platter_access_tokens\":1").unwrap();
        assert_eq!(tokens.principal(&made.secret).unwrap_err().kind(), ErrorKind::Corrupt);
        fs::write(folder.path().join(FILE), "{\"platter_access_tokens\":2,\"tokens\":[]}").unwrap();
        assert_eq!(tokens.principal(&made.secret).unwrap_err().kind(), ErrorKind::Refused);
    }
}
