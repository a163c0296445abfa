//! With which nodes a node may exchange blocks, as the origin says of its access token.

/// What the origin says of a node's access token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharingRights {
    /// Equal for the nodes of one store whose tokens read the same images.
    pub group: [u8; 16],
    /// Whether the token reads every image. Then nothing in the cache has to be hidden from the group.
    pub all_images: bool,
}
