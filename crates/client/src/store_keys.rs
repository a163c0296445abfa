//! The identity domain of an origin's store, and its keys if it is encrypted.
//!
//! Frames of an encrypted store arrive as they are stored. This process gets the keys from the origin, which gives them to clients
//! that may read, over TLS or a unix socket. They stay in memory. Must never store or print them.

use platter_api::StoreKeys;
use platter_image::{Domain, DomainKeys, EXPORTED_KEYS_LENGTH, Error, Result};
use platter_transport::random_bytes;
use zeroize::Zeroizing;

use super::client::Client;

/// Parses the domain that an origin names; `None` stands for a store that is not encrypted.
///
/// # Errors
/// `Corrupt` for other text.
pub(super) fn domain_of(text: Option<&str>, name: &str) -> Result<Domain> {
    match text {
        None => Ok(Domain::SHARED),
        Some(text) => Domain::from_hex(text)
            .filter(|domain| domain.is_encrypted())
            .ok_or_else(|| Error::corrupt(format!("{name}: it names an invalid identity domain"))),
    }
}

/// Makes sure that this process has the keys of a domain, which is that of the origin's store.
///
/// # Errors
/// `Refused` when the origin has the keys of another domain; the errors of the request.
pub(super) fn obtain(client: &Client, domain: Domain) -> Result<()> {
    if domain.is_open() {
        return Ok(());
    }
    let within = |error: Error| error.within(format!("asking {} for the keys of its store", client.name()));
    let reply: StoreKeys = client.get("/api/v1/store/keys").map_err(within)?;
    let text = Zeroizing::new(reply.keys);
    let named = domain_of(Some(&reply.domain), client.name())?;
    let keys =
        parsed(&text).ok_or_else(|| Error::corrupt(format!("{}: it sent invalid keys", client.name())))?;
    if named != domain {
        return Err(Error::refused(format!(
            "{}: it has the keys of domain {named}, but its data is of domain {domain}",
            client.name()
        )));
    }
    let seed = Zeroizing::new(random_bytes()?);
    DomainKeys::import(domain, &keys, &seed).add_to_process()
}

fn parsed(text: &str) -> Option<Zeroizing<[u8; EXPORTED_KEYS_LENGTH]>> {
    let mut keys = Zeroizing::new([0; EXPORTED_KEYS_LENGTH]);
    if text.len() != 2 * keys.len() {
        return None;
    }
    for (byte, pair) in keys.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_another_form_are_refused() {
        let text = "0f".repeat(EXPORTED_KEYS_LENGTH);
        assert_eq!(*parsed(&text).unwrap(), [15; EXPORTED_KEYS_LENGTH]);
        for wrong in
            ["", "0f", &text[1..], &text.replace('f', "g"), &format!("{text}00"), &text.replace("0f0f", "ää")]
        {
            assert!(parsed(wrong).is_none(), "{wrong}");
        }
        assert!(domain_of(Some(&"0".repeat(32)), "x").is_err() && domain_of(Some("1"), "x").is_err());
        assert_eq!(domain_of(None, "x").unwrap(), Domain::SHARED);
    }
}
