//! The `-o` list of `mount`: what each word means, and which words there are.
//!
//! It never accepts a word it does not know: silence would promise what is not done.

use clap::ValueEnum;

use super::args::{MountArgs, parse_duration, parse_owner, parse_records, parse_rule, parse_size};
use super::recording::parse_files;
use crate::sys::consts;

/// Flags of a mount that have a bit in `mount(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one independent bit of mount(2)")]
pub(crate) struct MountFlags {
    /// Set-user-ID bits have no effect.
    pub(crate) nosuid: bool,
    /// Device nodes cannot be opened.
    pub(crate) nodev: bool,
    /// Nothing can be executed.
    pub(crate) noexec: bool,
    /// Nothing can be changed.
    pub(crate) read_only: bool,
    /// Access times stand still.
    pub(crate) noatime: bool,
    /// Access times move with every access.
    pub(crate) strictatime: bool,
    /// Changes are written at once.
    pub(crate) sync: bool,
}

impl Default for MountFlags {
    fn default() -> Self {
        Self {
            nosuid: true,
            nodev: true,
            noexec: false,
            read_only: false,
            noatime: false,
            strictatime: false,
            sync: false,
        }
    }
}

impl MountFlags {
    /// As mount(2) takes them.
    pub(crate) fn bits(self) -> u64 {
        let all = [
            (self.nosuid, consts::MS_NOSUID),
            (self.nodev, consts::MS_NODEV),
            (self.noexec, consts::MS_NOEXEC),
            (self.read_only, consts::MS_RDONLY),
            (self.noatime, consts::MS_NOATIME),
            (self.strictatime, consts::MS_STRICTATIME),
            (self.sync, consts::MS_SYNCHRONOUS),
        ];
        all.into_iter()
            .filter(|(set, _)| *set)
            .fold(0, |bits, (_, bit)| bits | bit)
    }
}

/// What a `-o` list asks for, besides what it sets in the flags of the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FuseOptions {
    /// Bits of mount(2).
    pub(crate) flags: MountFlags,
    /// `exec` was said: do not take `noexec` from the directory.
    pub(crate) exec: bool,
    /// What shows as the source.
    pub(crate) fsname: Option<String>,
    /// Other users may come in.
    pub(crate) allow_other: bool,
    /// The kernel checks permissions.
    pub(crate) default_permissions: bool,
}

/// Reads every list of `args.options`, and sets in `args` what has a flag of its own.
pub(crate) fn apply(args: &mut MountArgs) -> Result<FuseOptions, String> {
    let mut options = FuseOptions::default();
    for list in std::mem::take(&mut args.options) {
        for word in split(&list) {
            apply_word(&word, args, &mut options).map_err(|why| format!("mount option {word:?}: {why}"))?;
        }
    }
    if args.owner.is_some() && args.owner_by.is_some() {
        return Err("mount options \"owner\" and \"owner-by\" exclude each other".to_owned());
    }
    Ok(options)
}

/// Whether the lists ask for a change of a mount that is there.
pub(crate) fn asks_for_remount(lists: &[String]) -> bool {
    lists.iter().flat_map(|list| split(list)).any(|word| word == "remount")
}

/// The flags that a remount asks for. mount(8) repeats what the kernel shows of the mount, and the line of fstab: flags of the
/// guard are read, and stay as they are.
pub(crate) fn of_remount(lists: &[String]) -> Result<MountFlags, String> {
    let (mut args, mut options) = (MountArgs::default(), FuseOptions::default());
    for word in lists.iter().flat_map(|list| split(list)) {
        let shown = [
            "user_id=",
            "group_id=",
            "fsname=",
            "subtype=",
            "max_read=",
            "x-",
            "X-",
            "comment=",
        ];
        if word == "remount" || shown.iter().any(|prefix| word.starts_with(prefix)) {
            continue;
        }
        apply_word(&word, &mut args, &mut options).map_err(|why| format!("mount option {word:?}: {why}"))?;
    }
    Ok(options.flags)
}

fn apply_word(word: &str, args: &mut MountArgs, options: &mut FuseOptions) -> Result<(), String> {
    if let Some((name, value)) = word.split_once('=') {
        return apply_value(name, value, args, options);
    }
    let flags = &mut options.flags;
    match word {
        "allow_other" => options.allow_other = true,
        "default_permissions" => options.default_permissions = true,
        "ro" => flags.read_only = true,
        "rw" => flags.read_only = false,
        "suid" => flags.nosuid = false,
        "nosuid" => flags.nosuid = true,
        "dev" => flags.nodev = false,
        "nodev" => flags.nodev = true,
        "exec" => (flags.noexec, options.exec) = (false, true),
        "noexec" => (flags.noexec, options.exec) = (true, false),
        "atime" => flags.noatime = false,
        "noatime" => (flags.noatime, flags.strictatime) = (true, false),
        "strictatime" => (flags.noatime, flags.strictatime) = (false, true),
        "nostrictatime" => flags.strictatime = false,
        "sync" => flags.sync = true,
        "async" => flags.sync = false,
        "rules-writable" => args.policy.rules.rules_writable = true,
        "self-allow" => args.policy.rules.self_allow = true,
        "relatime" | "norelatime" | "diratime" | "nodiratime" => {}
        "events-observations" => args.policy.recording.events_observations = true,
        "" | "defaults" | "auto" | "noauto" | "user" | "nouser" | "users" | "nofail" | "_netdev" => {}
        "owner" | "owner-by" | "mode" | "unseen" | "remove" | "view" | "create" | "durability" | "cache"
        | "passthrough" | "linger" | "attic-age" | "attic-size" | "attic-copy" | "attic" | "max-records" | "events"
        | "events-size" | "events-files" | "rule" | "fsname" | "subtype" => {
            return Err("it needs a value".to_owned());
        }
        other if other.starts_with("x-") || other.starts_with("X-") => {}
        _ => return Err("unknown".to_owned()),
    }
    Ok(())
}

fn apply_value(name: &str, value: &str, args: &mut MountArgs, options: &mut FuseOptions) -> Result<(), String> {
    let policy = &mut args.policy;
    match name {
        "fsname" => options.fsname = Some(value.to_owned()),
        "subtype" if value == "unclobber" => {}
        "subtype" => return Err("the subtype is always unclobber".to_owned()),
        "owner" => args.owner = Some(parse_owner(value)?),
        "owner-by" => args.owner_by = Some(one_of(value)?),
        "mode" => policy.mode = one_of(value)?,
        "unseen" => policy.unseen = one_of(value)?,
        "remove" => policy.remove = one_of(value)?,
        "view" => policy.view = one_of(value)?,
        "create" => policy.create = one_of(value)?,
        "durability" => policy.durability = one_of(value)?,
        "cache" => policy.cache = one_of(value)?,
        "passthrough" => policy.passthrough = one_of(value)?,
        "rule" => policy.rules.rule.push(parse_rule(value)?),
        "linger" => policy.linger = Some(parse_duration(value)?),
        "attic-age" => policy.bounds.attic_age = Some(parse_duration(value)?),
        "attic-size" => policy.bounds.attic_size = Some(parse_size(value)?),
        "attic-copy" => policy.bounds.attic_copy = Some(parse_size(value)?),
        "attic" => policy.bounds.attic = Some(one_of(value)?),
        "max-records" => policy.bounds.max_records = Some(parse_records(value)?),
        "events" => policy.recording.events = Some(value.into()),
        "events-size" => policy.recording.events_size = Some(parse_size(value)?),
        "events-files" => policy.recording.events_files = Some(parse_files(value)?),
        "comment" => {}
        other if other.starts_with("x-") || other.starts_with("X-") => {}
        _ => return Err("unknown".to_owned()),
    }
    Ok(())
}

fn one_of<T: ValueEnum>(value: &str) -> Result<T, String> {
    T::from_str(value, false).map_err(|_| {
        let names = T::value_variants().iter().filter_map(T::to_possible_value);
        let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
        format!("the value is one of {}", names.join(", "))
    })
}

/// The words of a list: a comma separates, `\,` and `\\` stand for themselves.
fn split(list: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut letters = list.chars();
    while let Some(letter) = letters.next() {
        let plain = match letter {
            ',' => {
                words.push(String::new());
                continue;
            }
            '\\' => letters.next().unwrap_or('\\'),
            other => other,
        };
        if let Some(word) = words.last_mut() {
            word.push(plain);
        }
    }
    words
}

/// A value as it can stand in a list.
pub(crate) fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Mode, OwnerBy};

    fn read(list: &str) -> Result<(MountArgs, FuseOptions), String> {
        let mut args = MountArgs {
            options: vec![list.to_owned()],
            ..MountArgs::default()
        };
        let options = apply(&mut args)?;
        Ok((args, options))
    }

    #[test]
    fn known_words_have_their_effect() {
        let (_, options) = read("allow_other,suid,dev,noexec,ro,noatime,sync,fsname=a\\,b\\\\c").unwrap();
        assert!(options.allow_other && !options.default_permissions);
        assert_eq!(options.fsname.as_deref(), Some("a,b\\c"));
        let flags = MountFlags {
            nosuid: false,
            nodev: false,
            noexec: true,
            read_only: true,
            noatime: true,
            strictatime: false,
            sync: true,
        };
        assert_eq!(options.flags, flags);
        assert_eq!(
            read("suid,nosuid,ro,rw,noexec,exec").unwrap().1.flags,
            MountFlags::default()
        );
    }

    #[test]
    fn policy_words_are_the_flags() {
        let (args, _) = read("mode=observe,owner-by=user,linger=1m").unwrap();
        assert_eq!(args.policy.mode, Mode::Observe);
        assert_eq!(args.owner_by, Some(OwnerBy::User));
        assert_eq!(args.policy.linger.unwrap().as_secs(), 60);
        let (args, _) = read("rule=keep:a\\,b,rule=off:c=d,rules-writable,self-allow").unwrap();
        assert_eq!(args.policy.rules.rule, ["keep:a,b", "off:c=d"]);
        assert!(args.policy.rules.rules_writable && args.policy.rules.self_allow);
        assert!(read("rule=a").is_err() && read("rule").is_err());
        let (args, _) = read("events-size=2M,events-files=7,events-observations").unwrap();
        let recording = args.policy.recording;
        assert_eq!(
            (recording.events_size, recording.events_files),
            (Some(2 << 20), Some(7))
        );
        assert!(read("events-files=0").is_err() && read("events-size").is_err());
    }

    #[test]
    fn words_of_fstab_have_none() {
        let (_, options) = read("defaults,noauto,user,nofail,_netdev,x-systemd.automount,x-a=b,comment=c,").unwrap();
        assert_eq!(options, FuseOptions::default());
    }

    #[test]
    fn unknown_words_are_named() {
        for (list, named) in [
            ("ro,bogus", "\"bogus\""),
            ("fancy=1", "\"fancy=1\""),
            ("mode=maybe", "enforce, observe"),
            ("mode", "needs a value"),
            ("owner=a b", "owner name"),
            ("owner=A,owner-by=user", "exclude"),
            ("subtype=x", "subtype"),
            ("allow_root", "\"allow_root\""),
        ] {
            let error = read(list).unwrap_err();
            assert!(error.contains(named), "{list}: {error}");
        }
    }

    #[test]
    fn escaping_is_undone_by_splitting() {
        let value = "a,b\\c\\,";
        assert_eq!(split(&escape(value)), [value]);
    }
}
