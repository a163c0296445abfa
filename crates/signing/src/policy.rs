//! The decision whether this machine may use a version: signed by a trusted key, and not older than one it used before.

use std::path::PathBuf;

use platter_image::{Error, Result};
use platter_records::{Signature, StoreId, VersionRecord};

use crate::newest_seen::{NewestSeen, Numbers, entry};
use crate::statement::Statement;
use crate::trusted_keys::{TrustedKeys, signer};

/// What a machine requires of versions before it uses them. Without trusted keys, it requires nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignaturePolicy {
    /// The directory of the trusted keys; `None` means that no version has to be signed. It is read at each decision, so that
    /// changes count at once.
    pub directory: Option<PathBuf>,
    /// Whether versions older than one that was accepted before are accepted.
    pub allow_older: bool,
}

/// What a machine requires of versions, read once: it chooses between many records, of which one is admitted later.
#[derive(Clone, Debug)]
pub struct SignatureCheck {
    keys: TrustedKeys,
    newest: Numbers,
    allow_older: bool,
}

impl SignatureCheck {
    /// Returns the signature for which [`SignaturePolicy::admit`] would admit this version. Remembers nothing.
    ///
    /// # Errors
    /// `Refused` when it would be refused.
    pub fn verify(&self, record: &VersionRecord) -> Result<SignedBy> {
        let (signed, _) = self.keys.verify(record)?;
        let newest = self.newest.get(&entry(signed.store, &record.image)).copied();
        match newest.filter(|newest| *newest > record.number && !self.allow_older) {
            None => Ok(signed),
            Some(newer) => Err(older(record, newer)),
        }
    }
}

/// The error about a version that is older than one which was accepted before.
fn older(record: &VersionRecord, newer: u64) -> Error {
    Error::refused(format!(
        "{} is older than {}@{newer}, which this machine used before: somebody may want it to go back to known \
         faults; --allow-older accepts it",
        record.name(),
        record.image
    ))
}

/// A valid signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedBy {
    /// The id of the key.
    pub key: String,
    /// The store in which the version was signed.
    pub store: StoreId,
}

impl SignaturePolicy {
    /// Returns whether versions must be signed.
    ///
    /// # Errors
    /// As [`TrustedKeys::read`].
    pub fn is_active(&self) -> Result<bool> {
        self.keys().map(|keys| keys.is_some())
    }

    /// Reads what is required now. `None`: versions do not have to be signed.
    ///
    /// # Errors
    /// As [`TrustedKeys::read`]; `Corrupt` when the list of accepted versions is damaged.
    pub fn check(&self) -> Result<Option<SignatureCheck>> {
        let Some(keys) = self.keys()? else { return Ok(None) };
        let newest = NewestSeen::of(keys.directory()).read()?;
        Ok(Some(SignatureCheck { keys, newest, allow_older: self.allow_older }))
    }

    fn keys(&self) -> Result<Option<TrustedKeys>> {
        let keys = self.directory.as_deref().map(TrustedKeys::read).transpose()?;
        Ok(keys.filter(|keys| !keys.keys().is_empty()))
    }

    /// Admits a version, and remembers it as accepted. Call this before the version is used, with the record under whose name it
    /// was chosen. `None` is a disk that has no version. A caller whose user named a score need not call this: a score names one
    /// disk.
    ///
    /// # Errors
    /// `Refused` when no trusted key signed it, or a newer version of the image was accepted before; as [`TrustedKeys::read`].
    pub fn admit(&self, record: Option<&VersionRecord>) -> Result<Option<SignedBy>> {
        let Some(keys) = self.keys()? else { return Ok(None) };
        let Some(record) = record else {
            return Err(Error::refused(format!(
                "this disk has no version, so nobody signed it, and this machine accepts only versions that are signed by \
                 a key in {}",
                keys.directory().display()
            )));
        };
        let (signed, _) = keys.verify(record)?;
        let newer = NewestSeen::of(keys.directory()).accept(signed.store, &record.image, record.number)?;
        match newer.filter(|_| !self.allow_older) {
            None => Ok(Some(signed)),
            Some(newer) => Err(older(record, newer)),
        }
    }
}

impl TrustedKeys {
    /// Returns by which of these keys a version is signed, and that signature.
    ///
    /// # Errors
    /// `Refused` when by none of them; the message says why.
    pub fn verify<'a>(&self, record: &'a VersionRecord) -> Result<(SignedBy, &'a Signature)> {
        if self.keys().is_empty() {
            return Err(Error::refused(format!(
                "no key is trusted in {}: `platter key trust FILE` adds one",
                self.directory().display()
            )));
        }
        let mut others = Vec::new();
        for signature in &record.signatures {
            let statement = Statement::of(signature.store, record);
            if let Some(key) = self.keys().iter().find(|key| key.has_signed(&statement, signature)) {
                return Ok((SignedBy { key: key.id.clone(), store: signature.store }, signature));
            }
            let Some(key) = signer(signature) else { continue };
            let is_trusted = self.keys().iter().any(|trusted| trusted.id == key);
            others.push(if is_trusted {
                format!("the signature by {key} is not valid for it")
            } else {
                format!("{key}, which signed it, is not trusted")
            });
        }
        let name = record.name();
        let directory = self.directory().display();
        Err(Error::refused(if others.is_empty() {
            format!(
                "{name} is not signed, and this machine accepts only versions that are signed by a key in {directory}"
            )
        } else {
            format!("{name} is signed by no key in {directory}: {}", others.join("; "))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signing_key::{SigningKey, create_key};
    use platter_image::ErrorKind;

    struct Room {
        dir: tempfile::TempDir,
        key: SigningKey,
    }

    const STORE: StoreId = StoreId([3; 16]);

    impl Room {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let secret = dir.path().join("secret");
            create_key(&secret, None).unwrap();
            let key = SigningKey::read(&secret, || unreachable!("it has no password")).unwrap();
            Self { dir, key }
        }

        fn trust_own_key(&self) {
            let mut keys = TrustedKeys::read(&self.trusted()).unwrap();
            keys.add(&self.dir.path().join("secret.pub")).unwrap();
        }

        fn trusted(&self) -> std::path::PathBuf {
            self.dir.path().join("trusted")
        }

        fn signed(&self, number: u64) -> VersionRecord {
            let mut record = record(number);
            record.signatures = vec![self.key.sign(&Statement::of(STORE, &record)).unwrap()];
            record
        }

        fn policy(&self, allow_older: bool) -> SignaturePolicy {
            SignaturePolicy { directory: Some(self.trusted()), allow_older }
        }

        fn admit(&self, record: &VersionRecord) -> Result<Option<SignedBy>> {
            self.policy(false).admit(Some(record))
        }
    }

    fn record(number: u64) -> VersionRecord {
        let score = platter_image::Score(platter_image::BlockId([number as u8; 32]));
        let mut record = VersionRecord::draft("lab/a".parse().unwrap(), score, 1_764_000_000_000);
        record.number = number;
        record
    }

    #[test]
    fn without_keys_everything_is_accepted() {
        let room = Room::new();
        assert_eq!(room.admit(&record(1)).unwrap(), None);
        assert_eq!(SignaturePolicy::default().admit(Some(&record(1))).unwrap(), None);
    }

    #[test]
    fn signed_versions_are_accepted_and_all_others_refused() {
        let room = Room::new();
        room.trust_own_key();
        let signed = room.signed(1);
        assert_eq!(room.admit(&signed).unwrap().unwrap().store, STORE);
        let refused = |record: &VersionRecord| {
            let error = room.admit(record).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            error.with_causes()
        };
        assert!(refused(&record(1)).contains("is not signed"));
        let stranger = Room::new();
        assert!(refused(&stranger.signed(1)).contains("is not trusted"));
        // Every field of the statement counts.
        let mut others = vec![signed.clone(); 5];
        others[0].number = 2;
        others[1].image = "lab/b".parse().unwrap();
        others[2].score.0.0[0] ^= 1;
        others[3].time_unix_ms += 1;
        others[4].signatures[0].store.0[0] ^= 1;
        others.iter().for_each(|other| assert!(refused(other).contains("not valid for it"), "{other:?}"));
        // One valid signature among others is enough.
        let mut both = stranger.signed(1);
        both.signatures.extend(signed.signatures.clone());
        assert!(room.admit(&both).is_ok());
        // Every byte of a signature counts, except in its comment.
        let text = &signed.signatures[0].text;
        let comment_length = text.find('\n').unwrap() + 1;
        for at in comment_length..text.trim_end().len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let Ok(text) = String::from_utf8(bytes) else { continue };
            let mut damaged = signed.clone();
            damaged.signatures = vec![Signature { store: STORE, text }];
            // The last characters of base64 may have unused bits, which the library has to refuse, too.
            assert!(room.admit(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_disk_without_a_version_is_refused() {
        let room = Room::new();
        room.trust_own_key();
        assert_eq!(room.policy(false).admit(None).unwrap_err().kind(), ErrorKind::Refused);
    }

    #[test]
    fn a_machine_does_not_go_back_unless_allowed() {
        let room = Room::new();
        room.trust_own_key();
        room.admit(&room.signed(2)).unwrap();
        let error = room.admit(&room.signed(1)).unwrap_err();
        assert!(error.with_causes().contains("older than lab/a@2"), "{}", error.with_causes());
        let checked =
            |allow_older| room.policy(allow_older).check().unwrap().unwrap().verify(&room.signed(1));
        assert!(checked(true).is_ok() && checked(false).is_err());
        assert!(room.policy(true).admit(Some(&room.signed(1))).is_ok());
        assert!(room.admit(&room.signed(1)).is_err(), "what was allowed once is not allowed again");
    }

    #[test]
    fn a_damaged_key_file_closes_the_machine() {
        let room = Room::new();
        room.trust_own_key();
        std::fs::write(room.trusted().join("other.pub"), "nonsense").unwrap();
        assert!(room.admit(&room.signed(1)).is_err());
    }

    #[test]
    fn an_encrypted_key_needs_its_password() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        create_key(&path, Some("correct horse".into())).unwrap();
        let read = |password: &str| SigningKey::read(&path, || Ok(password.into()));
        assert_eq!(read("wrong").unwrap_err().kind(), ErrorKind::Refused);
        let record = record(1);
        let statement = Statement::of(STORE, &record);
        let signature = read("correct horse").unwrap().sign(&statement).unwrap();
        let key = crate::TrustedKey::read(&dir.path().join("secret.pub")).unwrap();
        assert!(key.has_signed(&statement, &signature));
        assert_eq!(create_key(&path, None).unwrap_err().kind(), ErrorKind::Refused, "never overwritten");
    }

    #[test]
    fn the_secret_key_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let room = Room::new();
        let mode = |name: &str| room.dir.path().join(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("secret"), 0o600);
    }
}
