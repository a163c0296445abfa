//! Reads the tree: its text files, and the crates with their dependencies. All calls to git and cargo are
//! here; it must never check rules.

use std::path::Path;
use std::process::Command;

/// A file of the project. Files that are not UTF-8 are skipped.
pub(super) struct TextFile {
    /// Path from the root, with `/` as separator.
    pub(super) path: String,
    /// The whole contents.
    pub(super) text: String,
}

/// A crate of the workspace, as its manifest declares it.
pub(super) struct Crate {
    /// Package name (`platter-image`).
    pub(super) name: String,
    /// Folder below `crates/` (`image`).
    pub(super) folder: String,
    /// Every dependency of any kind, target or feature: its name, and whether only tests use it.
    pub(super) dependencies: Vec<(String, bool)>,
}

/// Larger files are data and are not checked.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Every file that git tracks or would track, so that a new file is checked before it is committed.
pub(super) fn text_files(root: &Path) -> Result<Vec<TextFile>, String> {
    let listed = output(root, "git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let mut files = Vec::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        let full = root.join(path);
        let is_text_sized = full.symlink_metadata().is_ok_and(|m| m.is_file() && m.len() <= TEXT_BYTES_MAX);
        if !is_text_sized {
            continue;
        }
        let bytes = std::fs::read(&full).map_err(|e| format!("{path}: cannot be read: {e}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

/// The workspace's crates, from `cargo metadata`.
pub(super) fn crates(root: &Path) -> Result<Vec<Crate>, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let json = output(root, &cargo, &["metadata", "--no-deps", "--offline", "--format-version", "1"])?;
    let metadata: serde_json::Value =
        serde_json::from_str(&json).map_err(|e| format!("cargo metadata: not the JSON expected: {e}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata: no packages")?;
    packages.iter().map(read_crate).collect()
}

fn read_crate(package: &serde_json::Value) -> Result<Crate, String> {
    let name = package["name"].as_str().ok_or("cargo metadata: a package without a name")?.to_owned();
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let folder = Path::new(manifest)
        .parent()
        .and_then(Path::file_name)
        .map(|folder| folder.to_string_lossy().into_owned())
        .ok_or_else(|| format!("cargo metadata: {name} has no folder"))?;
    let dependencies = package["dependencies"]
        .as_array()
        .map(|list| {
            list.iter()
                .filter_map(|d| Some((d["name"].as_str()?.to_owned(), d["kind"].as_str() == Some("dev"))))
                .collect()
        })
        .unwrap_or_default();
    Ok(Crate { name, folder, dependencies })
}

fn output(root: &Path, program: &str, arguments: &[&str]) -> Result<String, String> {
    let run = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|e| format!("{program}: cannot be run: {e}"))?;
    if !run.status.success() {
        return Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&run.stderr)));
    }
    String::from_utf8(run.stdout).map_err(|_| format!("{program}: its output is not UTF-8"))
}
