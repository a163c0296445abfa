//! `platter check`.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use platter_daemon::AccessTokens;
use platter_jobs::{
    CheckOptions, CheckReport, ErrorKind, Finding, Home, ImageCosts, Progress, Severity, Standing, Store,
    StoreLocation, Verdict,
};
use platter_live::overlay_bases;
use serde_json::{Value, json};

use super::Outcome;
use super::images::time;
use crate::arguments::Check;
use crate::output::{EXIT_CORRUPT, Output, exit_code};
use crate::sizes::{bytes, count};
use crate::terminal::Terminal;

/// So many images are named with what forgetting them would free.
const COSTS_SHOWN: usize = 5;
/// A check of a store with more versions does not count what forgetting images would free.
const COSTS_VERSIONS_MAX: usize = 1000;

pub(crate) fn run(store: &StoreLocation, options: &Check, output: &Output) -> Outcome {
    let store = Store::open_reader(store.local("checking a store")?)?;
    if options.fix_modes {
        let count = store.place().close_to_others()?.count;
        if count > 0 {
            output.note(&format!("removed other users' permissions from {count} files and directories"));
        }
    }
    let terminal = Terminal::new(*output);
    let mut done = None;
    let unless_read_since_unix_ms = options.unless_read_within.map(|time| {
        let since =
            SystemTime::now().checked_sub(time).and_then(|since| since.duration_since(UNIX_EPOCH).ok());
        since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    });
    let checked = CheckOptions { read_data: options.read_data, unless_read_since_unix_ms };
    let bases = || overlay_bases(store.place().dir());
    let mut report = store.check_with_roots(checked, &bases, &mut |now| {
        if done.is_none() {
            terminal.begin("checking", now.total);
        }
        terminal.advance(now.done - done.unwrap_or(0));
        done = Some(now.done);
    })?;
    drop(terminal);
    let standing = store.standing()?;
    let tokens = match AccessTokens::of(store.place()).list() {
        Ok(_) => None,
        Err(error) if error.is_damage() => Some(error.with_causes()),
        Err(error) => return Err(error),
    };
    if let Some(damage) = &tokens {
        report.verdict = Verdict::Damaged;
        report.findings.push(Finding::new(Severity::Damage, damage.clone()));
    }
    let mut fact = json(&report);
    fact["access_tokens"] = json!(tokens);
    fact["role"] = json!(standing.summary());
    let home = store.home();
    fact["home"] = json!(home);
    let costs = costs(&store, &report);
    fact["costs"] = json!(costs.as_ref().ok());
    fact["costs_not_counted"] = json!(costs.as_ref().err());
    output.fact(&fact, || {
        let mut lines: Vec<String> = home.as_ref().and_then(Home::warning).into_iter().collect();
        if !matches!(standing, Standing::Origin { epoch: 0, .. }) {
            lines.push(standing.summary());
        }
        lines.push(text(&report, options.read_data));
        lines.push(match &costs {
            Ok(costs) => only_here(costs),
            Err(why) => format!("what forgetting an image would free was not counted: {why}"),
        });
        lines.retain(|line| !line.is_empty());
        lines.join("\n")
    });
    Ok(match report.verdict {
        Verdict::Damaged => ExitCode::from(EXIT_CORRUPT),
        // As for every command that needs the key.
        Verdict::Locked => ExitCode::from(exit_code(ErrorKind::Refused)),
        Verdict::Clean | Verdict::Exposed | Verdict::Leaks => ExitCode::SUCCESS,
    })
}

/// Counts what each image costs, or returns why not.
fn costs(store: &Store, report: &CheckReport) -> Result<ImageCosts, String> {
    if report.locked {
        return Err("the store is locked".into());
    }
    if report.versions > COSTS_VERSIONS_MAX {
        let versions = report.versions;
        return Err(format!("the store has {versions} versions, and `platter images --costs` counts them"));
    }
    // Counting reads the recipe of each image again, and damaged ones cannot be counted.
    store.image_costs().map_err(|error| error.with_causes())
}

/// Which images have most bytes for themselves; empty if none has any.
fn only_here(costs: &ImageCosts) -> String {
    let all = costs.images.iter().map(|cost| (cost.exclusive_bytes, &cost.image));
    let mut images: Vec<_> = all.filter(|(only, _)| *only > 0).collect();
    images.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
    let shown: Vec<String> =
        images.iter().take(COSTS_SHOWN).map(|(only, image)| format!("{image} {}", bytes(*only))).collect();
    let more = images.len().saturating_sub(COSTS_SHOWN) as u64;
    let more = if more > 0 { format!(", and {}", count(more, "more image")) } else { String::new() };
    match shown.is_empty() {
        true => String::new(),
        false => format!(
            "forgetting an image would free: {}{more} (`platter images --costs`); in several images: {}",
            shown.join(", "),
            bytes(costs.shared_bytes)
        ),
    }
}

fn verdict(report: &CheckReport) -> &'static str {
    match report.verdict {
        Verdict::Clean => "clean",
        Verdict::Exposed => "exposed",
        Verdict::Leaks => "leaks",
        Verdict::Locked => "locked",
        Verdict::Damaged => "damaged",
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Exposure => "exposed",
        Severity::Leak => "leak",
        Severity::Damage => "damage",
    }
}

fn json(report: &CheckReport) -> Value {
    json!({
        "verdict": verdict(report),
        "packs": report.packs,
        "pack_bytes": report.pack_bytes,
        "trash_packs": report.health.trash.packs,
        "trash_bytes": report.health.trash.bytes,
        "frames": report.frames,
        "blocks": report.blocks,
        "versions": report.versions,
        "locked": report.locked,
        "all_read_since_unix_ms": report.health.all_read_since_unix_ms,
        "quarantined_frames": report.health.quarantined_frames,
        "quarantined_blocks": report.health.quarantined_blocks,
        "never_read_back_packs": report.health.never_read_back.packs,
        "never_read_back_bytes": report.health.never_read_back.bytes,
        "oldest_read_back_unix_ms": report.health.oldest_read_back_unix_ms,
        "hint": has_lost(report).then_some(HINT),
        "findings_omitted": report.omitted,
        "findings": report.findings.iter().map(finding_json).collect::<Vec<_>>(),
    })
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "severity": severity(finding.severity),
        "what": finding.what,
        "pack": finding.pack.map(|pack| pack.to_string()),
        "offset": finding.offset,
        "block": finding.block.map(|block| block.to_string()),
        "frames": finding.frames,
        "blocks": finding.blocks,
        "bytes": finding.bytes,
        "versions": finding.versions.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// How to repair what a finding of damage lost.
const HINT: &str = "to repair, run `platter heal --from WHERE` with another store, an origin, a node's cache or a disk that has the data, or \
                    capture the same disk again; to save the readable part, use `platter export --holes`";

/// Whether something that is needed is lost, and not merely to be written again.
fn has_lost(report: &CheckReport) -> bool {
    let is_lost = |finding: &Finding| finding.blocks > 0 || !finding.versions.is_empty();
    report.findings.iter().any(|finding| finding.severity == Severity::Damage && is_lost(finding))
}

/// The damaged versions and how to repair them; empty if nothing is lost.
fn damaged_versions(report: &CheckReport) -> String {
    let damaged: BTreeSet<String> =
        report.findings.iter().flat_map(|finding| &finding.versions).map(ToString::to_string).collect();
    let named = match damaged.len() {
        0 => String::new(),
        length => {
            let names = damaged.into_iter().collect::<Vec<_>>().join(", ");
            format!("damaged: {}: {names}\n", count(length as u64, "version"))
        }
    };
    if has_lost(report) { format!("{named}{HINT}\n") } else { named }
}

fn text(report: &CheckReport, read_data: bool) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        text += match finding.severity {
            Severity::Exposure => "exposed ",
            Severity::Leak => "leak    ",
            Severity::Damage => "DAMAGE  ",
        };
        text += &finding.what;
        if let Some(pack) = finding.pack {
            text += &format!(", pack {pack}");
        }
        if let Some(offset) = finding.offset {
            text += &format!(", at {offset}");
        }
        if let Some(block) = finding.block {
            text += &format!(", block {block}");
        }
        if finding.blocks > 1 {
            text += &format!(", {}", count(finding.blocks, "block"));
        }
        if finding.bytes > 0 {
            text += &format!(", {}", bytes(finding.bytes));
        }
        if !finding.versions.is_empty() {
            let names: Vec<String> = finding.versions.iter().map(ToString::to_string).collect();
            text += &format!("; damages {}", names.join(", "));
        }
        text += "\n";
    }
    if report.omitted > 0 {
        text += &format!("{} more findings are not listed\n", report.omitted);
    }
    text += &damaged_versions(report);
    text += &format!(
        "{}, {}, {}, {}: {}",
        count(report.versions as u64, "version"),
        count(report.packs as u64, "pack"),
        count(report.frames as u64, "frame"),
        count(report.blocks as u64, "block"),
        verdict(report),
    );
    if report.locked {
        let read =
            if read_data { "of contents only checksums were verified" } else { "contents were not read" };
        text += &format!(
            "\nthe store is encrypted and locked, so this says nothing about what only the key opens: recipes were not read, and {read}; \
             --unlock-file or --unlock-command opens it"
        );
    }
    if report.verdict == Verdict::Clean && !read_data {
        text += " (contents were not read; --read-data reads them)";
    }
    if report.health.trash.packs > 0 {
        let trash = count(report.health.trash.packs as u64, "pack");
        text += &format!(
            "\ntrash: {} in {trash}: `platter gc` deletes them after a while",
            bytes(report.health.trash.bytes)
        );
    }
    let never = report.health.never_read_back;
    if never.packs > 0 {
        text +=
            &format!("\nnever read back: {} in {}", bytes(never.bytes), count(never.packs as u64, "pack"));
    }
    if let Some(oldest) = report.health.oldest_read_back_unix_ms {
        text += &format!("\noldest read-back of a pack: {}", time(oldest));
    }
    text
}
