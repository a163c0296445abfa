//! Where the store is when nobody says.

use std::path::PathBuf;

/// `PLATTER_STORE` if it is set; else `/var/lib/platter` for root, and `~/.local/share/platter` for others.
pub fn default_store_dir() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(dir) = set("PLATTER_STORE") {
        return dir;
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/platter");
    }
    let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    data.unwrap_or_else(|| PathBuf::from(".")).join("platter")
}
