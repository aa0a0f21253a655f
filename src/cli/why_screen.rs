//! What `unclobber why` shows to somebody who knows nothing of the product: where they stand, what would happen, and
//! what to do next.
//!
//! It never computes an answer, only words it.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::args::WhyArgs;
use super::output::{Style, counted};
use crate::clock;
use crate::control::WhyReply;
use crate::fs::{Changed, Difference, Explanation, Operation, Outcome, Told, View};
use crate::guard::{OUTSIDE, SEVERAL, SHOW, Timestamp, age, printable};
use crate::owner::is_automatic_name;

/// The answer in words.
pub(crate) fn screen(args: &WhyArgs, answer: &WhyReply, base: &Path, style: Style) -> String {
    let about = About {
        args,
        base,
        directory: answer.root.as_deref().unwrap_or(base),
        found: &answer.explanation,
        own: answer.own.as_deref(),
        style,
    };
    let mut text = match answer.explanation.views.as_slice() {
        [view] if view.owner.is_some() => about.one(view),
        views => about.all(views, answer.others),
    };
    if answer.unmounted {
        text.push_str("\n(nothing is mounted now: this is how the next `run` would judge it)\n");
    }
    if let Some(problem) = &answer.rules_problem {
        let so = if answer.unmounted {
            "`run` and `mount` refuse to start until that is corrected, and this is told by the rules as they were before"
        } else {
            "the rules as they were before hold"
        };
        add(&mut text, &format!("\n{problem}: {so}\n"));
    }
    text
}

struct About<'a> {
    args: &'a WhyArgs,
    /// Where the guarded directory is.
    base: &'a Path,
    /// The directory itself, which is somewhere else if it was reached through a mount at another place.
    directory: &'a Path,
    found: &'a Explanation,
    own: Option<&'a str>,
    style: Style,
}

impl About<'_> {
    fn one(&self, view: &View) -> String {
        let mut text = format!("{}\n\n", self.style.paint("1", &self.title()));
        let who = view.owner.as_deref().unwrap_or_default();
        let mut facts = vec![
            if self.own.is_some() {
                ("you are", format!("owner {}", quoted(who)))
            } else {
                ("owner", quoted(who))
            },
            ("knows", self.knows(view)),
            ("there now", self.there()),
        ];
        if self.own.is_some() {
            facts[1].0 = "you know";
        }
        facts.push(("changed by", changed(view.changed.as_ref(), self.own.is_some())));
        if let Some(told) = &view.last_refusal {
            facts.push(("last refusal", format!("{}: {}", ago(told.at), self.told(told))));
        }
        let writer = if self.own.is_some() { "you" } else { "it" };
        if let Some(lost) = self.lost(view, writer) {
            facts.push(("not in it", lost));
        }
        for (name, fact) in facts {
            add(&mut text, &format!("  {name:<13} {fact}\n"));
        }
        text.push('\n');
        text.push_str(&self.outcome(view));
        if let Some(difference) = &view.difference {
            text.push_str(&show(difference));
        }
        text
    }

    /// The command that prints what is kept under this id, wherever it is typed.
    fn show_kept(&self, id: &str) -> String {
        format!("{SHOW} -w {} {id}", shell_word(self.directory))
    }

    /// Where that is which the owner has written, and which is not at the path.
    fn lost(&self, view: &View, writer: &str) -> Option<String> {
        let told = view.lost.as_ref()?;
        let (id, when) = (told.kept.as_deref()?, ago(told.at));
        Some(format!(
            "what {writer} wrote {when} is NOT in this file, but in the attic: outside the mount, `{}`",
            self.show_kept(id)
        ))
    }

    fn told(&self, told: &Told) -> String {
        match &told.kept {
            Some(id) => told.line.replacen(&format!("{SHOW} {id}"), &self.show_kept(id), 1),
            None => told.line.clone(),
        }
    }

    /// One line for each owner.
    fn all(&self, views: &[View], others: usize) -> String {
        let mut text = format!("{}\n\n", self.style.paint("1", &self.title()));
        add(&mut text, &format!("  {:<13} {}\n", "there now", self.there()));
        if let Some(view) = views.first() {
            let line = changed(view.changed.as_ref(), false);
            add(&mut text, &format!("  {:<13} {line}\n", "changed by"));
        }
        text.push('\n');
        let names: Vec<String> = views
            .iter()
            .map(|view| view.owner.as_deref().map_or_else(|| "anybody else".to_owned(), quoted))
            .collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        for (view, name) in views.iter().zip(&names) {
            let step = view
                .step
                .as_deref()
                .map_or_else(String::new, |step| format!(": {step}"));
            let line = format!(
                "  {name:<width$}  {}; {} it now: {}{step}\n",
                self.knows(view),
                doing(self.args.op),
                self.word(view)
            );
            add(&mut text, &line);
        }
        for (view, name) in views.iter().zip(&names) {
            if let Some(lost) = self.lost(view, name) {
                add(&mut text, &format!("\n  {lost}\n"));
            }
        }
        if others > 0 {
            add(
                &mut text,
                &match others {
                    1 => "\n1 other owner has nothing to do with it.\n".to_owned(),
                    _ => format!("\n{others} other owners have nothing to do with it.\n"),
                },
            );
        }
        let path = shell_word(&self.args.path);
        if views.iter().any(|view| view.owner.is_some()) {
            add(
                &mut text,
                &format!("\nmore about one of them: unclobber why {path} --owner NAME\n"),
            );
        }
        if self.args.diff {
            text.push_str("--diff needs --owner NAME: what has changed depends on what the owner has read\n");
        }
        text
    }

    fn title(&self) -> String {
        let typed = printable(&self.args.path.to_string_lossy());
        let path = printable(&self.found.path);
        if typed.ends_with(&path) {
            typed
        } else {
            format!("{typed} (in the guarded directory: {path})")
        }
    }

    fn there(&self) -> String {
        let found = self.found;
        let modified = found
            .modified
            .map_or_else(String::new, |at| format!(", changed {}", ago(at)));
        let writer = found.being_written_by.as_deref().map_or_else(String::new, |owner| {
            format!(
                "; owner {} is writing it at this moment{}",
                quoted(owner),
                self.writer()
            )
        });
        match found.there.as_str() {
            "nothing" => "nothing".to_owned(),
            "file" => format!(
                "a file of {}{modified}{writer}",
                counted(found.size.unwrap_or(0), "byte")
            ),
            "directory" => "a directory".to_owned(),
            _ => "something that is no regular file".to_owned(),
        }
    }

    /// ` (sh, process 7, opened 3 s ago)`, as far as it is known.
    fn writer(&self) -> String {
        let Some(writer) = &self.found.writer else {
            return String::new();
        };
        let command = printable(&writer.command);
        format!(" ({command}, process {}, opened {})", writer.pid, ago(writer.since))
    }

    fn knows(&self, view: &View) -> String {
        let (has, knows, knew, does) = if self.own.is_some() {
            ("you have", "you know", "you knew", "you do not know")
        } else {
            ("has", "knows", "knew", "does not know")
        };
        let nothing = self.found.there == "nothing";
        match view.view.as_str() {
            "current" => format!("{has} read it as it is now"),
            "stale" if nothing => format!("{knew} a file here, which has gone since"),
            "stale" => format!("{has} read an older version of it"),
            "absent" => format!("{knows} that nothing is here"),
            _ if nothing => format!("{does} what is here"),
            _ if self.found.there != "file" => format!("{has} not read it, and need not: it is no regular file"),
            _ => format!("{has} not read it"),
        }
    }

    fn word(&self, view: &View) -> String {
        match view.outcome {
            Outcome::Allowed if view.allowed_once => self.style.paint("32", "ALLOWED ONCE (unclobber allow)"),
            Outcome::Allowed if view.recorded => self
                .style
                .paint("33", "ALLOWED, since this mount only observes (--mode observe)"),
            Outcome::Allowed => self.style.paint("32", "ALLOWED"),
            Outcome::Refused => self.style.paint("1;31", "REFUSED"),
            Outcome::Fails => self.style.paint("1;31", "FAILS"),
        }
    }

    fn outcome(&self, view: &View) -> String {
        let mut text = format!("{} it now: {}", doing(self.args.op), self.word(view));
        if view.recorded {
            let code = view.code.as_deref().unwrap_or("a refusal");
            add(
                &mut text,
                &format!("\n  it would go on record as what would be refused: {code}"),
            );
        } else if let Some(error) = &view.error {
            let code = view
                .code
                .as_deref()
                .map_or_else(String::new, |code| format!(" ({code})"));
            add(&mut text, &format!(", with the error \"{error}\"{code}"));
        }
        text.push('\n');
        if let Some(cause) = &view.cause {
            add(&mut text, &format!("  because: {cause}\n"));
        }
        if view.outcome == Outcome::Fails && !view.protected {
            text.push_str("  as on any filesystem: this is no refusal of unclobber\n");
        }
        if self.found.level == "off" {
            text.push_str("  it is not guarded: unclobber neither refuses nor keeps anything here\n");
        }
        if view.keeps {
            text.push_str("  what is there now would be kept: `unclobber undo` brings it back\n");
        }
        text.push('\n');
        text.push_str(&self.next(view));
        for holder in &view.old_copies {
            let line = format!(
                "but {} (process {}) holds an older copy: it is refused until the file is read again\n",
                printable(&holder.command),
                holder.pid
            );
            add(&mut text, &line);
        }
        if view.view == "stale" && !self.args.diff {
            let owner = self.owner_flag(view);
            let path = shell_word(&self.args.path);
            let line = match (&view.copy, self.found.there.as_str()) {
                (Some(copy), "nothing") => format!("the version that was read is in the attic: {}\n", copy.id),
                (Some(_), _) => format!("what has changed since it was read: unclobber why {path}{owner} --diff\n"),
                (None, _) if view.outcome == Outcome::Allowed => String::new(),
                (None, _) => "no copy of the version that was read was kept\n".to_owned(),
            };
            add(&mut text, &line);
        }
        text
    }

    fn owner_flag(&self, view: &View) -> String {
        match (&view.owner, self.own) {
            (Some(owner), None) => format!(" --owner {owner}"),
            _ => String::new(),
        }
    }

    fn next(&self, view: &View) -> String {
        let Some(step) = view.step.as_deref() else {
            return match view.outcome {
                Outcome::Fails => {
                    "what to do next: look at the error; unclobber does not stand in the way\n".to_owned()
                }
                Outcome::Allowed | Outcome::Refused => "what to do next: nothing, go ahead\n".to_owned(),
            };
        };
        let mut text = if view.recorded {
            format!("what to do next: nothing, go ahead; where it is enforced: {step}\n")
        } else {
            format!("what to do next: {step}\n")
        };
        let looks = [("read the file", "cat"), ("look at the path", "ls")];
        if let Some((_, command)) = looks.iter().find(|(words, _)| step.contains(words)) {
            let example = self.example(view, command);
            let line = match &self.found.being_written_by {
                Some(owner) if step.contains("the writer") => {
                    let path = shell_word(&self.args.path);
                    format!(
                        "  first wait:    owner {} has it open for writing{}; `unclobber why {path}` says when that is over\n  and then:      \
                         {example}\n",
                        quoted(owner),
                        self.writer()
                    )
                }
                Some(_) | None => format!("  for example:   {example}\n"),
            };
            add(&mut text, &line);
        }
        text
    }

    /// A command that takes the step, for whoever asks.
    fn example(&self, view: &View, command: &str) -> String {
        match (&view.owner, self.own) {
            (Some(owner), None) if is_automatic_name(owner) => {
                format!("{}: {command} {}", where_it_is(owner), shell_word(&self.args.path))
            }
            (Some(owner), None) => {
                let (base, below) = (shell_word(self.base), shell_word(Path::new(&self.found.path)));
                format!("cd {base} && unclobber run --owner {owner} -- {command} {below}")
            }
            _ => format!("{command} {}", shell_word(&self.args.path)),
        }
    }
}

/// Where an owner that nobody named takes a step: no `run` can be it.
fn where_it_is(owner: &str) -> &'static str {
    let own = owner.rsplit('/').next().unwrap_or(owner);
    match own.split_once('-').map_or(own, |(kind, _)| kind) {
        "session" => "in that session itself",
        "user" => "as that user, in the mount",
        "cgroup" => "in that cgroup itself",
        "run" => "inside that `run` itself",
        _ => "by that process itself",
    }
}

fn doing(operation: Operation) -> &'static str {
    match operation {
        Operation::Write => "writing to",
        Operation::Edit => "editing",
        Operation::Remove => "removing",
        Operation::Create => "creating",
    }
}

fn changed(changed: Option<&Changed>, yours: bool) -> String {
    let Some(changed) = changed else {
        return "nobody since the guard began".to_owned();
    };
    let by = match changed.by.as_str() {
        _ if changed.own && yours => "you".to_owned(),
        OUTSIDE => "somebody outside the mount".to_owned(),
        SEVERAL => "one of several owners that had it open".to_owned(),
        owner => format!("owner {}", quoted(owner)),
    };
    let command = match (&changed.command, changed.pid) {
        (Some(command), Some(pid)) => format!(" with {} (process {pid})", printable(command)),
        _ => String::new(),
    };
    let when = changed
        .at
        .map_or_else(|| ", noticed now".to_owned(), |at| format!(", {}", ago(at)));
    let gone = if changed.gone { ", who removed it" } else { "" };
    format!("{by}{command}{gone}{when}")
}

fn show(difference: &Difference) -> String {
    let mut text = "\nwhat has changed since it was read:\n".to_owned();
    match (&difference.text, &difference.none) {
        (Some(shown), _) => {
            text.push_str(shown);
            if difference.cut {
                text.push_str("(more has changed than is shown here)\n");
            }
        }
        (None, why) => add(
            &mut text,
            &format!("  cannot be shown: {}\n", why.as_deref().unwrap_or("nothing is known")),
        ),
    }
    text
}

fn ago(at: i64) -> String {
    age(Timestamp { sec: at, nsec: 0 }, clock::now())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", printable(name))
}

/// A path as a shell takes it.
pub(super) fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+@:,=~".contains(c);
    if !text.is_empty() && text.chars().all(plain) && !text.starts_with(['-', '~']) {
        return text.into_owned();
    }
    let dashed = if text.starts_with('-') { "./" } else { "" };
    let is_shown = |c: char| "'\"\\".contains(c) || c.escape_debug().len() == 1;
    if text.chars().all(is_shown) && !text.contains('\u{fffd}') {
        return format!("'{dashed}{}'", text.replace('\'', "'\\''"));
    }
    let mut word = format!("$'{dashed}");
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' | '\\' => word.extend(['\\', c]),
                '\n' => word.push_str("\\n"),
                '\t' => word.push_str("\\t"),
                c if is_shown(c) => word.push(c),
                c => as_bytes(&mut word, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        as_bytes(&mut word, chunk.invalid());
    }
    word + "'"
}

/// Bytes as they are written between `$'` and `'`: octal, of which a shell takes three digits and no more.
fn as_bytes(word: &mut String, bytes: &[u8]) {
    for byte in bytes {
        add(word, &format!("\\{byte:03o}"));
    }
}

fn add(text: &mut String, more: &str) {
    // Writing to a string cannot fail.
    let _written = text.write_str(more);
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_shell_takes_every_name_as_it_is() {
        for name in [
            &b"plain"[..],
            b"-dashed",
            b"~",
            b"it's",
            b"back\\slash",
            b"new\nline",
            b"tab\tand 'quote' and \\n",
            b"\x1b[31m",
            b"\xff1",
            "z\u{200b}w".as_bytes(),
        ] {
            let word = shell_word(Path::new(OsStr::from_bytes(name)));
            assert!(!word.contains(char::is_control), "{word:?}");
            let done = std::process::Command::new("bash")
                .args(["-c", &format!("printf %s {word}")])
                .output();
            let Ok(done) = done else {
                eprintln!("SKIPPED: no bash");
                return;
            };
            let expected = if name.starts_with(b"-") {
                [b"./", name].concat()
            } else {
                name.to_vec()
            };
            assert_eq!(done.stdout, expected, "{word}");
        }
        assert_eq!(shell_word(Path::new("new\nline")), "$'new\\nline'");
    }
}
