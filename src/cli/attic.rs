//! `unclobber attic`: what the guard has kept of a directory: listed, shown, compared, brought back, dropped.
//!
//! Works on the backing directory, with the rights of whoever calls it, whether or not a guard runs. It never works on an
//! unclobber mount, where one owner would get at what another's change displaced, and it never replaces anything.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::args::{AtticArgs, AtticCommand, AtticPruneArgs, AtticRestoreArgs};
use super::guarding;
use super::output::{Problem, Style, counted, note, print, print_file};
use super::place::{self, Place};
use super::reader::directory_to_name;
use super::why_screen::shell_word;
use crate::clock;
use crate::control::{Client, PathText, Surroundings, WhyRequest};
use crate::fs::Operation;
use crate::guard::OUTSIDE;
use crate::store::{HOMELESS, Kept, KeptFiles, KeptInfo, Restored, StoreError, UNDO, descend, descend_again};
use crate::sys::{self, consts};

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Does what is asked of the attic.
pub(crate) fn attic(args: &AtticArgs) -> Result<ExitCode, Problem> {
    match &args.command {
        AtticCommand::List(args) => list(args.dir.as_deref(), args.json)?,
        AtticCommand::Show(args) => {
            let attic = Attic::open_or_above(args.workspace.as_deref())?;
            let kept = attic.find(&args.id)?;
            print_file(attic.open_file(&kept)?)?;
        }
        AtticCommand::Diff(args) => {
            let attic = Attic::open_or_above(args.workspace.as_deref())?;
            diff(&attic, &attic.find(&args.id)?)?;
        }
        AtticCommand::Restore(args) => restore(args)?,
        AtticCommand::Prune(args) => prune(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The attic of a directory, which may have none.
pub(super) struct Attic {
    pub(super) place: Place,
    files: Option<KeptFiles>,
}

/// A name to restore to.
struct Target {
    dir: OwnedFd,
    name: OsString,
    shown: String,
    /// As it is noted: below the root of the tree, or as the user gave it.
    path: OsString,
}

impl Attic {
    pub(super) fn open(dir: Option<&Path>) -> Result<Self, Problem> {
        let place = place::resolve(dir.unwrap_or_else(|| Path::new(".")))?;
        if let Some(guarded) = &place.guarded {
            let point = guarded.mount.point.display();
            return Err(Problem::new(
                format!("no way to the attic from {}", place.path.display()),
                format!("it is on the unclobber mount at {point}, where nobody gets at what another owner's change displaced"),
            )
            .hint(format!(
                "run this outside `unclobber run`; if the directory is mounted over itself for everybody, unmount it first: unclobber umount {point}"
            )));
        }
        let files = KeptFiles::open(&place.fd).map_err(|error| cannot_read(&place.path, &error))?;
        Ok(Self { place, files })
    }

    /// The same of a directory below the guarded one: the attic of that, which is said.
    fn open_or_above(dir: Option<&Path>) -> Result<Self, Problem> {
        let attic = Self::open(dir)?;
        let Some(above) = attic.above() else { return Ok(attic) };
        note(&format!(
            "no attic in {}: this is that of {}, the nearest directory above which has one",
            attic.place.path.display(),
            above.display()
        ));
        Self::open(Some(&above))
    }

    /// The nearest directory above with an attic, where this has none and no guard of its own.
    pub(super) fn above(&self) -> Option<PathBuf> {
        let guarded =
            || guarding::id_of(&self.place).is_ok_and(|id| Client::find(&Surroundings::real(), &id).is_some());
        if self.files.is_some() || guarded() {
            return None;
        }
        let has_one = |above: &&Path| {
            let found = place::resolve(above).ok().filter(|place| place.guarded.is_none());
            found.is_some_and(|place| matches!(KeptFiles::open(&place.fd), Ok(Some(_))))
        };
        self.place.path.ancestors().skip(1).find(has_one).map(Path::to_owned)
    }

    fn files(&self) -> Result<&KeptFiles, Problem> {
        self.files.as_ref().ok_or_else(|| {
            Problem::new(
                format!("no attic in {}", self.place.path.display()),
                "nothing is kept there",
            )
            .hint("name the guarded directory itself: -w DIR")
        })
    }

    /// What is kept, the oldest first, and the lines of the journal that cannot be read.
    pub(super) fn list(&self) -> Result<(Vec<Kept>, Vec<usize>), Problem> {
        let Some(files) = &self.files else {
            return Ok((Vec::new(), Vec::new()));
        };
        let found = files.list().map_err(|error| cannot_read(&self.place.path, &error))?;
        Ok((found.kept, found.unreadable_lines))
    }

    /// A command of the attic up to its id, as it works where this was called.
    pub(super) fn command(&self, word: &str) -> String {
        let option = if word == "list" { "" } else { "-w " };
        match directory_to_name(&self.place.path) {
            Some(directory) => format!("unclobber attic {word} {option}{}", shell_word(&directory)),
            None => format!("unclobber attic {word}"),
        }
    }

    /// The one kept file whose id begins so.
    fn find(&self, id: &str) -> Result<Kept, Problem> {
        self.files()?;
        let list = || format!("`{}` shows what is kept", self.command("list"));
        let what = || format!("cannot use {id:?}");
        let mut found: Vec<Kept> = self.list()?.0;
        found.retain(|kept| kept.id.starts_with(id));
        match (found.pop(), found.is_empty()) {
            (Some(kept), true) if kept.file.is_some() => Ok(kept),
            (Some(_), true) => {
                Err(Problem::new(what(), "only the note of it is left, its content has gone").hint(list()))
            }
            (Some(_), false) => Err(Problem::new(what(), "several ids begin so").hint("give more of the id")),
            (None, _) => Err(Problem::new(what(), "no kept file has this id").hint(format!("{}, with ids", list()))),
        }
    }

    fn open_file(&self, kept: &Kept) -> Result<File, Problem> {
        let what = || format!("cannot read {}", kept.id);
        if kept.file.is_some_and(|file| !file.is_file()) {
            let restore = format!("`{} {}` brings it back", self.command("restore"), kept.id);
            return Err(Problem::new(what(), "it is no regular file").hint(restore));
        }
        match self.files()?.open_file(&kept.id) {
            Ok(file) => Ok(File::from(file)),
            Err(error) => Err(tell(what(), &error)),
        }
    }

    /// The name a file was kept from; with `make`, directories that have gone are made again.
    fn old_place(&self, kept: &Kept, make: bool) -> Result<Target, Problem> {
        let what = || format!("cannot tell where {} was", kept.id);
        let to = format!("give a place: {} {} --to PATH", self.command("restore"), kept.id);
        let to = to.as_str();
        let Some(noted) = &kept.note else {
            return Err(Problem::new(what(), "nothing was noted about it").hint(to));
        };
        let mut names = plain_names(noted.real_path())
            .ok_or_else(|| Problem::new(what(), format!("the note says {:?}", noted.path)).hint(to))?;
        let name = names
            .pop()
            .ok_or_else(|| Problem::new(what(), "the note names no file").hint(to))?;
        let cannot = |error| tell(format!("cannot reach the directory of {}", plain(&noted.path)), &error).hint(to);
        let dir = if make {
            let owner = kept.file.as_ref().map_or((0, 0), |file| (file.uid, file.gid));
            let (dir, private) = descend_again(&self.place.fd, &names, &noted.dirs, owner).map_err(cannot)?;
            for made in private {
                let made = plain(&made.to_string_lossy());
                note(&format!(
                    "the directory {made} was made again with mode 0700: what it had is not known, or cannot be given"
                ));
            }
            dir
        } else {
            descend(&self.place.fd, &names).map_err(cannot)?
        };
        Ok(Target {
            dir,
            name,
            shown: noted.path.clone(),
            path: noted.real_path().to_owned(),
        })
    }

    /// Brings a file back to where it was; says where.
    pub(super) fn restore_in_place(&self, kept: &Kept) -> Result<String, Problem> {
        let target = self.old_place(kept, true)?;
        self.restore(kept, &target)
    }

    /// Undoes a change: brings a file back to where it was. What a replacement has put there takes its place in the attic.
    ///
    /// `all` is what the attic holds: it may tell of changes of others since.
    pub(super) fn undo(&self, kept: &Kept, all: &[Kept]) -> Result<String, Problem> {
        let operation = kept.note.as_ref().map_or("", |noted| &noted.operation);
        let replaced = match operation {
            "open" | "truncate" | "rename" => true,
            // Removed to be made anew, as some tools replace a file: unless it is known to be somebody else who made it.
            "unlink" => self.changed_since(kept, all).is_none(),
            _ => false,
        };
        if !replaced || kept.file.is_none_or(|file| !file.is_file()) {
            return self.restore_in_place(kept);
        }
        let target = self.old_place(kept, true)?;
        let later = self.changed_since(kept, all);
        match self
            .files()?
            .exchange(&kept.id, &target.dir, &target.name, &target.path)
        {
            Ok(id) => {
                let (shown, show) = (plain(&target.shown), self.command("show"));
                Ok(match later {
                    Some(by) => format!(
                        "restored {shown}; what was there, changed since then by {by}, is NOT in it any more, and kept as {id} \
                         (`{show} {id}`)"
                    ),
                    None => format!("restored {shown}; what was there is kept as {id}"),
                })
            }
            // Nothing is there, or nothing that can be exchanged: nothing has been changed yet.
            Err(error)
                if [consts::ENOENT, consts::EISDIR, consts::EXDEV, consts::EINVAL]
                    .into_iter()
                    .any(|errno| error.is(errno)) =>
            {
                self.restore(kept, &target)
            }
            Err(error) => Err(tell(format!("cannot restore {}", plain(&target.shown)), &error)),
        }
    }

    /// Who else than the owner whose change displaced this has changed the path after that, as far as it is known: what the
    /// attic tells, and the guard if it runs.
    fn changed_since(&self, kept: &Kept, all: &[Kept]) -> Option<String> {
        let noted = kept.note.as_ref()?;
        let of_others = |later: &&KeptInfo| {
            later.real_path() == noted.real_path()
                && later.id > noted.id
                && later.owner != noted.owner
                && later.operation != UNDO
        };
        let displaced = all.iter().filter_map(|kept| kept.note.as_ref()).rfind(of_others);
        self.last_changed_by(noted.real_path())
            .filter(|by| *by != noted.owner)
            .or_else(|| displaced.map(|later| later.owner.clone()))
            .map(|by| match by.as_str() {
                OUTSIDE => "somebody outside the mount".to_owned(),
                owner => format!("owner \"{}\"", plain(owner)),
            })
    }

    /// Who has changed a path last, as the guard tells it.
    fn last_changed_by(&self, path: &OsStr) -> Option<String> {
        let id = guarding::id_of(&self.place).ok()?;
        let mut client = Client::find(&Surroundings::real(), &id)?;
        let request = WhyRequest {
            path: plain_names(path)?.into_iter().map(PathText::from).collect(),
            owner: None,
            operation: Operation::default(),
            mount: None,
            difference: false,
        };
        let answer = client.why(request).ok()?.ok()?;
        Some(answer.explanation.views.last()?.changed.as_ref()?.by.clone())
    }

    fn restore(&self, kept: &Kept, target: &Target) -> Result<String, Problem> {
        let shown = plain(&target.shown);
        let what = || format!("cannot restore {} as {shown}", kept.id);
        match self.files()?.restore(&kept.id, &target.dir, &target.name) {
            Ok(Restored::Moved) => Ok(format!("restored {shown}")),
            Ok(Restored::Copied(failed)) => {
                for error in failed {
                    note(&format!("{shown} is without an attribute of the original: {error}"));
                }
                Ok(format!("copied to {shown}; the attic still has it"))
            }
            Err(error) if error.is(consts::EEXIST) => {
                let (diff, restore) = (self.command("diff"), self.command("restore"));
                Err(
                    Problem::new(what(), "something is there, and is left as it is").hint(format!(
                        "compare: {diff} {0}; restore elsewhere: {restore} {0} --to PATH",
                        kept.id
                    )),
                )
            }
            Err(error) => Err(tell(what(), &error)),
        }
    }

    /// Takes the empty attic away, unless a guard may be putting something there: that does so after its last mount.
    pub(super) fn tidy(self) {
        let in_use = guarding::id_of(&self.place).is_ok_and(|id| guarding::has_mounts(&id));
        if let (Some(files), false) = (self.files, in_use) {
            files.retire();
        }
    }
}

fn restore(args: &AtticRestoreArgs) -> Result<(), Problem> {
    let attic = Attic::open_or_above(args.workspace.as_deref())?;
    let kept = attic.find(&args.id)?;
    let done = match &args.to {
        Some(path) => attic.restore(&kept, &named_place(path)?),
        None => attic.restore_in_place(&kept),
    };
    print(&format!("{}\n", done?))?;
    attic.tidy();
    Ok(())
}

/// A place that the user names.
fn named_place(path: &Path) -> Result<Target, Problem> {
    let what = || format!("cannot restore to {}", path.display());
    let full = place::absolute(path)?;
    let (Some(parent), Some(name)) = (full.parent(), full.file_name()) else {
        return Err(Problem::new(what(), "it names no file").hint("give the name the file shall have"));
    };
    let dir = sys::open_path(parent, consts::O_PATH | consts::O_DIRECTORY)
        .map_err(|error| Problem::new(what(), place::cause(&error)).hint("name a file in a directory that exists"))?;
    Ok(Target {
        dir,
        name: name.to_owned(),
        shown: path.to_string_lossy().into_owned(),
        path: path.into(),
    })
}

fn diff(attic: &Attic, kept: &Kept) -> Result<(), Problem> {
    let old = attic.open_file(kept)?;
    let what = || format!("cannot compare {}", kept.id);
    let now = match attic.old_place(kept, false) {
        Ok(target) => present(&target)?,
        // A directory that has gone holds nothing.
        Err(_) if kept.note.is_some() => None,
        Err(problem) => return Err(problem),
    };
    let path = kept.note.as_ref().map_or("", |noted| &noted.path);
    let here = now.as_ref().map_or_else(
        || PathBuf::from("/dev/null"),
        |now| PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), now.as_raw_fd())),
    );
    let now_label = if now.is_some() {
        plain(path)
    } else {
        "/dev/null".to_owned()
    };
    let ended = Command::new("diff")
        .args([
            "-u",
            "--label",
            &format!("{} (kept)", plain(path)),
            "--label",
            &now_label,
            "-",
        ])
        .arg(here)
        .stdin(Stdio::from(old))
        .status()
        .map_err(|error| {
            Problem::new(what(), format!("diff: {error}")).hint("install diffutils, or use `attic show`")
        })?;
    // 1 says that they differ; a reader of the output that has gone away is no error.
    match ended.code() {
        Some(0 | 1) | None => Ok(()),
        Some(_) => Err(Problem::new(what(), "diff failed")),
    }
}

/// What is at a place now.
fn present(target: &Target) -> Result<Option<OwnedFd>, Problem> {
    let what = || format!("cannot compare with {}", plain(&target.shown));
    let found = match sys::open_child(&target.dir, &target.name) {
        Err(error) if error.errno() == consts::ENOENT => return Ok(None),
        other => other.map_err(|error| Problem::new(what(), place::cause(&error)))?,
    };
    let is_file = sys::stat(&found).is_ok_and(|stat| stat.is_file());
    if !is_file {
        return Err(
            Problem::new(what(), "it is no regular file now").hint("`unclobber attic show` prints what was kept")
        );
    }
    let file = sys::reopen(&found, consts::O_RDONLY);
    file.map(Some)
        .map_err(|error| Problem::new(what(), place::cause(&error)))
}

fn prune(args: &AtticPruneArgs) -> Result<(), Problem> {
    let attic = Attic::open(args.workspace.as_deref())?;
    let now = clock::now().sec;
    let bound = args.older_than.map(seconds);
    // Times are in whole seconds: 0 is everything, also what was kept within this one.
    let old = |kept: &&Kept| bound.is_none_or(|bound| bound == 0 || kept.at.is_some_and(|at| now - at > bound));
    if let Some(above) = attic.above() {
        note(&format!(
            "no attic in {}; there is one in {}, which is left as it is: name it to prune it, -w {}",
            attic.place.path.display(),
            above.display(),
            shell_word(&above)
        ));
    }
    let (all, _) = attic.list()?;
    let (mut count, mut bytes) = (0, 0_u64);
    for kept in all.iter().filter(old) {
        let dropped = attic.files()?.discard(&kept.id);
        dropped.map_err(|error| tell(format!("cannot drop {}", kept.id), &error))?;
        if let Some(file) = &kept.file {
            count += 1;
            bytes += file.size;
        }
    }
    print(&format!("dropped {}, {}\n", counted(count, "kept file"), size(bytes)))?;
    attic.tidy();
    Ok(())
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

fn list(dir: Option<&Path>, as_json: bool) -> Result<(), Problem> {
    let attic = Attic::open_or_above(dir)?;
    let (kept, unreadable) = attic.list()?;
    if as_json {
        let all = json!({
            "v": VERSION,
            "directory": attic.place.path.to_string_lossy(),
            "kept": kept.iter().map(to_json).collect::<Vec<_>>(),
            "unreadable_lines": unreadable,
        });
        let text = serde_json::to_string_pretty(&all).map_err(|error| Problem::new("attic", error))?;
        return print(&format!("{text}\n"));
    }
    print(&describe(&kept, clock::now().sec, Style::of_output()))?;
    if !unreadable.is_empty() {
        let lines: Vec<String> = unreadable.iter().map(ToString::to_string).collect();
        note(&format!(
            "lines of the attic's journal that cannot be read: {}; what they spoke of is listed without a note",
            lines.join(", ")
        ));
    }
    Ok(())
}

fn to_json(kept: &Kept) -> Value {
    let noted = kept.note.as_ref();
    let file = kept.file.as_ref();
    json!({
        "id": kept.id,
        "at": kept.at,
        "owner": noted.map(|noted| &noted.owner),
        "operation": noted.map(|noted| &noted.operation),
        "written_by": noted.and_then(|noted| noted.written_by.as_ref()),
        "path": noted.map(|noted| &noted.path),
        "noted": noted.is_some(),
        "there": file.is_some(),
        "readable": kept.readable,
        "size": file.map(|file| file.size),
        "mode": file.map(|file| format!("{:04o}", file.permissions())),
        "uid": file.map(|file| file.uid),
        "gid": file.map(|file| file.gid),
    })
}

fn describe(all: &[Kept], now: i64, style: Style) -> String {
    if all.is_empty() {
        return "nothing is kept\n".to_owned();
    }
    let mut text = format!(
        "{}\n",
        style.paint("1", &format!("{:<28}  {:>8}  {:>9}  WHAT", "ID", "AGE", "SIZE"))
    );
    for kept in all {
        let age = kept.at.map_or_else(|| "?".to_owned(), |at| age(now - at));
        let bytes = kept
            .file
            .as_ref()
            .map_or_else(|| "-".to_owned(), |file| size(file.size));
        let mut what = match &kept.note {
            Some(noted) => format!("{} ({})", plain(&noted.path), displaced(noted)),
            None => "nothing was noted: the guard was killed meanwhile, and the content may be incomplete".to_owned(),
        };
        let renamed = kept.note.as_ref().and_then(|noted| noted.renamed.as_ref());
        match (&kept.file, renamed) {
            (None, Some(renamed)) => {
                let from = plain(&renamed.from);
                what.push_str("; its content has gone, or it is still at ");
                what.push_str(&from);
                what.push_str(" if the guard was killed in the rename");
            }
            (None, None) => what.push_str("; its content has gone"),
            (Some(_), _) if !kept.readable => what.push_str("; not readable for you"),
            (Some(_), _) => {}
        }
        if writeln!(text, "{:<28}  {age:>8}  {bytes:>9}  {what}", kept.id).is_err() {
            return text;
        }
    }
    text
}

/// What has displaced a kept file, or kept it from its name, in words.
fn displaced(noted: &KeptInfo) -> String {
    let owner = plain(&noted.owner);
    let how = match noted.operation.as_str() {
        UNDO => "put aside by an undo".to_owned(),
        "unlink" => format!("removed by {owner}"),
        "open" | "truncate" => format!("replaced by {owner}"),
        "rename" => format!("renamed over by {owner}"),
        "create" => format!("written by {owner}, and never at its name, which somebody had taken"),
        HOMELESS => format!("written by {owner}, and never at its name, whose directory had been removed"),
        "flush" => format!("as {owner} left it while another owner went on writing it"),
        "mmap" => format!("as it was before {owner} changed it through a mapping"),
        "write" | "fallocate" | "copy_file_range" => format!("as it was before {owner} changed it in place"),
        other => format!("{} by {owner}", plain(other)),
    };
    match &noted.written_by {
        Some(writer) => format!(
            "{how} while {} was writing it; holds what {} wrote then, which is NOT in {}",
            plain(writer),
            plain(writer),
            plain(&noted.path)
        ),
        None => how,
    }
}

fn age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{}s", seconds.max(0)),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// Text that can neither break a line nor steer a terminal.
pub(super) fn plain(text: &str) -> String {
    if text.chars().any(char::is_control) {
        text.escape_debug().to_string()
    } else {
        text.to_owned()
    }
}

/// The names of a path that only goes down.
fn plain_names(path: &OsStr) -> Option<Vec<OsString>> {
    Path::new(path)
        .components()
        .map(|part| match part {
            Component::Normal(name) => Some(OsStr::to_owned(name)),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
        })
        .collect()
}

fn cannot_read(dir: &Path, error: &StoreError) -> Problem {
    tell(format!("cannot read the attic of {}", dir.display()), error)
}

fn tell(what: String, error: &StoreError) -> Problem {
    let StoreError::Sys(error) = error else {
        return Problem::new(what, error);
    };
    let problem = Problem::new(what, place::cause(error));
    match error.errno() {
        consts::EACCES | consts::EPERM => {
            problem.hint("what is kept is for the user whose guard kept it, and each file for those who may read it")
        }
        consts::ENOENT => problem.hint("it may just have been dropped: `unclobber attic list` shows what is kept"),
        consts::ENOTDIR => problem.hint("what was a directory of the path is none now: --to PATH restores elsewhere"),
        _ => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_go_down_are_followed() {
        assert_eq!(plain_names("a/b".as_ref()), Some(vec!["a".into(), "b".into()]));
        for path in ["/a", "../a", "a/../b", "./a"] {
            assert_eq!(plain_names(path.as_ref()), None, "{path}");
        }
    }

    #[test]
    fn a_listing_says_what_is_missing() {
        let kept = Kept {
            id: "00000001-00000000-00000000".to_owned(),
            at: Some(1),
            note: None,
            file: None,
            readable: false,
        };
        let text = describe(&[kept], 90_001, Style::of_output());
        assert!(text.contains("25h") && text.contains("nothing was noted"), "{text}");
        assert_eq!(describe(&[], 0, Style::of_output()), "nothing is kept\n");
        assert_eq!(plain("a\nb\u{1b}"), "a\\nb\\u{1b}");
        let noted =
            |operation: &str, owner: &str| KeptInfo::now(String::new(), owner.to_owned(), operation, "f".into(), 0);
        assert_eq!(displaced(&noted("open", "A")), "replaced by A");
        assert_eq!(displaced(&noted(UNDO, UNDO)), "put aside by an undo");
        let late = KeptInfo {
            written_by: Some("B".to_owned()),
            ..noted("unlink", "A")
        };
        assert_eq!(
            displaced(&late),
            "removed by A while B was writing it; holds what B wrote then, which is NOT in f"
        );
    }
}
