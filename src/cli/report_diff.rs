//! What a stale refusal in the report of a `run` was about: what has changed since the command's owner read the file.
//!
//! Content goes into a report only if nobody but its owner may read the report.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::control::{Client, PathText, WhyRequest};
use crate::fs::Operation;

/// Files asked about, at most.
const MOST: usize = 20;
/// Permission bits of anybody but the owner.
const OTHERS: u32 = 0o077;

/// Adds the differences to the refusals of `owner`, where the owner has not read the file since.
pub(crate) fn add_differences(report: &mut Value, owner: &str, path: &Path, client: &mut Client) {
    let is_private = fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & OTHERS == 0);
    let Some(owners) = report["owners"].as_array_mut().filter(|_| is_private) else {
        return;
    };
    let own = owners.iter_mut().filter(|found| found["owner"] == owner);
    let refusals = own.filter_map(|found| found["refusals"].as_array_mut()).flatten();
    let stale = refusals.filter(|refusal| refusal["code"] == "FS_STALE_VERSION");
    for refusal in stale.take(MOST) {
        if let Some(difference) = difference(refusal, client) {
            refusal["difference"] = difference;
        }
    }
}

fn difference(refusal: &Value, client: &mut Client) -> Option<Value> {
    let names = refusal["path"].as_str()?.split('/');
    let operation = match refusal["operation"].as_str()? {
        "unlink" | "rename" => Operation::Remove,
        _ => Operation::Write,
    };
    let request = WhyRequest {
        path: names.map(|name| PathText::Text(name.to_owned())).collect(),
        owner: None,
        operation,
        mount: None,
        difference: true,
    };
    match client.why(request) {
        Ok(Ok(answer)) => {
            let view = answer.explanation.views.first()?;
            Some(json!(view.difference.as_ref()?))
        }
        Ok(Err(_)) => None,
        Err(error) => {
            log::debug!("no difference for the report: {error}");
            None
        }
    }
}
