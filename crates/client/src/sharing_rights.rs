//! The nodes with which a node may exchange blocks, according to its access token.

/// The origin's facts about a node's access token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharingRights {
    /// Equal for the nodes of one store whose tokens read the same images.
    pub group: [u8; 16],
    /// Whether the token reads every image. Then nothing in the cache has to be hidden from the group.
    pub all_images: bool,
}
