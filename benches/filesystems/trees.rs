//! Workloads of whole trees, by the tools that people use.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use super::ops::Measured;

/// What the workloads start from, made once outside of every filesystem that is measured.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    archive: PathBuf,
    repository: PathBuf,
    programs: PathBuf,
    files: u32,
    sources: u32,
}

/// In this order: each leaves behind what the next begins with.
pub(crate) const WORKLOADS: [&str; 8] = ["untar", "find", "grep", "rm", "clone", "status", "switch", "compile"];

impl Sources {
    /// Makes them in `dir` unless they are there.
    pub(crate) fn make(dir: &Path, quick: bool) -> io::Result<Self> {
        let (files, sources) = if quick { (600, 20) } else { (3000, 100) };
        let made = Self {
            archive: dir.join("tree.tar"),
            repository: dir.join("repository"),
            programs: dir.join("programs"),
            files,
            sources,
        };
        let complete = dir.join("complete");
        if !complete.exists() {
            remove(dir)?;
            fs::create_dir_all(dir)?;
            made.make_archive(dir)?;
            made.make_repository()?;
            made.make_programs()?;
            fs::write(complete, "")?;
        }
        Ok(made)
    }

    fn make_archive(&self, dir: &Path) -> io::Result<()> {
        let tree = dir.join("tree");
        for index in 0..self.files {
            let sub = tree.join(format!("d{}/e{}", index % 20, index % 100 / 20));
            fs::create_dir_all(&sub)?;
            let line = format!("line {index} of text that grep looks through\n");
            let lines = usize::try_from(20 + index % 80).unwrap_or(20);
            fs::write(sub.join(format!("f{index}.txt")), line.repeat(lines))?;
        }
        run(dir, "tar", ["cf", "tree.tar", "tree"])?;
        fs::remove_dir_all(&tree)
    }

    fn make_repository(&self) -> io::Result<()> {
        let repository = &self.repository;
        fs::create_dir_all(repository)?;
        run(repository, "git", ["init", "-q", "-b", "main"])?;
        let write = |index: u32, version: u32| {
            let sub = repository.join(format!("src/part{}", index % 30));
            fs::create_dir_all(&sub)?;
            fs::write(
                sub.join(format!("file{index}.txt")),
                format!("version {version} of file {index}\n").repeat(40),
            )
        };
        (0..self.files / 3).try_for_each(|index| write(index, 1))?;
        let commit = ["commit", "-q", "-m", "state", "--date=2026-01-01T00:00:00Z"];
        run(repository, "git", ["add", "."])?;
        run(repository, "git", commit)?;
        run(repository, "git", ["switch", "-q", "-c", "other"])?;
        (0..self.files / 3).step_by(3).try_for_each(|index| write(index, 2))?;
        run(repository, "git", ["add", "."])?;
        run(repository, "git", commit)?;
        run(repository, "git", ["switch", "-q", "main"])?;
        run(repository, "git", ["gc", "-q"])
    }

    fn make_programs(&self) -> io::Result<()> {
        fs::create_dir_all(&self.programs)?;
        for index in 0..self.sources {
            let text = format!(
                "#include <stdio.h>\n#include <string.h>\nint f{index}(const char *s) {{ char b[64]; snprintf(b, \
                 sizeof b, \"%s {index}\", s); return (int)strlen(b); }}\n"
            );
            fs::write(self.programs.join(format!("f{index}.c")), text)?;
        }
        Ok(())
    }

    /// Runs a workload in `dir`; what it begins with is made first, untimed, where it is not there.
    pub(crate) fn run(&self, workload: &str, dir: &Path) -> io::Result<Measured> {
        let (tree, clone) = (dir.join("tree"), dir.join("clone"));
        let untar = || run(dir, "tar", [OsStr::new("xf"), self.archive.as_os_str()]);
        let clone_it = || {
            run(
                dir,
                "git",
                [
                    OsStr::new("clone"),
                    OsStr::new("-q"),
                    OsStr::new("--no-hardlinks"),
                    self.repository.as_os_str(),
                    OsStr::new("clone"),
                ],
            )
        };
        let of_tree = ["find", "grep", "rm"].contains(&workload);
        let of_clone = ["status", "switch"].contains(&workload);
        match workload {
            "untar" => remove(&tree)?,
            "clone" => remove(&clone)?,
            _ if of_tree && !tree.exists() => untar()?,
            _ if of_clone && !clone.exists() => clone_it()?,
            _ => {}
        }
        if workload == "status" {
            make_old(&clone)?;
        }
        match workload {
            "untar" => timed("untar", 1, untar),
            "find" => timed("find", 3, || run(dir, "find", ["tree", "-type", "f", "-size", "+1k"])),
            "grep" => timed("grep", 2, || run(dir, "grep", ["-rc", "line 7", "tree"])),
            "rm" => timed("rm", 1, || run(dir, "rm", ["-r", "tree"])),
            "clone" => timed("clone", 1, clone_it),
            "status" => timed("status", 3, || run(&clone, "git", ["status", "--porcelain"])),
            "switch" => timed("switch", 1, || {
                run(&clone, "git", ["switch", "-q", "-c", "there", "origin/other"])?;
                run(&clone, "git", ["switch", "-q", "main"])
            })
            .and_then(|measured| run(&clone, "git", ["branch", "-q", "-D", "there"]).map(|()| measured)),
            "compile" => self.compile(dir),
            _ => Err(io::Error::other(format!("no such workload: {workload}"))),
        }
    }

    fn compile(&self, dir: &Path) -> io::Result<Measured> {
        let place = dir.join("build");
        remove(&place)?;
        fs::create_dir(&place)?;
        for entry in fs::read_dir(&self.programs)? {
            let path = entry?.path();
            fs::write(place.join(path.file_name().unwrap_or_default()), fs::read(&path)?)?;
        }
        let sources: Vec<String> = (0..self.sources).map(|index| format!("f{index}.c")).collect();
        let objects: Vec<String> = (0..self.sources).map(|index| format!("f{index}.o")).collect();
        timed("compile", 1, || {
            run(
                &place,
                "cc",
                ["-c"].into_iter().chain(sources.iter().map(String::as_str)),
            )?;
            run(
                &place,
                "ar",
                ["rcs", "lib.a"].into_iter().chain(objects.iter().map(String::as_str)),
            )
        })
    }
}

/// Makes all files older than git's index: those that are as young as it, git reads again, and how many they are is
/// chance.
fn make_old(clone: &Path) -> io::Result<()> {
    run(clone, "sh", ["-c", "git ls-files -z | xargs -0 touch -d 2026-01-01"])?;
    run(clone, "git", ["update-index", "-q", "--refresh"])
}

fn remove(path: &Path) -> io::Result<()> {
    if path.exists() {
        fs::remove_dir_all(path)
    } else {
        Ok(())
    }
}

/// What the tools of this process have computed by themselves so far, in nanoseconds.
fn computed() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map(|usage| usage.user_time());
    usage.map_or(0, |time| u64::try_from(time.num_microseconds()).unwrap_or(0) * 1000)
}

fn timed(row: &'static str, times: u32, act: impl Fn() -> io::Result<()>) -> io::Result<Measured> {
    let (began, before) = (Instant::now(), computed());
    (0..times).try_for_each(|_| act())?;
    let own = computed() - before;
    Ok((
        row,
        u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
        times,
        own,
    ))
}

/// Runs a tool with surroundings that are the same everywhere; what it says of a failure is the error.
fn run(dir: &Path, tool: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> io::Result<()> {
    let output = Command::new(tool)
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_COMMITTER_DATE", "2026-01-01T00:00:00Z")
        .envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|key| (key, "bench")))
        .envs(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|key| (key, "bench@example.org")))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| io::Error::other(format!("{tool}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{tool}: {}: {}", output.status, said.trim())))
}
