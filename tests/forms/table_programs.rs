//! Languages, compilers and editors.

use crate::form::Act::{Append, Edit, ReadsFirst, Remove, Replace, Untouched};
use crate::form::Outcome::AllowedInTheEnd;
use crate::form::Situation::{ForeignByOutsider, ForeignByOwner, StaleByOutsider, StaleByOwner};
use crate::form::{Exception, Form, Tells, form};

macro_rules! python {
    ($name:literal, $act:expr, $code:literal) => {
        form(
            $name,
            $act,
            concat!(
                "python3 -c '\nimport os, shutil, mmap, fcntl, ctypes, pathlib\n",
                $code,
                "'"
            ),
        )
        .needs(&["python3"])
    };
}

macro_rules! node {
    ($name:literal, $act:expr, $code:literal) => {
        form($name, $act, concat!("node -e '", $code, "'"))
            .needs(&["node"])
            .tells(Tells::Status)
    };
}

macro_rules! vim {
    ($name:literal, $act:expr, $arguments:literal) => {
        form(
            $name,
            $act,
            concat!("vim -u NONE -i NONE -es -N --cmd 'set bsk=' ", $arguments),
        )
        .needs(&["vim"])
        .tells(Tells::Status)
    };
}

const BACKUP_IN_PLACE: Tells = Tells::Nothing("the kernel's word goes to the editor's screen only");

const COPIES: &str = "when it may not rename the file to its backup, it copies it there: it reads the target by itself";
const COPIES_ITS_BACKUP: &[Exception] = &[
    (StaleByOwner, AllowedInTheEnd, COPIES),
    (StaleByOutsider, AllowedInTheEnd, COPIES),
    (ForeignByOwner, AllowedInTheEnd, COPIES),
    (ForeignByOutsider, AllowedInTheEnd, COPIES),
];

pub(crate) const FORMS: &[Form] = &[
    python!("python w", Replace, "open(\"f\", \"w\").write(\"new\")"),
    python!("python w+", Replace, "open(\"f\", \"w+\").write(\"new\")"),
    python!(
        "python r+",
        Edit,
        "h = open(\"f\", \"r+\"); h.write(\"new\"); h.close()"
    ),
    python!(
        "python r+ truncate",
        Edit,
        "h = open(\"f\", \"r+\"); h.truncate(4); h.close()"
    ),
    python!(
        "python r+ reads, then writes",
        ReadsFirst,
        "h = open(\"f\", \"r+\"); h.read(1); h.seek(0); h.write(\"new\"); h.close()"
    ),
    python!(
        "python reads, then w",
        ReadsFirst,
        "open(\"f\").read(); open(\"f\", \"w\").write(\"new\")"
    ),
    python!("python a", Append, "open(\"f\", \"a\").write(\"more\")"),
    python!(
        "python a truncate",
        Edit,
        "h = open(\"f\", \"a\"); h.truncate(3); h.close()"
    ),
    python!("python x", Untouched, "open(\"f\", \"x\").write(\"new\")"),
    python!("python pathlib", Replace, "pathlib.Path(\"f\").write_text(\"new\")"),
    python!(
        "python os.replace",
        Replace,
        "open(\"t\", \"w\").write(\"new\"); os.replace(\"t\", \"f\")"
    ),
    python!(
        "python os.rename",
        Replace,
        "open(\"t\", \"w\").write(\"new\"); os.rename(\"t\", \"f\")"
    ),
    python!(
        "python os.rename by descriptor",
        Replace,
        "d = os.open(\".\", os.O_RDONLY)\nopen(\"t\", \"w\").write(\"new\")\nos.rename(\"t\", \"f\", src_dir_fd=d, dst_dir_fd=d)"
    ),
    python!("python os.link", Untouched, "os.link(\"s\", \"f\")"),
    python!("python os.remove", Remove, "os.remove(\"f\")"),
    python!("python rmtree", Remove, "shutil.rmtree(\"d\")")
        .setup("mkdir -p d/e")
        .target("d/e/f"),
    python!(
        "python remove, then x",
        Remove,
        "os.remove(\"f\"); open(\"f\", \"x\").write(\"new\")"
    ),
    python!(
        "python rename away, then w",
        Remove,
        "os.rename(\"f\", \"g\"); open(\"f\", \"w\").write(\"new\")"
    ),
    python!("python shutil.copyfile", Replace, "shutil.copyfile(\"s\", \"f\")"),
    python!("python shutil.copy", Replace, "shutil.copy(\"s\", \"f\")"),
    python!("python shutil.copy2", Replace, "shutil.copy2(\"s\", \"f\")"),
    python!("python shutil.move", Replace, "shutil.move(\"s\", \"f\")"),
    python!(
        "python O_WRONLY",
        Edit,
        "h = os.open(\"f\", os.O_WRONLY); os.write(h, b\"new\"); os.close(h)"
    ),
    python!(
        "python O_RDWR",
        Edit,
        "h = os.open(\"f\", os.O_RDWR); os.write(h, b\"new\"); os.close(h)"
    ),
    python!(
        "python O_RDONLY O_TRUNC",
        Replace,
        "os.open(\"f\", os.O_RDONLY | os.O_TRUNC)"
    ),
    python!(
        "python O_SYNC",
        Edit,
        "h = os.open(\"f\", os.O_WRONLY | os.O_SYNC); os.write(h, b\"new\")"
    ),
    python!(
        "python pwrite",
        Edit,
        "h = os.open(\"f\", os.O_WRONLY); os.pwrite(h, b\"new\", 3)"
    ),
    python!(
        "python writev",
        Edit,
        "h = os.open(\"f\", os.O_WRONLY); os.writev(h, [b\"n\", b\"ew\"])"
    ),
    python!(
        "python O_APPEND pwrite",
        Append,
        "h = os.open(\"f\", os.O_WRONLY | os.O_APPEND); os.pwrite(h, b\"new\", 0)"
    ),
    python!(
        "python O_APPEND cleared",
        Edit,
        "h = os.open(\"f\", os.O_WRONLY | os.O_APPEND)\nfcntl.fcntl(h, fcntl.F_SETFL, 0)\nos.pwrite(h, b\"new\", 0)"
    ),
    python!(
        "python ftruncate and write",
        Edit,
        "h = os.open(\"f\", os.O_WRONLY); os.ftruncate(h, 0); os.write(h, b\"new\")"
    ),
    python!("python os.truncate", Edit, "os.truncate(\"f\", 3)"),
    python!("python os.truncate 0", Replace, "os.truncate(\"f\", 0)"),
    python!(
        "python posix_fallocate",
        Edit,
        "h = os.open(\"f\", os.O_WRONLY); os.posix_fallocate(h, 0, 6000)"
    ),
    python!(
        "python copy_file_range",
        Edit,
        "s = os.open(\"s\", os.O_RDONLY); h = os.open(\"f\", os.O_WRONLY)\nos.copy_file_range(s, h, 8)"
    ),
    python!(
        "python copy_file_range within",
        ReadsFirst,
        "s = os.open(\"f\", os.O_RDONLY); h = os.open(\"f\", os.O_WRONLY)\nos.copy_file_range(s, h, 4, 0, 12)"
    ),
    python!(
        "python sendfile",
        Edit,
        "s = os.open(\"s\", os.O_RDONLY); h = os.open(\"f\", os.O_WRONLY)\nos.sendfile(h, s, 0, 8)"
    ),
    python!(
        "python splice",
        Edit,
        "r, w = os.pipe(); os.write(w, b\"new\"); h = os.open(\"f\", os.O_WRONLY)\nos.splice(r, h, 3)"
    ),
    python!(
        "python mmap",
        Edit,
        "h = os.open(\"f\", os.O_RDWR)\nm = mmap.mmap(h, 0); m[0:3] = b\"new\"; m.flush()"
    )
    .tells(Tells::StatusWithoutLine),
    python!(
        "python mmap after a read",
        ReadsFirst,
        "open(\"f\").read(); h = os.open(\"f\", os.O_RDWR)\nm = mmap.mmap(h, 0); m[0:3] = b\"new\"; m.flush()"
    ),
    python!(
        "python mmap private",
        Untouched,
        "h = os.open(\"f\", os.O_RDONLY)\nm = mmap.mmap(h, 0, access=mmap.ACCESS_COPY); m[0:3] = b\"new\""
    ),
    python!(
        "python /proc/self/fd",
        Replace,
        "h = os.open(\"f\", os.O_PATH)\nopen(\"/proc/self/fd/%d\" % h, \"w\").write(\"new\")"
    ),
    python!(
        "python exchange",
        Replace,
        "open(\"g\", \"w\").write(\"new\")\nlibc = ctypes.CDLL(None, use_errno=True)\nif libc.renameat2(-100, b\"g\", -100, b\"f\", 2): raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))"
    ),
    python!(
        "python exchange, it first",
        Replace,
        "open(\"g\", \"w\").write(\"new\")\nlibc = ctypes.CDLL(None, use_errno=True)\nif libc.renameat2(-100, b\"f\", -100, b\"g\", 2): raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))"
    ),
    python!(
        "python noreplace",
        Untouched,
        "libc = ctypes.CDLL(None, use_errno=True)\nassert libc.renameat2(-100, b\"s\", -100, b\"f\", 1) == -1 and ctypes.get_errno() == 17"
    ),
    python!(
        "python O_TMPFILE and link",
        Untouched,
        "h = os.open(\".\", os.O_TMPFILE | os.O_RDWR); os.write(h, b\"new\")\nos.link(\"/proc/self/fd/%d\" % h, \"f\", follow_symlinks=True)"
    ),
    python!(
        "python open and close",
        Untouched,
        "os.close(os.open(\"f\", os.O_RDWR)); os.close(os.open(\"f\", os.O_WRONLY | os.O_CREAT))"
    ),
    python!("python utime", Untouched, "os.utime(\"f\", (1, 2))"),
    form(
        "perl >",
        Replace,
        "perl -e 'open F, \">\", \"f\" or die \"$!\"; print F \"new\"'",
    ),
    form(
        "perl +<",
        Edit,
        "perl -e 'open F, \"+<\", \"f\" or die \"$!\"; print F \"new\"; close F or die \"$!\"'",
    ),
    form(
        "perl >>",
        Append,
        "perl -e 'open F, \">>\", \"f\" or die \"$!\"; print F \"new\"'",
    ),
    form("perl truncate", Edit, "perl -e 'truncate \"f\", 3 or die \"$!\"'"),
    form(
        "perl rename",
        Replace,
        "printf new >g && perl -e 'rename \"g\", \"f\" or die \"$!\"'",
    ),
    form("perl unlink", Remove, "perl -e 'unlink \"f\" or die \"$!\"'"),
    form("perl -i", ReadsFirst, "perl -i -pe 's/old/new/' f"),
    form("perl -i.bak", ReadsFirst, "perl -i.bak -pe 's/old/new/' f"),
    form("ruby write", Replace, "ruby -e 'File.write(\"f\", \"new\")'").needs(&["ruby"]),
    node!("node writeFileSync", Replace, "fs.writeFileSync(\"f\", \"new\")"),
    node!(
        "node writeFile",
        Replace,
        "fs.promises.writeFile(\"f\", \"new\").catch(e => process.exit(3))"
    ),
    node!(
        "node stream",
        Replace,
        "fs.createWriteStream(\"f\").on(\"error\", () => process.exit(3)).end(\"new\")"
    ),
    node!("node appendFileSync", Append, "fs.appendFileSync(\"f\", \"more\")"),
    node!(
        "node r+",
        Edit,
        "const h = fs.openSync(\"f\", \"r+\"); fs.writeSync(h, \"new\"); fs.ftruncateSync(h, 3)"
    ),
    node!(
        "node wx",
        Untouched,
        "fs.writeFileSync(\"f\", \"new\", { flag: \"wx\" })"
    ),
    node!(
        "node renameSync",
        Replace,
        "fs.writeFileSync(\"t\", \"new\"); fs.renameSync(\"t\", \"f\")"
    ),
    node!("node rmSync", Remove, "fs.rmSync(\"f\")"),
    node!("node truncateSync", Edit, "fs.truncateSync(\"f\", 3)"),
    // Unlinks its destination when the copy fails: what was refused must not go that way.
    node!("node copyFileSync", Edit, "fs.copyFileSync(\"s\", \"f\")"),
    node!("node cpSync", Remove, "fs.cpSync(\"s\", \"f\", { force: true })"),
    node!(
        "node reads, then writes",
        ReadsFirst,
        "fs.readFileSync(\"f\"); fs.writeFileSync(\"f\", \"new\")"
    ),
    form("gcc -E -o", Replace, "gcc -x c -E -P -o f m")
        .setup("echo 'int x;' >m")
        .needs(&["gcc"])
        .tells(Tells::Status),
    form("gcc -o", Remove, "gcc -o f m.c")
        .setup("echo 'int main(void) { return 0; }' >m.c")
        .needs(&["gcc"])
        .tells(Tells::Status),
    form("as -o", Remove, "as -o f m.s")
        .setup("echo nop >m.s")
        .needs(&["as"])
        .tells(Tells::Status),
    form("ld -o", Remove, "ld -o f m.o")
        .setup("printf '.globl _start\\n_start: nop\\n' >m.s; as -o m.o m.s")
        .needs(&["as", "ld"])
        .tells(Tells::Status),
    // Editors, in their own ways of saving.
    vim!("vim :w", ReadsFirst, "f -c 's/last/new/' -c w -c 'qa!'"),
    vim!("vim :w!", ReadsFirst, "f -c 's/last/new/' -c 'w!' -c 'qa!'"),
    vim!(
        "vim backupcopy=no",
        ReadsFirst,
        "-c 'set backupcopy=no' f -c 's/last/new/' -c w -c 'qa!'"
    ),
    vim!(
        "vim backupcopy=yes",
        ReadsFirst,
        "-c 'set backupcopy=yes' f -c 's/last/new/' -c w -c 'qa!'"
    ),
    vim!(
        "vim backup",
        ReadsFirst,
        "-c 'set backup' f -c 's/last/new/' -c w -c 'qa!'"
    ),
    vim!(
        "vim nowritebackup",
        ReadsFirst,
        "-c 'set nowritebackup' f -c 's/last/new/' -c w -c 'qa!'"
    ),
    vim!("vim blind :w", Untouched, "-c 'normal inew' -c 'w f' -c 'qa!'"),
    vim!(
        "vim blind :w!, nowritebackup",
        Edit,
        "-c 'set nowb' -c 'normal inew' -c 'w! f' -c 'qa!'"
    )
    .tells(BACKUP_IN_PLACE),
    // Reads the target to copy it to its backup just before it overwrites it: an observation like any other.
    vim!(
        "vim blind :w!, backupcopy=yes",
        ReadsFirst,
        "-c 'set backupcopy=yes' -c 'normal inew' -c 'w! f' -c 'qa!'"
    ),
    vim!(
        "vim blind :w!, backupcopy=no",
        Remove,
        "-c 'set backupcopy=no' -c 'normal inew' -c 'w! f' -c 'qa!'"
    )
    .except(COPIES_ITS_BACKUP)
    .tells(BACKUP_IN_PLACE),
    vim!("vim :w >>", Append, "-c 'normal inew' -c 'w >> f' -c 'qa!'"),
    form(
        "nvim :w!",
        ReadsFirst,
        "nvim -u NONE -i NONE -n -es f -c 's/last/new/' -c 'w!' -c 'qa!'",
    )
    .needs(&["nvim"]),
    form(
        "nvim blind :w!",
        Replace,
        "nvim -u NONE -i NONE -n -es --cmd 'set nowb' -c 'normal inew' -c 'w! f' -c 'qa!'",
    )
    .needs(&["nvim"])
    .tells(BACKUP_IN_PLACE),
    form(
        "emacs write-region",
        Replace,
        "emacs -Q --batch --eval '(write-region \"new\" nil \"f\")'",
    )
    .needs(&["emacs"]),
    form(
        "emacs save-buffer",
        ReadsFirst,
        "emacs -Q --batch f --eval '(progn (insert \"new\") (save-buffer))'",
    )
    .needs(&["emacs"]),
];
