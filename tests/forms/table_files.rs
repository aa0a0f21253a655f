//! Copying, moving, linking, archives and compressors.

use crate::form::Act::{Edit, ReadsFirst, Remove, Replace, Untouched};
use crate::form::{Form, Tells, form};

const ARCHIVE: &str = "mkdir x && cp s x/f && tar -cf a.tar -C x f && rm -r x";

pub(crate) const FORMS: &[Form] = &[
    form("cp", Replace, "cp s f"),
    form("cp -f", Replace, "cp -f s f").tells(Tells::ErrnoOfRemoval),
    form("cp -p", Replace, "cp -p s f"),
    form("cp -a", Replace, "cp -a s f"),
    form("cp -R", Replace, "cp -R d/. .").setup("mkdir d; echo new >d/f"),
    form("cp --reflink=auto", Replace, "cp --reflink=auto s f"),
    form("cp --sparse=always", Replace, "cp --sparse=always s f"),
    form("cp --remove-destination", Remove, "cp --remove-destination s f"),
    form("cp -b", Remove, "cp -b s f"),
    form("cp --backup=numbered", Remove, "cp --backup=numbered s f"),
    form("cp -n", Untouched, "cp -n s f"),
    form("cp -l", Untouched, "cp -l s f"),
    form("cp -lf", Replace, "cp -lf s f"),
    form("cp -sf", Replace, "cp -sf s f"),
    form("cp --attributes-only", Untouched, "cp --attributes-only s f"),
    form("install", Remove, "install -m 644 s f"),
    form("install -b", Remove, "install -b -m 644 s f"),
    form("mv", Replace, "mv s f"),
    form("mv -f", Replace, "mv -f s f"),
    form("mv -b", Remove, "mv -b s f"),
    form("mv -n", Untouched, "mv -n s f"),
    form("mv own", Replace, "printf new >g && mv g f"),
    form("mv a symlink", Replace, "mv l f").setup("ln -s s l"),
    form("mv a fifo", Replace, "mv p f").setup("mkfifo p"),
    form("ln", Untouched, "ln s f"),
    form("ln -s", Untouched, "ln -s s f"),
    form("ln -f", Replace, "ln -f s f"),
    form("ln -sf", Replace, "ln -sf s f"),
    form("ln from it", Untouched, "ln f g"),
    // Archives: extraction removes, then creates.
    form("tar x", Remove, "tar -xf a.tar")
        .setup(ARCHIVE)
        .tells(Tells::Status),
    form("tar -U", Remove, "tar -U -xf a.tar").setup(ARCHIVE),
    form("tar --overwrite", Replace, "tar --overwrite -xf a.tar").setup(ARCHIVE),
    form("tar -k", Untouched, "tar -kxf a.tar").setup(ARCHIVE),
    form("tar --skip-old-files", Untouched, "tar --skip-old-files -xf a.tar").setup(ARCHIVE),
    form("tar -O >", Replace, "tar -xOf a.tar >f").setup(ARCHIVE),
    form("tar c", Replace, "tar --mtime=@0 --owner=0 --group=0 -cf f s"),
    form("bsdtar x", Remove, "bsdtar -xf a.tar")
        .setup(ARCHIVE)
        .needs(&["bsdtar"])
        .tells(Tells::Status),
    form("bsdtar -k", Untouched, "bsdtar -xkf a.tar")
        .setup(ARCHIVE)
        .needs(&["bsdtar"]),
    form("cpio -idu", Remove, "cpio -idu --quiet <a.cpio")
        .setup("mkdir x && cp s x/f && ( cd x && echo f | cpio -o --quiet >../a.cpio ) && rm -r x")
        .needs(&["cpio"])
        .tells(Tells::Nothing("says it, goes on with the next file, and ends with 0")),
    form("unzip -o", Remove, "unzip -q -o a.zip")
        .setup("mkdir x && cp s x/f && ( cd x && zip -q ../a.zip f ) && rm -r x")
        .needs(&["zip", "unzip"])
        .tells(Tells::Status),
    form("unzip -n", Untouched, "unzip -q -n a.zip")
        .setup("mkdir x && cp s x/f && ( cd x && zip -q ../a.zip f ) && rm -r x")
        .needs(&["zip", "unzip"]),
    // Compressors.
    form("gzip -f", Remove, "gzip -n -k -f s").target("s.gz"),
    form("gzip of it", ReadsFirst, "gzip -n f"),
    form("gunzip -f", Remove, "gunzip -f f.gz").setup("gzip -n -c s >f.gz"),
    form("gunzip -c >", Replace, "gunzip -c f.gz >f").setup("gzip -n -c s >f.gz"),
    // bzip2 opens its target for reading to see whether it is there: by the rule, an observation.
    form("bzip2 -f", ReadsFirst, "bzip2 -k -f s")
        .target("s.bz2")
        .needs(&["bzip2"]),
    form("xz -f", Remove, "xz -k -f s").target("s.xz").needs(&["xz"]),
    form("zstd -f", Remove, "zstd -q -f s")
        .target("s.zst")
        .needs(&["zstd"])
        .tells(Tells::Status),
    form("unzstd -f", Remove, "unzstd -q -f f.zst")
        .setup("zstd -q s -o f.zst")
        .needs(&["zstd"])
        .tells(Tells::Status),
    // rsync opens its basis for reading, which is an observation.
    form("rsync", ReadsFirst, "rsync -I s f").needs(&["rsync"]),
    form("rsync --inplace", ReadsFirst, "rsync -I --inplace s f").needs(&["rsync"]),
    form("rsync --whole-file --inplace", ReadsFirst, "rsync -I -W --inplace s f").needs(&["rsync"]),
    form("rsync --append", ReadsFirst, "rsync --append big f")
        .setup("printf '%0100d\\n' 1 >big")
        .needs(&["rsync"]),
    form("rsync -b", ReadsFirst, "rsync -I -b s f").needs(&["rsync"]),
    form("rsync --delete", Remove, "rsync -r --delete src/ dst/")
        .setup("mkdir src dst; echo x >src/x")
        .target("dst/f")
        .needs(&["rsync"])
        .tells(Tells::Status),
    form("rsync --ignore-existing", Untouched, "rsync --ignore-existing s f").needs(&["rsync"]),
    form("xxd -r", Edit, "echo '00000000: 6e65 77' | xxd -r - f").needs(&["xxd"]),
    form("curl -o", Replace, "curl -s -o f \"file://$PWD/s\"")
        .needs(&["curl"])
        .tells(Tells::Status),
    form("jq >", Replace, "jq -n '{}' >f").needs(&["jq"]),
    form("openssl -out", Replace, "openssl base64 -in s -out f")
        .needs(&["openssl"])
        .tells(Tells::Status),
];
