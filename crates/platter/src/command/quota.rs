//! `platter quota`.

use std::process::ExitCode;

use platter_jobs::{ImageName, OpenStore, StoreLocation};
use serde_json::json;

use super::Outcome;
use crate::arguments::Quota;
use crate::output::{Output, table};
use crate::sizes::bytes;

pub(crate) fn run(store: &StoreLocation, options: &Quota, output: &Output) -> Outcome {
    let opened = OpenStore::open_reader(store)?;
    match options {
        Quota::List => list(&opened, output),
        Quota::Set { prefix, size } => set(&opened, prefix, Some(*size), output),
        Quota::Remove { prefix } => set(&opened, prefix, None, output),
    }
}

fn set(store: &OpenStore, prefix: &ImageName, limit: Option<u64>, output: &Output) -> Outcome {
    let before = store.set_quota(prefix, limit)?.map(|quota| quota.limit_bytes);
    let fact = json!({ "prefix": prefix, "limit_bytes": limit, "limit_bytes_before": before });
    output.fact(&fact, || match limit {
        Some(limit) => format!("quota of {prefix}: {}", bytes(limit)),
        None => format!("{prefix} has no quota any more"),
    });
    Ok(ExitCode::SUCCESS)
}

fn list(store: &OpenStore, output: &Output) -> Outcome {
    let quotas = store.quotas()?;
    if output.is_json() {
        quotas.iter().for_each(|quota| output.fact(quota, String::new));
    } else if quotas.is_empty() {
        output.fact(&json!(null), || "there are no quotas".into());
    } else {
        let mut rows = vec![["PREFIX", "USED", "LIMIT"].map(String::from).to_vec()];
        rows.extend(quotas.iter().map(|listed| {
            let quota = &listed.quota;
            vec![quota.prefix.to_string(), bytes(listed.used_bytes), bytes(quota.limit_bytes)]
        }));
        output.fact(&json!(null), || table(&rows));
    }
    Ok(ExitCode::SUCCESS)
}
