//! The filesystems that are compared, and how each is mounted and taken away.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::null;

/// A filesystem: the name of its column, and the command that mounts it, of `{from}`, `{at}` and `{aside}`.
struct Kind {
    name: &'static str,
    what: &'static str,
    needs_flag: Option<&'static str>,
    command: &'static [&'static str],
}

const UNCLOBBER: &str = "{unclobber}";

const KINDS: [Kind; 9] = [
    Kind {
        name: "native",
        what: "the directory itself",
        needs_flag: None,
        command: &[],
    },
    Kind {
        name: "bindfs",
        what: "bindfs, as packaged",
        needs_flag: None,
        command: &["bindfs", "{from}", "{at}"],
    },
    Kind {
        name: "fuse-overlayfs",
        what: "fuse-overlayfs, as packaged, over an empty lower directory",
        needs_flag: None,
        command: &[
            "fuse-overlayfs",
            "-o",
            "lowerdir={aside}/lower,upperdir={from},workdir={aside}/work",
            "{at}",
        ],
    },
    Kind {
        name: "null",
        what: "the same requests answered from memory",
        needs_flag: None,
        command: &["{self}", "null", "{at}"],
    },
    Kind {
        name: "guard",
        what: "unclobber, guard enforced",
        needs_flag: None,
        command: &[UNCLOBBER, "mount", "--owner", "bench", "{from}", "{at}"],
    },
    Kind {
        name: "off",
        what: "unclobber, level off everywhere",
        needs_flag: Some("--rule"),
        command: &[
            UNCLOBBER, "mount", "--owner", "bench", "--rule", "off:**", "{from}", "{at}",
        ],
    },
    Kind {
        name: "observe",
        what: "unclobber --mode observe",
        needs_flag: None,
        command: &[
            UNCLOBBER, "mount", "--owner", "bench", "--mode", "observe", "{from}", "{at}",
        ],
    },
    Kind {
        name: "daemon",
        what: "unclobber without passthrough",
        needs_flag: Some("--passthrough"),
        command: &[
            UNCLOBBER,
            "mount",
            "--owner",
            "bench",
            "--passthrough",
            "off",
            "{from}",
            "{at}",
        ],
    },
    Kind {
        name: "strict",
        what: "unclobber --cache strict",
        needs_flag: Some("--cache"),
        command: &[
            UNCLOBBER, "mount", "--owner", "bench", "--cache", "strict", "{from}", "{at}",
        ],
    },
];

/// The names of all of them.
pub(crate) fn names() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

/// What a column is.
pub(crate) fn meaning(name: &str) -> &'static str {
    KINDS.iter().find(|kind| kind.name == name).map_or("", |kind| kind.what)
}

/// Which of them this machine and this program have; says aloud which are left out, and why.
pub(crate) fn available(
    only: &[String],
    unclobber: &Path,
    say: &mut dyn FnMut(String),
) -> io::Result<Vec<&'static str>> {
    let help = Command::new(unclobber).args(["mount", "--help"]).output()?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let mut found = Vec::new();
    for kind in &KINDS {
        let asked = only.is_empty() || kind.name == "native" || only.iter().any(|name| name == kind.name);
        if !asked {
            continue;
        }
        if let Some(flag) = kind.needs_flag.filter(|flag| !help.contains(flag)) {
            say(format!("SKIPPED {}: this unclobber has no {flag}", kind.name));
        } else if let Some(tool) = kind
            .command
            .first()
            .filter(|tool| !tool.starts_with('{') && !on_path(tool))
        {
            say(format!("SKIPPED {}: {tool} is not installed", kind.name));
        } else {
            found.push(kind.name);
        }
    }
    Ok(found)
}

fn on_path(tool: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file()))
}

/// A filesystem that is mounted, over a directory of its own.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    at: PathBuf,
    server: Option<Child>,
    unclobber: Option<PathBuf>,
}

impl Place {
    /// Mounts `name` over a fresh directory below `root`.
    pub(crate) fn mount(name: &'static str, root: &Path, unclobber: &Path) -> io::Result<Self> {
        let kind = KINDS
            .iter()
            .find(|kind| kind.name == name)
            .ok_or(io::ErrorKind::NotFound)?;
        let base = root.join(name);
        let (from, aside) = (base.join("from"), base.join("aside"));
        let at = if kind.command.is_empty() {
            from.clone()
        } else {
            base.join("at")
        };
        for dir in [&from, &at, &aside.join("lower"), &aside.join("work")] {
            fs::create_dir_all(dir)?;
        }
        let fill = |word: &&str| {
            word.replace("{from}", &from.to_string_lossy())
                .replace("{at}", &at.to_string_lossy())
                .replace("{aside}", &aside.to_string_lossy())
                .replace(UNCLOBBER, &unclobber.to_string_lossy())
                .replace("{self}", &std::env::current_exe().unwrap_or_default().to_string_lossy())
        };
        let words: Vec<String> = kind.command.iter().map(fill).collect();
        let mut place = Self {
            name,
            at,
            server: None,
            unclobber: kind.command.contains(&UNCLOBBER).then(|| unclobber.to_owned()),
        };
        if let Some((program, args)) = words.split_first() {
            let mut command = Command::new(program);
            let said = base.join("said");
            command.args(args).stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(fs::File::create(&said)?);
            if name == "null" {
                // As all the others: in a session of its own, which on a busy core takes turns with that of the programs.
                unclobber::sys::pre_exec(&mut command, || Ok(unclobber::sys::setsid()?));
                place.server = Some(command.spawn()?);
            } else if !command.status()?.success() {
                let why = fs::read_to_string(&said).unwrap_or_default();
                return Err(io::Error::other(format!(
                    "cannot mount {name}: {}: {}",
                    words.join(" "),
                    why.trim()
                )));
            }
            place.wait_until(true)?;
        }
        Ok(place)
    }

    /// Where the workloads run.
    pub(crate) fn dir(&self) -> &Path {
        &self.at
    }

    /// Requests so far by kind, where the filesystem says.
    pub(crate) fn requests(&self) -> Option<BTreeMap<String, u64>> {
        if self.name == "null" {
            let root = fs::File::open(&self.at).ok()?;
            let text = unclobber::sys::get_xattr(&root, null::COUNTS.as_ref(), 4096).ok()?;
            let text = String::from_utf8(text).ok()?;
            let pairs = text.lines().filter_map(|line| line.split_once(' '));
            return Some(
                pairs
                    .filter_map(|(kind, n)| Some((kind.to_owned(), n.parse().ok()?)))
                    .collect(),
            );
        }
        serde_json::from_value(self.status()?.get("requests")?.clone()).ok()
    }

    /// How many refusals there were, enforced or recorded.
    pub(crate) fn refusals(&self) -> u64 {
        self.status()
            .and_then(|status| status.get("counts")?.get("refusals")?.as_u64())
            .unwrap_or(0)
    }

    fn status(&self) -> Option<serde_json::Value> {
        let output = Command::new(self.unclobber.as_ref()?)
            .args(["status", "--json"])
            .arg(&self.at)
            .output()
            .ok()?;
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        all.get("guards")?.get(0).cloned()
    }

    fn is_mounted(&self) -> bool {
        let here = self.at.to_string_lossy().into_owned();
        fs::read_to_string("/proc/self/mountinfo")
            .is_ok_and(|mounts| mounts.lines().any(|line| line.split(' ').nth(4) == Some(&here)))
    }

    fn wait_until(&self, mounted: bool) -> io::Result<()> {
        let began = Instant::now();
        while self.is_mounted() != mounted {
            if began.elapsed() > Duration::from_secs(10) {
                return Err(io::Error::other(format!(
                    "{} is not mounted or unmounted in time",
                    self.name
                )));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Takes it away with what it holds.
    pub(crate) fn unmount(mut self) -> io::Result<()> {
        if self.name != "native" {
            unclobber::sys::umount(&self.at, true).map_err(io::Error::other)?;
            self.wait_until(false)?;
        }
        if let Some(mut server) = self.server.take() {
            server.wait()?;
        }
        match self.at.parent() {
            Some(base) => fs::remove_dir_all(base),
            None => Ok(()),
        }
    }
}
