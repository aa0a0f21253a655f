//! The words of the help: examples of every command, and the topics of `unclobber help`.
//!
//! It never describes a flag: those are described where they stand, in `args`.

/// What is said to somebody who has asked for nothing.
pub(crate) const START: &str = "\
unclobber keeps programs from overwriting what they have not read.

  unclobber run -- CMD         run CMD in a guarded view of the current directory
  unclobber run -- bash        the same with a shell: try `echo x > FILE` there, then
                               `cat FILE`, then `echo x > FILE` again
  unclobber why FILE           may it be changed, and if not, what to do next?
  unclobber status             what is guarded now
  unclobber undo               bring back what the last removal or replacement displaced
  unclobber doctor             can this machine do it?

`unclobber help` lists all commands, `unclobber help COMMAND` explains one.
";

pub(crate) const OVERVIEW_EXAMPLES: &str = "\
Examples:
  unclobber run -- bash                          a shell in a guarded view of the current directory
  unclobber run -w ~/project --owner A -- make   one owner's command in a project
  unclobber mount ~/project                      guard it for everybody until unmounted
  unclobber doctor                               can this machine do it?

`unclobber help exit-codes` lists exit codes, `unclobber help refusals` what a refusal means.";

pub(crate) const RUN_EXAMPLES: &str = "\
Examples:
  unclobber run -- make test
  unclobber run --workspace ~/project -- ./agent
  unclobber run --owner A -- cat notes.txt     two commands of one owner:
  unclobber run --owner A -- sh -c 'echo done > notes.txt'
  unclobber run --mode observe -- make         refuse nothing, show what would have been refused
  unclobber run --report refusals.json -- make

--mode observe does what the directory itself would: nothing is kept in the
attic either, and what is overwritten or removed is gone.

DIR is mounted over itself where only CMD can see it, so no path changes.
If DIR is on an unclobber mount already, CMD joins that mount as the owner
NAME, and the mount's own rules hold. Refusals appear on standard error, one
line each, and begin with `unclobber: `; the same one again is counted, and all
are summed up at the end; paths in them are absolute unless `run` was started
in DIR itself. `unclobber help refusals` says what to do. Processes that CMD
leaves behind stay guarded until they end.

Without --owner each `run` is an owner of its own, for which nothing that
another has read counts: read and retry in one, or name the owner in both.

As root, CMD runs without CAP_SYS_ADMIN, CAP_SYS_PTRACE and
CAP_DAC_READ_SEARCH, by which it could unmount its view or reach round it, and
in a Landlock domain of its own: mount(8), unshare(1) without a user namespace,
looking into processes outside, and connecting to abstract Unix sockets made
outside fail in it. --keep-capabilities leaves it all that.

Exit codes: CMD's own; 128 and the signal if a signal ended it; 125 if
unclobber failed, 126 if CMD cannot be executed, 127 if it is not found; 2 for
a wrong command line.";

pub(crate) const MOUNT_EXAMPLES: &str = "\
Examples:
  unclobber mount ~/project                    over itself
  unclobber mount ~/project /mnt/view          elsewhere
  unclobber mount --owner-by process ~/project
  unclobber mount -o allow_other,noexec ~/project /mnt/view
  mount -t fuse.unclobber /srv/data /mnt/data -o mode=observe

The last one, and fstab, need a link to unclobber by the name of
mount.fuse.unclobber in /sbin.

Programs that had DIR or a file in it open before it was mounted over itself,
also a shell that stands in it, go on in the directory beneath: `cd` again.
Refusals are written to the guard's log (`unclobber help refusals`); commands
under `unclobber run -w DIR --owner NAME` show their own.

Exit codes: 0 mounted, 1 failed, 2 for a wrong command line.";

pub(crate) const UMOUNT_EXAMPLES: &str = "\
Examples:
  unclobber umount ~/project
  unclobber umount --lazy ~/project            also when it is in use

Exit codes: 0 unmounted, 1 failed (in use, or no mount of unclobber), 2 for a wrong command line.";

pub(crate) const STATUS_EXAMPLES: &str = "\
Examples:
  unclobber status
  unclobber status --verbose                   ids and counts, too
  unclobber status --json ~/project
  unclobber status --metrics                   for Prometheus

Exit codes: 0, also when nothing is mounted; 1 if MOUNTPOINT is given and has
no guard; 2 for a wrong command line.";

pub(crate) const TOP_EXAMPLES: &str = "\
Examples:
  unclobber top
  unclobber top ~/project
  unclobber top --interval 0.5

Keys: q, Esc or Ctrl-C quit; p pauses; up and down scroll the owners.
OPS are requests of programs, READ what was read or found missing, REFUSED what
was refused. Below, each refusal with why and what to do, until that was done.
`unclobber why FILE` says more about one.
It needs a terminal; for programs there is `unclobber status --json`.

Exit codes: 0 when it was ended; 1 failed, or the guard has ended; 2 for a wrong
command line.";

pub(crate) const WHY_EXAMPLES: &str = "\
Examples:
  unclobber why notes.txt                      may I write to it, and if not, what next?
  unclobber why --op remove notes.txt
  unclobber why --diff notes.txt               what has changed since it was read
  unclobber why --owner alice ~/project/notes.txt

Asking changes nothing. Inside a `run` the answer is about your own owner, outside
about every owner, or the one named.

Exit codes: 0 it would be allowed; 1 it would be refused or fail (to any of the
owners shown); 125 unclobber failed; 2 for a wrong command line.";

pub(crate) const LOG_EXAMPLES: &str = "\
Examples:
  unclobber log                                everything, the oldest first
  unclobber log --follow --refused             refusals as they happen
  unclobber log --owner A --path 'src/**' --json ~/project

Reads the file that the guard of DIR writes, or wrote, and its older ones; it
survives that they are begun anew. It says where a guard was killed.
docs/EVENTS.md describes the lines.

Exit codes: 0 done, 1 no record is there, 2 for a wrong command line.";

pub(crate) const REPORT_EXAMPLES: &str = "\
Examples:
  unclobber run --mode observe -- make         refuse nothing, write down what would be
  unclobber report                             which paths, which programs, which rule, how often
  unclobber report --toml >~/project/.unclobber.toml
  unclobber report --json ~/project

Ends with a proposed .unclobber.toml. Refusals that kept somebody's work from
being overwritten are counted, and no rule is proposed for them.

Exit codes: 0 done, 1 no record is there, 2 for a wrong command line.";
pub(crate) const RULES_EXAMPLES: &str = "\
Examples:
  unclobber rules                              all rules of this directory, in order
  unclobber rules src/main.rs                  which one decides, and where it stands

The file .unclobber.toml in the guarded directory holds rules of its own:
  [[rule]]
  pattern = \"docs/**\"        gitignore glob from the directory
  level = \"keep\"             guard | keep | off
  command = \"/usr/bin/git\"   optional: only for processes that run this program

guard: what has not been read is not overwritten. keep: nothing is refused, and
what is displaced is kept in the attic. off: nothing is judged or kept.

Exit codes: 0 done, 1 failed (also: the file is wrong), 2 for a wrong command
line.";

pub(crate) const ALLOW_EXAMPLES: &str = "\
Examples:
  unclobber allow notes.txt --owner alice      alice's next change of it
  unclobber allow secret.key --for 10m         whoever changes it first

One change is let through, although it would be refused; what was there is kept
in the attic. Inside `run` it is refused unless the mount was made with
--self-allow, and then it is for the owner's own changes.

Exit codes: 0 done, 1 failed, 2 for a wrong command line.";

pub(crate) const ATTIC_EXAMPLES: &str = "\
Examples:
  unclobber attic list ~/project
  unclobber attic show 006b0de4ab              print what was kept
  unclobber attic diff 006b0de4ab              against what is there now
  unclobber attic restore 006b0de4ab           back to where it was
  unclobber attic restore 006b0de4ab --to /tmp/old.txt
  unclobber attic prune --older-than 2d

ID is what `list` shows, or the beginning of it. Nothing is ever replaced: where
something is in the way, restore fails and names --to. The commands need no
guard to run, and are refused on an unclobber mount: use them outside `run`.
A file with another name still (a hard link) is not kept when one name goes: its
content is in the other.

Exit codes: 0 done, 1 failed, 2 for a wrong command line.";

pub(crate) const UNDO_EXAMPLES: &str = "\
Examples:
  unclobber undo                               the last removal or replacement
  unclobber undo --owner A --last 3 ~/project

What a replacement has put in the place of something is exchanged with it, and
kept: a line gives its id, and says whose it is if another owner has changed it
since; `unclobber attic show ID` prints it. So it is where a file was removed
and made anew, unless somebody else is known to have made it. What was removed
comes back where nothing is in the way; of the rest it says how to compare and
where else to put it. Works outside `unclobber run` only, like `unclobber attic`.

Exit codes: 0 all restored, 1 not all were restored, or there was nothing to restore, 2 for a wrong command line.";

pub(crate) const DOCTOR_EXAMPLES: &str = "\
Examples:
  unclobber doctor
  unclobber doctor --json ~/project

Exit codes: 0 if `run` can work here, 1 if not, 2 for a wrong command line.";

/// The topics of `unclobber help`, besides the commands.
pub(crate) const TOPICS: [(&str, &str); 3] = [("exit-codes", EXIT_CODES), ("options", OPTIONS), ("refusals", REFUSALS)];

const EXIT_CODES: &str = "\
Exit codes

  every command
    0    done
    1    failed: standard error says what, why, and what to do
    2    wrong command line

  unclobber run
    N    the command's own exit code
    128+N  the command was ended by signal N
    125  unclobber itself failed before or after the command
    126  the command was found but cannot be executed
    127  the command was not found

  unclobber why
    0    the change would be allowed
    1    it would be refused, or fail
    125  unclobber itself failed

  unclobber doctor
    0    `run` can work here
    1    it cannot; each failed line names its cure
";

const OPTIONS: &str = "\
Mount options (-o), separated by commas; a comma inside a value is written \\,

  fsname=NAME            what `mount` and `df` show as the source [DIR]
  allow_other            other users may come in (implies default_permissions)
  default_permissions    the kernel checks permissions
  ro, rw                 read-only or not [rw]
  suid, nosuid           whether set-user-ID bits have effect [nosuid; by mount(8) suid]
  dev, nodev             whether device nodes can be opened [nodev; by mount(8) dev]
  exec, noexec           whether files can be executed [as on DIR]
  atime, noatime, strictatime
                         access times move as on DIR, not at all, with every access (root)
  relatime, diratime, nodiratime: no effect; sync, async
  remount                by mount(8): change these; the flags below stay as they are
  owner=, owner-by=, mode=, unseen=, remove=, view=, create=, durability=, cache=,
  passthrough=, linger=, attic=, attic-age=, attic-size=, attic-copy=, max-records=, events=,
  events-size=, events-files=, events-observations, rule=, rules-writable, self-allow
                         the same as the flags, for fstab

Words that only `mount` and fstab use (defaults, auto, noauto, user, users, nofail, _netdev, x-..., comment=...) are
accepted and have no effect here.
";

const REFUSALS: &str = "\
Refusals

A program that would destroy content its owner has not seen gets an error instead, and nothing has been damaged.
Under `run` each refusal is also one line on standard error. On a plain mount it is in .unclobber/refusals at the mount's
root; `unclobber log --refused` shows them all, and with --follow as they happen. `unclobber why FILE` says whether a
change would be refused, and what to do next.

  FS_NOT_OBSERVED      \"File exists\"; \"Device or resource busy\" when removing
                       the file is there and has not been read: read it, then retry
  FS_STALE_VERSION     \"Stale file handle\"
                       it has changed since it was read: read it again, then retry;
                       or it has gone: look at the path itself (ls PATH), then create it
  FS_NOT_FOUND         \"No such file or directory\"
                       there is nothing to edit: create it instead
  FS_NOT_REGULAR_FILE  \"Is a directory\" or \"File exists\"
                       choose another name
  FS_RULES_FIXED       \"Read-only file system\"
                       .unclobber.toml is not for commands inside to change:
                       change it outside the mount, or use --rules-writable
  FS_IO_ERROR          the directory's own error: look there, then retry

Where another owner is still writing the file, it is named with its command: wait until that has closed it, then read.
Where what a program wrote is not in the file, since another owner had removed or replaced it meanwhile, or had taken the
name, the line says under which id the attic has it, and the command that prints it.

What the kernel answers by itself, such as \"Is a directory\" to a redirect into one, is no refusal and has no line.
Reading by any process of the same owner counts. `unclobber allow` lets one change through unread. `unclobber run --mode observe` refuses nothing.
";
