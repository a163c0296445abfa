//! This node's identity for its peers: its cache's id, and a certificate of its own, created at the first start and
//! stored beside the cache.

use std::path::Path;

use platter_cast::peer::NodeId;
use platter_image::Result;
use platter_transport::{Fingerprint, PEER_NAME, TlsFiles};

const CERTIFICATE: &str = "peer-certificate.pem";
const KEY: &str = "peer-key.pem";

/// A node's id and certificate.
pub(crate) struct Identity {
    pub(crate) id: NodeId,
    pub(super) tls: platter_transport::Identity,
}

impl Identity {
    /// Opens the identity with this id and the certificate in this folder, which is created if it is missing.
    ///
    /// # Errors
    /// `Refused` when the files there cannot be used; `Io`.
    pub(crate) fn open(dir: &Path, id: NodeId) -> Result<Self> {
        let files = TlsFiles { certificate: dir.join(CERTIFICATE), key: dir.join(KEY) };
        let tls = platter_transport::Identity::read_or_make(&files, "platter node", &[&[PEER_NAME]])?;
        Ok(Self { id, tls })
    }

    /// The fingerprint of the certificate.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.tls.fingerprint()
    }
}

/// Reads 32 lower-case hexadecimal digits.
pub(super) fn node_from_hex(text: &str) -> Option<NodeId> {
    platter_records::StoreId::from_hex(text).map(|id| NodeId(id.0))
}
