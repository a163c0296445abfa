//! The keys that receivers of a cast need to decode the frames of an encrypted store: the secret of the session, which only
//! receivers with the join key get. Must never be put into a cast that is not encrypted.

use platter_cast::{SessionDescription, SessionSecret};
use platter_client::{ServerAddress, ServerOptions};
use platter_image::{Domain, DomainKeys, EXPORTED_KEYS_LENGTH, Error, Result};
use platter_transport::random_bytes;
use zeroize::Zeroizing;

/// Bytes of the domain, which precedes the keys.
const DOMAIN_LENGTH: usize = 16;

/// Returns the secret for a cast of frames of this domain; nothing for one without encryption.
///
/// # Errors
/// `Refused` when the frames are encrypted and this process lacks their keys.
pub(crate) fn secret_of(domain: Domain) -> Result<SessionSecret> {
    if !domain.is_encrypted() {
        return Ok(SessionSecret::default());
    }
    let mut secret = Vec::with_capacity(DOMAIN_LENGTH + EXPORTED_KEYS_LENGTH);
    secret.extend_from_slice(&domain.0);
    secret.extend_from_slice(&*domain.keys()?.export());
    Ok(SessionSecret(secret))
}

/// Refuses a cast of an encrypted store that everybody could read.
///
/// # Errors
/// `Refused`.
pub(crate) fn refuse_readable(domain: Domain, has_key: bool) -> Result<()> {
    match domain.is_encrypted() && !has_key {
        true => Err(Error::refused(
            "the store is encrypted, so its casts must be, too: name a key file with --key-file, here and at each receiver; or use \
             `platter serve --cast`, whose casts are always encrypted",
        )),
        false => Ok(()),
    }
}

/// Refuses a cast that everybody could read of a version that an origin gives only to access tokens.
///
/// # Errors
/// `Refused`.
pub(crate) fn refuse_readable_copy(origin: &ServerOptions, has_key: bool) -> Result<()> {
    // Whoever may use the socket of an origin may read its whole store, and needs no access token.
    let is_private = matches!(origin.address, ServerAddress::Tls { .. }) && origin.token.is_some();
    match is_private && !has_key {
        true => Err(Error::refused(
            "the origin gives this version only to access tokens, and a cast without a key can be read by every machine of the network: \
             name a key file with --key-file, here and at each receiver; or let everybody read it with --readable",
        )),
        false => Ok(()),
    }
}

/// Refuses a cast of an origin's version, by a process that reads this origin, that more machines could read than the origin allows.
/// `has_key`: only receivers with a key file can read it; `readable`: the user allows everybody to read what the origin gives only
/// to access tokens.
///
/// # Errors
/// `Refused`.
pub fn check_audience_of_cast(
    domain: Domain,
    origin: &ServerOptions,
    has_key: bool,
    readable: bool,
) -> Result<()> {
    refuse_readable(domain, has_key)?;
    if readable { Ok(()) } else { refuse_readable_copy(origin, has_key) }
}

/// Makes the keys of a session available to this process. They are in memory only.
///
/// # Errors
/// `Refused` when the session's secret has another form.
pub(crate) fn use_keys_of(description: &SessionDescription) -> Result<()> {
    let secret = &description.secret.0;
    if secret.is_empty() {
        return Ok(());
    }
    let parts = secret.split_first_chunk::<DOMAIN_LENGTH>();
    let parts = parts.and_then(|(domain, keys)| Some((*domain, keys.first_chunk::<EXPORTED_KEYS_LENGTH>()?)));
    let (domain, keys) =
        parts.filter(|_| secret.len() == DOMAIN_LENGTH + EXPORTED_KEYS_LENGTH).ok_or_else(|| {
            Error::refused("the cast names keys of a form that this Platter does not know: use a newer one")
        })?;
    let domain = Domain(domain);
    if domain.is_open() {
        return Ok(());
    }
    let seed = Zeroizing::new(random_bytes()?);
    DomainKeys::import(domain, keys, &seed).add_to_process()
}

#[cfg(test)]
mod tests {
    use platter_image::{BlockId, Score};

    use super::*;

    fn description(secret: SessionSecret) -> SessionDescription {
        SessionDescription {
            score: Score(BlockId([1; 32])),
            secret,
            name: String::new(),
            offer: Vec::new(),
            segment_length: 1,
            segments: Vec::new(),
            chunk_lengths: Vec::new(),
        }
    }

    #[test]
    fn keys_arrive_as_they_were_sent_and_nothing_else_is_taken() {
        let keys = DomainKeys::derive(&[77; 32], &[1; 32]);
        let (domain, exported) = (keys.domain(), keys.export());
        assert!(secret_of(domain).is_err() && secret_of(Domain::SHARED).unwrap().0.is_empty());
        let secret = SessionSecret([&domain.0[..], &*exported].concat());
        for wrong in [&secret.0[1..], &secret.0[..20], &[&secret.0[..], &[0]].concat()] {
            assert!(use_keys_of(&description(SessionSecret(wrong.to_vec()))).is_err());
        }
        assert!(!domain.is_open());
        use_keys_of(&description(secret.clone())).unwrap();
        assert_eq!(domain.keys().unwrap().export(), exported);
        assert!(secret_of(domain).unwrap() == secret);
        assert!(refuse_readable(domain, false).is_err() && refuse_readable(domain, true).is_ok());
        assert!(refuse_readable(Domain::SHARED, false).is_ok());
    }
}
