//! `platter ls`.

use std::process::ExitCode;

use platter_browse::{FileEntry, PartitionEntry, list, partition_name, partitions};
use platter_jobs::{Error, StoreLocation};

use super::Outcome;
use super::images::time;
use crate::arguments::Ls;
use crate::file_names::FileNames;
use crate::output::{Output, table};
use crate::sizes::bytes;

pub(crate) fn run(store: &StoreLocation, options: &Ls, output: &Output) -> Outcome {
    if options.location.path.is_none() {
        let found = partitions(store, &options.location.version)?;
        if output.is_json() {
            found.iter().for_each(|partition| output.fact(partition, String::new));
        } else {
            output.fact(&(), || partition_table(&found));
        }
        let damaged = found.iter().filter_map(|partition| partition.damage.clone());
        return Ok(damaged.fold(ExitCode::SUCCESS, |_, damage| output.fail(&Error::corrupt(damage))));
    }
    let names = FileNames::new(options.print0);
    let mut code = ExitCode::SUCCESS;
    list(store, &options.location, &mut |found| match found {
        Ok(entry) => output.bytes(&entry, || {
            names.line(if options.long { long(&entry, names) } else { names.shown(&entry.name) })
        }),
        Err(error) => code = output.fail(&error),
    })?;
    Ok(code)
}

fn partition_table(partitions: &[PartitionEntry]) -> String {
    let head = ["PARTITION", "OFFSET", "SIZE", "CONTENTS", "LABEL", "FILES"];
    let mut rows = vec![head.map(ToString::to_string).to_vec()];
    rows.extend(partitions.iter().map(|partition| {
        vec![
            partition_name(partition).to_string(),
            partition.offset.to_string(),
            bytes(partition.length),
            if partition.filesystem.is_empty() { "unknown".into() } else { partition.filesystem.clone() },
            partition.label.clone().unwrap_or_else(|| "-".into()),
            match partition {
                PartitionEntry { damage: Some(_), .. } => "damaged".to_owned(),
                PartitionEntry { is_readable: true, .. } => "yes".to_owned(),
                _ => "no".to_owned(),
            },
        ]
    }));
    table(&rows)
}

/// A line as `ls -ln` prints it.
fn long(entry: &FileEntry, names: FileNames) -> Vec<u8> {
    let time = time(entry.mtime.saturating_mul(1000));
    let line = format!(
        "{}{} {:>3} {:>6} {:>6} {:>12} {time} ",
        entry.kind.letter(),
        permissions(entry.mode),
        entry.links,
        entry.uid,
        entry.gid,
        entry.size,
    );
    let mut line = [line.as_bytes(), &names.shown(&entry.name)].concat();
    if let Some(target) = &entry.target {
        line.extend_from_slice(b" -> ");
        line.extend(names.shown(target));
    }
    line
}

fn permissions(mode: u16) -> String {
    let mut text = String::new();
    for (shift, special, set, unset) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_as_ls_prints_them() {
        let cases = [
            (0o755, "rwxr-xr-x"),
            (0o4755, "rwsr-xr-x"),
            (0o2644, "rw-r-Sr--"),
            (0o1777, "rwxrwxrwt"),
            (0, "---------"),
        ];
        for (mode, text) in cases {
            assert_eq!(permissions(mode), text);
        }
    }
}
