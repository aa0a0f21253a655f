//! The one table of commands and flags: parsing, help, man page and completions all come from it.
//!
//! It never does anything.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use super::recording::RecordingArgs;
use super::topics;
use crate::control::{
    AttachRules, Cache, Create, Durability, Mode, OwnerBy, Passthrough, Policy, Remove, Unseen, View, check_owner_name,
};
use crate::fs::Operation;

/// A guarded view of a directory in which nobody's unseen work is destroyed.
#[derive(Debug, Parser)]
#[command(
    name = "unclobber",
    version,
    disable_help_subcommand = true,
    after_help = topics::OVERVIEW_EXAMPLES,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Logging.
#[derive(Debug, Clone, Args)]
pub(crate) struct LogArgs {
    /// Say more; repeat for more still (RUST_LOG overrides)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Write the log to this file, the guard's too when this command starts it
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command in a guarded view of a directory
    #[command(after_help = topics::RUN_EXAMPLES, override_usage = "unclobber run [OPTIONS] -- CMD [ARG]...")]
    Run(RunArgs),
    /// Mount a guarded view of a directory
    #[command(after_help = topics::MOUNT_EXAMPLES)]
    Mount(MountArgs),
    /// Take a mount away
    #[command(after_help = topics::UMOUNT_EXAMPLES)]
    Umount(UmountArgs),
    /// Show guards, mounts, owners and counts
    #[command(after_help = topics::STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Watch owners, their files and refusals as they happen
    #[command(after_help = topics::TOP_EXAMPLES)]
    Top(TopArgs),
    /// Say what would happen to a change of a file, why, and what to do next
    #[command(after_help = topics::WHY_EXAMPLES)]
    Why(WhyArgs),
    /// Show what the guard has written down: refusals, changes, what was kept
    #[command(after_help = topics::LOG_EXAMPLES)]
    Log(EventLogArgs),
    /// Sum up what was refused, or would have been, and propose rules
    #[command(after_help = topics::REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Show the rules that decide how closely a path is guarded, and which one decides for a path
    #[command(after_help = topics::RULES_EXAMPLES)]
    Rules(RulesArgs),
    /// Let the next change of a file through, once
    #[command(after_help = topics::ALLOW_EXAMPLES)]
    Allow(AllowArgs),
    /// List, show, compare, restore and drop what the guard has kept
    #[command(after_help = topics::ATTIC_EXAMPLES, arg_required_else_help = false)]
    Attic(AtticArgs),
    /// Restore what an owner's last changes displaced
    #[command(after_help = topics::UNDO_EXAMPLES)]
    Undo(UndoArgs),
    /// Say whether this machine can mount, and what to do if it cannot
    #[command(after_help = topics::DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Show help on a command or a topic (exit-codes, options, refusals)
    Help(HelpArgs),
    /// Serve a directory; started by the other commands
    #[command(hide = true)]
    Guard(GuardArgs),
    /// Print the manual page
    #[command(hide = true)]
    Man,
    /// Print shell completions
    #[command(hide = true)]
    Completions(CompletionsArgs),
}

/// What a mount is asked to do.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Guard")]
pub(crate) struct PolicyArgs {
    /// Refuse, or only record what would be refused (and keep nothing in the attic)
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub(crate) mode: Mode,
    /// What happens to content that has not been read
    #[arg(long, value_enum, default_value_t, value_name = "RULE")]
    pub(crate) unseen: Unseen,
    /// What removing a file needs
    #[arg(long, value_enum, default_value_t, value_name = "RULE")]
    pub(crate) remove: Remove,
    /// Whose view of a file counts
    #[arg(long, value_enum, default_value_t, value_name = "RULE")]
    pub(crate) view: View,
    /// When new files appear to outsiders
    #[arg(long, value_enum, default_value_t, value_name = "RULE")]
    pub(crate) create: Create,
    /// Who sees to it that a new file survives a crash
    #[arg(long, value_enum, default_value_t, value_name = "RULE")]
    pub(crate) durability: Durability,
    /// What the kernel remembers of names and attributes
    #[arg(long, value_enum, default_value_t, value_name = "RULE")]
    pub(crate) cache: Cache,
    /// Who moves the data of files that need no judgement
    #[arg(long, value_enum, default_value_t, value_name = "RULE")]
    pub(crate) passthrough: Passthrough,
    /// How long the guard stays after its last mount: 90, 90s, 10m, 2h [default: 10m with named owners, else 0]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) linger: Option<Duration>,
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    #[command(flatten)]
    pub(crate) bounds: BoundsArgs,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
}

/// Levels of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct RuleArgs {
    /// How closely paths are guarded: guard, keep or off, and a gitignore glob; repeat for more, the last that matches
    /// decides
    #[arg(long = "rule", value_name = "LEVEL:GLOB", value_parser = parse_rule)]
    pub(crate) rule: Vec<String>,
    /// The directory's own rules, .unclobber.toml, may be changed from inside
    #[arg(long)]
    pub(crate) rules_writable: bool,
    /// Owners may use `unclobber allow` for their own changes
    #[arg(long)]
    pub(crate) self_allow: bool,
}

impl RuleArgs {
    pub(crate) fn request(&self) -> AttachRules {
        AttachRules {
            own: self.rule.clone(),
            writable: self.rules_writable,
            self_allow: self.self_allow,
        }
    }
}

/// Bounds of the attic and of memory. They are those of the guard: they count where this command starts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub(crate) struct BoundsArgs {
    /// How long displaced content is kept: 90, 90s, 10m, 2h, 7d [default: 7d]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) attic_age: Option<Duration>,
    /// How much displaced content is kept in all, the oldest going first: 4096, 500K, 20M, 1G [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) attic_size: Option<u64>,
    /// How much is copied to keep content that is replaced in place and was seen, where the filesystem cannot share it;
    /// 0: nothing [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) attic_copy: Option<u64>,
    /// Whether displaced content is kept at all
    #[arg(long, value_enum, value_name = "SWITCH")]
    pub(crate) attic: Option<AtticSwitch>,
    /// How many files, and how many names, are remembered; what is forgotten counts as not observed, from 4096 on
    /// [default: 1048576]
    #[arg(long, value_name = "NUMBER", value_parser = parse_records)]
    pub(crate) max_records: Option<u32>,
}

/// As many as there are parts of the tables, with some room in each.
pub(crate) fn parse_records(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if number >= 4096 => Ok(number),
        Ok(_) => Err("fewer than 4096 are too few to work with".to_owned()),
        Err(_) => Err("not a number such as 1048576".to_owned()),
    }
}

/// `--attic`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AtticSwitch {
    /// Keep what is displaced [the default]
    On,
    /// Keep nothing: what is removed unread is gone
    Off,
}

impl BoundsArgs {
    /// The flags of the guard that is started.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let copy = self.attic_copy.map(|size| format!("--attic-copy={size}").into());
        let off = self.attic.map(|switch| match switch {
            AtticSwitch::On => "--attic=on".into(),
            AtticSwitch::Off => "--attic=off".into(),
        });
        let records = self.max_records.map(|number| format!("--max-records={number}").into());
        copy.into_iter().chain(off).chain(records).collect()
    }
}

impl PolicyArgs {
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            mode: self.mode,
            unseen: self.unseen,
            remove: self.remove,
            view: self.view,
            create: self.create,
            durability: self.durability,
            cache: self.cache,
            passthrough: self.passthrough,
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// The directory to guard [default: the current directory]
    #[arg(long, short = 'w', value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// The owner: commands run under one name share what they have read [default: a fresh owner]
    #[arg(long, value_name = "NAME", value_parser = parse_owner)]
    pub(crate) owner: Option<String>,
    /// Write all refusals to this file as JSON when the command has ended
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// As root: leave CMD the capabilities by which it could leave its view (CAP_SYS_ADMIN and others)
    #[arg(long)]
    pub(crate) keep_capabilities: bool,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MountArgs {
    /// The directory to guard
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Where to show it [default: over DIR itself]
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mountpoint: Option<PathBuf>,
    /// Stay until the mount ends; an interrupt ends it
    #[arg(long, short)]
    pub(crate) foreground: bool,
    /// How processes under no `run` are told apart [default: session]
    #[arg(long, value_enum, value_name = "RULE", conflicts_with = "owner")]
    pub(crate) owner_by: Option<OwnerBy>,
    /// One owner for all that happens on the mount
    #[arg(long, value_name = "NAME", value_parser = parse_owner)]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Mount options, separated by commas; `unclobber help options` lists them
    #[arg(short = 'o', value_name = "LIST", action = clap::ArgAction::Append)]
    pub(crate) options: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UmountArgs {
    /// The mount point
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mountpoint: PathBuf,
    /// Also when it is in use: it disappears now and ends when the last user leaves
    #[arg(long, short)]
    pub(crate) lazy: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StatusArgs {
    /// Only the guard of this mount or directory
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mountpoint: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Print all counts in the text form of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub(crate) metrics: bool,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct EventLogArgs {
    /// The guarded directory, or a mount of it [default: the current directory]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Go on with what happens from now on
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only what this owner, or one below it, did
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Only what concerns these paths; a pattern as in .gitignore
    #[arg(long, value_name = "GLOB")]
    pub(crate) path: Option<String>,
    /// Only refusals
    #[arg(long)]
    pub(crate) refused: bool,
    /// Print the lines as they were written, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Read this file instead of the one of the directory's guard
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    pub(crate) events: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ReportArgs {
    /// The guarded directory, or a mount of it [default: the current directory]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Read this file instead of the one of the directory's guard
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    pub(crate) events: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the proposed .unclobber.toml alone
    #[arg(long, conflicts_with = "json")]
    pub(crate) toml: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TopArgs {
    /// The guarded directory [default: the current one, else the only one that is guarded]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// How often to look, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub(crate) interval: Duration,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct WhyArgs {
    /// The file
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Whose view [default: inside a `run` your own, outside everybody's]
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// What would be done to it: write, edit, remove or create
    #[arg(long, value_name = "OPERATION", default_value = "write", value_parser = operations())]
    pub(crate) op: Operation,
    /// Show what has changed since the owner read it
    #[arg(long)]
    pub(crate) diff: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RulesArgs {
    /// Which rule decides for this file or directory?
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    /// The guarded directory [default: the nearest above that is guarded or has rules, else the current directory]
    #[arg(long, short = 'w', value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AllowArgs {
    /// The file; with --list the guarded directory
    #[arg(value_name = "PATH", required_unless_present = "list")]
    pub(crate) path: Option<PathBuf>,
    /// Only a change by this owner [default: one's own inside `run`, else whoever changes the file first]
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// List the exceptions that wait to be used
    #[arg(long, conflicts_with_all = ["cancel", "owner", "lasts"])]
    pub(crate) list: bool,
    /// Take the exceptions for the file back, or with --owner that of one owner
    #[arg(long, conflicts_with = "lasts")]
    pub(crate) cancel: bool,
    /// For how long: 90, 90s, 10m, 2h
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, default_value = "60s")]
    pub(crate) lasts: Duration,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AtticArgs {
    #[command(subcommand)]
    pub(crate) command: AtticCommand,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum AtticCommand {
    /// List what is kept, the oldest first
    List(AtticListArgs),
    /// Print the content of a kept file
    Show(AtticFileArgs),
    /// Compare a kept file with what is in its old place now
    Diff(AtticFileArgs),
    /// Bring a kept file back, never replacing anything
    Restore(AtticRestoreArgs),
    /// Drop kept files for good
    Prune(AtticPruneArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AtticListArgs {
    /// The guarded directory [default: the current directory]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AtticFileArgs {
    /// The kept file's id, or as much of its beginning as no other has
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The guarded directory [default: the current directory]
    #[arg(long, short = 'w', value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AtticRestoreArgs {
    /// The kept file's id, or as much of its beginning as no other has
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Where it goes [default: where it was]
    #[arg(long, value_name = "PATH")]
    pub(crate) to: Option<PathBuf>,
    /// The guarded directory [default: the current directory]
    #[arg(long, short = 'w', value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AtticPruneArgs {
    /// What has been kept for longer than this: 90, 90s, 10m, 2h, 7d; 0 is everything
    #[arg(long, value_name = "TIME", value_parser = parse_duration, required_unless_present = "all")]
    pub(crate) older_than: Option<Duration>,
    /// Everything
    #[arg(long, conflicts_with = "older_than")]
    pub(crate) all: bool,
    /// The guarded directory [default: the current directory]
    #[arg(long, short = 'w', value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UndoArgs {
    /// The guarded directory [default: the current directory]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Only changes of this owner [default: of anybody]
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// How many, the latest first
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) last: usize,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DoctorArgs {
    /// The directory that is to be guarded [default: the current directory]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct HelpArgs {
    /// A command, or one of: exit-codes, options, refusals
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct GuardArgs {
    /// The guard's id
    #[arg(long)]
    pub(crate) id: String,
    /// The directory's path, for people; the directory itself is standard input
    #[arg(long)]
    pub(crate) root: String,
    /// Where the guard's files go
    #[arg(long)]
    pub(crate) runtime_dir: PathBuf,
    #[command(flatten)]
    pub(crate) bounds: BoundsArgs,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("from 0.1 to 3600 seconds".to_owned())
    }
}

fn operations() -> impl TypedValueParser<Value = Operation> {
    let all = [Operation::Write, Operation::Edit, Operation::Remove, Operation::Create];
    PossibleValuesParser::new(all.map(Operation::as_str)).map(move |word| {
        all.into_iter()
            .find(|operation| operation.as_str() == word)
            .unwrap_or_default()
    })
}

pub(crate) fn parse_owner(text: &str) -> Result<String, String> {
    check_owner_name(text).map(|()| text.to_owned())
}

pub(crate) fn parse_rule(text: &str) -> Result<String, String> {
    crate::rules::parse_word(text).map(|_| text.to_owned())
}

pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: a number of seconds, or a number with s, m, h or d");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => return Err(wrong()),
    };
    let number: u32 = digits.parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(u64::from(number) * factor))
}

pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size: a number of bytes, or a number with K, M, G or T");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
