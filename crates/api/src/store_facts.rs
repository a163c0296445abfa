//! Facts about the store of an origin, and its keys.

use platter_records::{StoreHealth, schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The store, restricted to what the access token may read.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StoreFacts {
    /// 32 hexadecimal digits.
    pub id: String,
    /// The identity domain of an encrypted store: 32 hexadecimal digits; null if the store is not encrypted.
    #[serde(default)]
    pub domain: Option<String>,
    /// Equal for all access tokens that read the same images: 32 hexadecimal digits. Nodes of one group share blocks.
    #[schemars(schema_with = "schema::short_id")]
    pub sharing_group: String,
    /// Whether the token reads all images.
    pub reads_all_images: bool,
    /// Version of the origin's program.
    pub version: String,
    /// Number of images.
    pub images: u64,
    /// Number of versions.
    pub versions: u64,
    /// Bytes that these versions added, as stored.
    pub stored_bytes: u64,
    /// Number of blocks; null for a token that is not for all images, because it would reveal facts about the other images.
    pub blocks: Option<u64>,
    /// What reads of the packs have shown; null for the same reason.
    pub health: Option<StoreHealth>,
    /// Whether the origin's last garbage collection gave up nothing, because it would give up much and nobody confirmed that;
    /// null for the same reason.
    #[serde(default)]
    pub collection_needs_confirmation: Option<bool>,
}

/// The keys of an encrypted store, for clients that read or write its blocks. Whoever has them must not store them.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct StoreKeys {
    /// The identity domain: 32 hexadecimal digits.
    #[schemars(schema_with = "schema::short_id")]
    pub domain: String,
    /// The keys of its blocks and overlays (docs/formats/keys.md): 256 hexadecimal digits.
    #[schemars(length(min = 256, max = 256))]
    pub keys: String,
}

impl std::fmt::Debug for StoreKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoreKeys of domain {}", self.domain)
    }
}
