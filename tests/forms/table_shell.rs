//! The shells' own ways, and the small programs that stand in every script.

use crate::form::Act::{Append, Edit, Harmless, ReadsFirst, Remove, Replace, Untouched};
use crate::form::{Form, Tells, form};

pub(crate) const FORMS: &[Form] = &[
    // Redirections.
    form("sh >", Replace, "printf 'new\\n' >f"),
    form("sh > nothing", Replace, "( : >f )"),
    form("sh >|", Replace, "( set -C; printf 'new\\n' >|f )"),
    form("sh heredoc", Replace, "cat >f <<EOF\nnew\nEOF"),
    form("sh exec >", Replace, "( exec 3>f && echo new >&3 )"),
    form("sh > by a child", Replace, "sh -c 'printf new >f'"),
    form("sh > from a pipe", Replace, "printf new | ( cat >f )"),
    form(
        "sh > shared by several",
        Replace,
        "( { printf a; sh -c 'printf b'; printf c; } >f )",
    ),
    form(
        "sh > through a longer path",
        Replace,
        "printf new >../\"${PWD##*/}\"/./f",
    ),
    form("sh noclobber", Untouched, "( set -C; printf new >f )"),
    form("sh <>", Edit, "printf new 1<>f").tells(Tells::Status),
    form("sh >>", Append, "printf 'more\\n' >>f"),
    form("sh exec >>", Append, "( exec 3>>f && echo more >&3 )"),
    form("sh <f >f2 mv", Replace, "sort <s >f2 && mv f2 f"),
    form("sh sort <f >f2 mv", ReadsFirst, "sort <f >f2 && mv f2 f"),
    form("bash >", Replace, "bash -c 'printf new >f'").needs(&["bash"]),
    form("bash <>", Edit, "bash -c 'exec 3<>f && echo new >&3'").needs(&["bash"]),
    form("bash &>", Replace, "bash -c 'echo new &>f'").needs(&["bash"]),
    form("bash reads, then >", ReadsFirst, "bash -c 'text=$(<f); printf new >f'").needs(&["bash"]),
    // Links on the way.
    form("> through a symlink", Replace, "printf new >l").setup("ln -s f l"),
    form("> through a hard link", Replace, "printf new >h")
        .after("ln f h")
        .named("h"),
    form(">> through a hard link", Append, "printf more >>h").after("ln f h"),
    form("truncate through a symlink", Edit, "truncate -s 3 l")
        .setup("ln -s f l")
        .needs(&["truncate"]),
    form("> through a linked directory", Replace, "printf new >d/f").setup("ln -s . d"),
    // tee, dd, truncate, shred.
    form("tee", Replace, "echo new | tee f"),
    form("tee -a", Append, "echo new | tee -a f"),
    form("dd", Replace, "dd if=s of=f"),
    form("dd notrunc", Edit, "dd if=s of=f bs=4 count=1 conv=notrunc"),
    form("dd seek", Edit, "dd if=s of=f bs=1 count=1 seek=2 conv=notrunc"),
    form("dd append", Append, "dd if=s of=f oflag=append conv=notrunc"),
    form("dd excl", Untouched, "dd if=s of=f conv=excl"),
    form("dd nocreat", Replace, "dd if=s of=f conv=nocreat"),
    form("truncate -s 0", Edit, "truncate -s 0 f"),
    form("truncate -s 5", Edit, "truncate -s 5 f"),
    form("truncate -s +100", Edit, "truncate -s +100 f"),
    form("shred", Edit, "shred -x -n 0 -z f"),
    form("shred -u", Edit, "shred -x -n 0 -z -u f"),
    form("fallocate longer", Edit, "fallocate -l 5000 f"),
    form("fallocate -p", Edit, "fallocate -p -o 2 -l 6 f"),
    form("fallocate -z", Edit, "fallocate -z -o 2 -l 6 f"),
    // Probes and metadata.
    form("touch", Untouched, "touch f"),
    form("touch -d", Untouched, "touch -d 2001-02-03T04:05:06 f"),
    form("chmod", Untouched, "chmod 644 f"),
    form("chown", Untouched, "chown \"$(id -u)\" f"),
    form("flock", Untouched, "flock f true"),
    form("setfattr", Untouched, "setfattr -n user.note -v new f").needs(&["setfattr"]),
    form("setfacl", Untouched, "setfacl -m u::rw f").needs(&["setfacl"]),
    form("mkdir on it", Untouched, "mkdir f"),
    form("mkfifo on it", Untouched, "mkfifo f"),
    form("rmdir it", Untouched, "rmdir f"),
    form("move a directory on it", Untouched, "mv -T d f").setup("mkdir d"),
    // Removal.
    form("rm", Remove, "rm f"),
    form("rm -f", Remove, "rm -f f"),
    form("unlink", Remove, "unlink f"),
    form("rm -rf", Remove, "rm -rf d")
        .setup("mkdir -p d/e; echo x >d/e/x")
        .target("d/f"),
    form("find -delete", Remove, "find . -name f -delete"),
    form("rm then >", Remove, "rm f && printf new >f"),
    form("rm a hard link", Remove, "rm h && printf new >h")
        .after("ln h f")
        .target("h"),
    form("mv away", Remove, "mv f g"),
    form("mv into a directory", Remove, "mv f d/").setup("mkdir d"),
    form("mv away then >", Remove, "mv f g && printf new >f"),
    form("mv its directory", Harmless, "mv d e")
        .setup("mkdir d")
        .target("d/f"),
    // In-place editors of the shell.
    form("sed -i", ReadsFirst, "sed -i s/old/new/ f"),
    form("sed -i.bak", ReadsFirst, "sed -i.bak s/old/new/ f"),
    form(
        "sed -i --follow-symlinks",
        ReadsFirst,
        "sed -i --follow-symlinks s/old/new/ l",
    )
    .setup("ln -s f l"),
    form("sed w", Replace, "sed -n 'w f' s"),
    form(
        "gawk -i inplace",
        ReadsFirst,
        "gawk -i inplace '{ sub(/old/, \"new\"); print }' f",
    )
    .needs(&["gawk"]),
    form("awk >", Replace, "awk 'BEGIN { print \"new\" > \"f\" }'").tells(Tells::Errno),
    form("awk >>", Append, "awk 'BEGIN { print \"new\" >> \"f\" }'"),
    form("sort -o itself", ReadsFirst, "sort -o f f"),
    form("sort -o", Edit, "sort -o f s"),
    form("uniq", Replace, "uniq s f"),
    form("split", Edit, "split -a 1 -n 1 s f").target("fa"),
    form("csplit", Replace, "csplit -s -f f -n 1 s 2").target("f0"),
    form("iconv -o", Replace, "iconv -f utf-8 -t utf-8 -o f s"),
    form("ed", ReadsFirst, "printf '2s/old/new/\\nw\\nq\\n' | ed -s f").needs(&["ed"]),
    form("ed blind", Replace, "printf 'a\\nnew\\n.\\nw f\\nq\\n' | ed -s").needs(&["ed"]),
    form("patch", ReadsFirst, "patch f p").setup(PATCH).needs(&["patch"]),
    form("patch -b", ReadsFirst, "patch -b f p")
        .setup(PATCH)
        .needs(&["patch"]),
];

const PATCH: &str = "printf '%s\\n' '--- f' '+++ f' '@@ -2,2 +2,2 @@' '-old line' '+new line' ' last line' >p";
