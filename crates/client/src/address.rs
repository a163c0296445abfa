//! Addresses of origins, and the trust in their certificates.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use platter_image::{BlockId, Error, Kind, Result};
use platter_transport::Trust;

/// The address of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A unix socket on this machine: everybody who may open it has all rights.
    Unix(PathBuf),
    /// TLS over TCP.
    Tls {
        /// Its host name or address, without the brackets of IPv6.
        host: String,
        /// Its TCP port.
        port: u16,
    },
}

/// An origin with everything needed to connect to it.
#[derive(Clone)]
pub struct ServerOptions {
    /// Its address.
    pub address: ServerAddress,
    /// The access token; none over a unix socket.
    pub token: Option<String>,
    /// Whose certificate is trusted.
    pub trust: Trust,
}

impl FromStr for ServerAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |why: &str| {
            Error::refused(format!("server {text:?}: {why}; write unix:/PATH or https://HOST:PORT"))
        };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" => Err(refused("the path is missing")),
                path => Ok(Self::Unix(PathBuf::from(path))),
            };
        }
        let Some(rest) = text.strip_prefix("https://") else {
            let plain = text.starts_with("http://");
            return Err(refused(if plain { "an origin speaks TLS only" } else { "unknown form" }));
        };
        let (host, port) =
            rest.trim_end_matches('/').rsplit_once(':').ok_or_else(|| refused("the port is missing"))?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(|| refused("invalid port"))?;
        let host = match host.strip_prefix('[') {
            Some(host) => host.strip_suffix(']').ok_or_else(|| refused("a bracket is missing"))?,
            None if host.contains(':') => return Err(refused("IPv6 addresses must be in brackets")),
            None => host,
        };
        if host.is_empty() || host.contains(['/', '?', '#', '@', ' ']) {
            return Err(refused("invalid host"));
        }
        Ok(Self::Tls { host: host.to_owned(), port })
    }
}

impl ServerAddress {
    /// The socket addresses of an origin that is reached over TCP; none if its name is unknown.
    pub fn socket_addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Unix(_) => Vec::new(),
            Self::Tls { host, port } => {
                (host.as_str(), *port).to_socket_addrs().map_or_else(|_| Vec::new(), Iterator::collect)
            }
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tls { host, port } if host.contains(':') => write!(f, "https://[{host}]:{port}"),
            Self::Tls { host, port } => write!(f, "https://{host}:{port}"),
        }
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "...");
        f.debug_struct("ServerOptions")
            .field("address", &self.address)
            .field("token", &token)
            .field("trust", &self.trust)
            .finish()
    }
}

impl ServerOptions {
    /// Equal where the same origin is reached in the same way with the same access token; reveals none of that.
    pub fn identity(&self) -> String {
        let parts =
            [self.address.to_string(), format!("{:?}", self.trust), self.token.clone().unwrap_or_default()];
        let bytes: Vec<u8> = parts
            .iter()
            .flat_map(|part| [&(part.len() as u64).to_le_bytes()[..], part.as_bytes()].concat())
            .collect();
        BlockId::of(Kind::Data, &bytes).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in
            ["unix:/run/platter.sock", "https://origin.lab:7581", "https://[::1]:1", "https://10.0.0.1:65535"]
        {
            assert_eq!(text.parse::<ServerAddress>().unwrap().to_string(), text);
        }
        assert_eq!("unix:///run/x".parse::<ServerAddress>().unwrap(), ServerAddress::Unix("/run/x".into()));
        assert_eq!("https://a:1/".parse::<ServerAddress>().unwrap().to_string(), "https://a:1");
    }

    #[test]
    fn invalid_addresses_are_refused_with_the_valid_forms() {
        let bad = [
            "",
            "unix:",
            "origin:7581",
            "http://a:1",
            "https://a",
            "https://a:0",
            "https://a:99999",
            "https://:1",
            "https://::1:1",
            "https://[::1:1",
            "https://a/b:1",
            "https://user@a:1",
        ];
        for text in bad {
            let error = text.parse::<ServerAddress>().unwrap_err().to_string();
            assert!(error.contains("unix:/PATH or https://HOST:PORT"), "{text}: {error}");
        }
        assert!("http://a:1".parse::<ServerAddress>().unwrap_err().to_string().contains("TLS"));
    }

    #[test]
    fn a_token_is_never_shown() {
        let address = ServerAddress::Unix("/x".into());
        let options = ServerOptions { address, token: Some("geheim".into()), trust: Trust::System };
        assert!(!format!("{options:?}").contains("geheim"));
    }
}
