//! What an origin tells of its store.

use platter_records::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The store, as far as the access token may know it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StoreFacts {
    /// 32 hexadecimal digits.
    pub id: String,
    /// Equal for all access tokens that read the same images: 32 hexadecimal digits. Nodes of one group share blocks.
    #[schemars(schema_with = "schema::short_id")]
    pub sharing_group: String,
    /// Whether the token reads all images.
    pub reads_all_images: bool,
    /// The origin's own version.
    pub version: String,
    /// Number of images.
    pub images: u64,
    /// Number of versions.
    pub versions: u64,
    /// Bytes that these versions added.
    pub stored_bytes: u64,
    /// Number of blocks; null for a token that is not for all images, because it says something of every image.
    pub blocks: Option<u64>,
}
