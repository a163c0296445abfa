//! `platter diff`.

use std::process::ExitCode;

use platter_browse::{FileLocation, PartitionName};
use platter_jobs::{
    DiffEvent, DiffPartition, DiffPlace, DiffReport, DiffRequest, Error, FileChange, PartitionDifference,
    PathDifference, StoreLocation, diff,
};

use super::Outcome;
use crate::arguments::Diff;
use crate::output::{EXIT_CORRUPT, EXIT_DIFFERENT, Output};
use crate::sizes::bytes;

pub(crate) fn run(store: &StoreLocation, options: &Diff, output: &Output) -> Outcome {
    let (first, second) = (&options.first, &options.second);
    let places = match [place(first)?, place(second)?] {
        [None, None] => None,
        [Some(first), Some(second)] => Some([first, second]),
        // The usage refuses one of them.
        _ => return Err(Error::bug("one version, and a place in another one")),
    };
    let blocks = options.blocks;
    let (a, b) = (first.version.clone(), second.version.clone());
    let request = DiffRequest { store: store.clone(), a, b, places, blocks };
    let report = diff(&request, &mut |event| output.fact(event, || event_text(event)))?;
    output.fact(&report, || text(&report, options.blocks));
    Ok(match () {
        () if report.unreadable > 0 => ExitCode::from(EXIT_CORRUPT),
        () if report.differs => ExitCode::from(EXIT_DIFFERENT),
        () => ExitCode::SUCCESS,
    })
}

/// A place in a version, if one is named.
fn place(location: &FileLocation) -> Result<Option<DiffPlace>, Error> {
    let Some(path) = location.path.clone() else { return Ok(None) };
    let partition = match &location.partition {
        None => DiffPartition::Only,
        Some(PartitionName::WholeDisk) => DiffPartition::WholeDisk,
        Some(PartitionName::Number(number)) => DiffPartition::Number(*number),
        Some(PartitionName::Volume(volume)) => {
            return Err(Error::refused(format!(
                "{location}: diff does not read logical volumes such as {volume}; it compares the partitions that they are in \
                 block by block: write {}",
                location.version
            )));
        }
    };
    Ok(Some(DiffPlace { partition, path }))
}

fn event_text(event: &DiffEvent) -> String {
    match event {
        DiffEvent::Note { note } => format!("# {note}"),
        DiffEvent::Blocks { offset, length, a, b } => format!("{offset:>14} {length:>12}  {a} -> {b}"),
        DiffEvent::Path(path) => path_text(path),
        DiffEvent::Partition(partition) => partition_text(partition),
    }
}

fn path_text(path: &PathDifference) -> String {
    let mark = match path.change {
        FileChange::Added => "A",
        FileChange::Removed => "D",
        FileChange::Modified => "M",
        FileChange::Unreadable => "!",
    };
    let partition = path.partition.map_or(String::new(), |number| format!("{number}:"));
    let named = path.what.iter().map(|what| match *what {
        // Whole pieces of a file are compared.
        "contents" if path.changed_bytes > 0 => {
            format!("contents: up to {} differ", bytes(path.changed_bytes))
        }
        what => what.to_owned(),
    });
    let mut what: Vec<String> = named.collect();
    what.extend(path.reason.clone());
    let what = if what.is_empty() { String::new() } else { format!(" ({})", what.join(", ")) };
    format!("{mark} {partition}{}{what}", path.path)
}

fn partition_text(partition: &PartitionDifference) -> String {
    let place = match partition.partition {
        Some(number) => format!("partition {number}"),
        None if partition.filesystem == "unallocated" => "outside of partitions".into(),
        None => "disk".into(),
    };
    let kind = match partition.filesystem.as_str() {
        "" | "unallocated" => String::new(),
        filesystem => format!(" ({filesystem})"),
    };
    let changed = match (partition.changed_bytes, partition.by_files) {
        (Some(0), _) => "equal".into(),
        (Some(changed), true) if !partition.differs => {
            format!(
                "{} in different blocks of metadata, or of what is not compared (see --help)",
                bytes(changed)
            )
        }
        (Some(changed), true) => format!("{} in different blocks", bytes(changed)),
        (Some(changed), false) => format!("{} differ (compared by blocks only)", bytes(changed)),
        (None, _) => "at another place on the disk".into(),
    };
    let counts = [
        (partition.added, "added"),
        (partition.removed, "removed"),
        (partition.modified, "modified"),
        (partition.unreadable, "unreadable"),
    ];
    let counted = counts.iter().filter(|(count, _)| *count > 0);
    let files: String = counted.map(|(count, what)| format!(", {count} {what}")).collect();
    let notes: String = partition.notes.iter().map(|note| format!("; {note}")).collect();
    format!("# {place}{kind}: {changed}{files}{notes}")
}

fn text(report: &DiffReport, blocks: bool) -> String {
    if report.score_a == report.score_b && report.new_blocks.is_some() {
        return format!("# {} and {} are the same disk", report.a, report.b);
    }
    let verdict = match (report.differs, blocks) {
        (true, _) => "differ",
        (false, true) => "do not differ",
        (false, false) => "do not differ in what was compared",
    };
    let verdict = format!("# {} and {} {verdict}", report.a, report.b);
    let (Some(new_blocks), Some(new_bytes)) = (report.new_blocks, report.new_bytes) else { return verdict };
    format!(
        "{verdict}: {} of changed data, {} only in the first, {} only in the second\n# {new_blocks} blocks of the second \
         ({}) do not exist in the first",
        bytes(report.changed_bytes),
        bytes(report.only_a_bytes),
        bytes(report.only_b_bytes),
        bytes(new_bytes),
    )
}
